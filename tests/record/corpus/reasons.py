"""Programs of the corpus that are not right yet, each with the reason."""

OPEN: dict[str, str] = {}
