"""``Explanation``: the facts about a compiled function as text, as data, or in a notebook."""

from __future__ import annotations

from typing import Any

from tracecomp.base.html import preformatted
from tracecomp.inspect.facts import FunctionFacts, plain
from tracecomp.inspect.text_report import everything_of, short


class Explanation(FunctionFacts):
    """The history of a function's calls: ``print`` shows the answer first, briefly.

    ``text(everything=True)`` has each guard, pass, kernel and schedule; ``data()`` the same for programs.
    """

    def text(self, everything: bool = False) -> str:
        """Return text: the answer, the distribution of time and the reasons; with ``everything``, each decision."""
        return "\n".join(everything_of(self) if everything else short(self))

    def data(self) -> dict[str, Any]:
        """Return everything as dictionaries, lists, strings and numbers: valid operands of ``json.dumps``."""
        found: dict[str, Any] = plain(self)
        return found

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return preformatted(self.text())
