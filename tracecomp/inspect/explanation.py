"""``Explanation``: what is known of a compiled function, in words, as data, in a notebook."""

from __future__ import annotations

from typing import Any

from tracecomp.base.html import preformatted
from tracecomp.inspect.facts import FunctionFacts, plain
from tracecomp.inspect.in_words import everything_of, short


class Explanation(FunctionFacts):
    """What became of a function's calls: ``print`` gives the answer first, in short.

    ``text(everything=True)`` has each guard, pass, kernel and schedule; ``data()`` the same for programs.
    """

    def text(self, everything: bool = False) -> str:
        """In words: the answer, where the time goes and why; with ``everything``, each decision."""
        return "\n".join(everything_of(self) if everything else short(self))

    def data(self) -> dict[str, Any]:
        """All of it as dictionaries, lists, texts and numbers: what ``json.dumps`` takes."""
        found: dict[str, Any] = plain(self)
        return found

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return preformatted(self.text())
