"""The functions that docs/guides/sql.md shows."""

from pyspark.sql.functions import udf


@udf(returnType="STRING", useArrow=True)
def initials(name: str | None) -> str | None:
    """Answer the first letter of every word."""
    return None if name is None else "".join(word[0] for word in name.split())
