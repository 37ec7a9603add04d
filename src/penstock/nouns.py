"""Numbers with their nouns, for people."""


def counted(number: int, noun: str) -> str:
    """Write a count with its noun: 1 file, 2 files."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
