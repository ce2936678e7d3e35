"""Small pieces of HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table of texts; the first ``numbers`` columns are right-aligned."""

    def cells(row: Sequence[str], tag: str) -> str:
        sides = ["right" if n < numbers else "left" for n in range(len(row))]
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(x)}</{tag}>' for x, side in zip(row, sides, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"


def preformatted(text: str) -> str:
    """Preformatted text that scrolls if it is wider than the page."""
    return f'<pre style="overflow-x:auto">{escape(text)}</pre>'
