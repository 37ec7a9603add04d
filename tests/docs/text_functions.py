"""The functions of the example in docs/guides/sql.md."""

from pyspark.sql.functions import udf


@udf(returnType="STRING", useArrow=True)
def initials(name: str | None) -> str | None:
    """Return the first letter of every word."""
    return None if name is None else "".join(word[0] for word in name.split())
