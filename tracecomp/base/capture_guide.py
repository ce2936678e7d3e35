"""Links from graph breaks to the page that says what to write instead, docs/writing-captured-programs.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PAGE = "https://tracecomp.github.io/tracecomp/writing-captured-programs/"


class Section(Enum):
    """A section of the page, by its anchor, with the remedy that messages give."""

    anchor: str
    remedy: str

    STEP = "compile-the-whole-step", "Compute the loss, backward() and the optimizer's step in one compiled function"
    SELECT = "select-values-with-tensor-operators", "Select values with torch.where or cond instead of a Python `if`"
    NUMBERS = "return-tensors-read-numbers-outside", "Return the tensor and read its values outside"
    SIZES = "compute-with-sizes", "Use tensor operators over the axis instead of a Python loop over its size"
    IMPURE = "keep-clocks-files-and-random-numbers-outside", "Call it outside and pass its result as an argument"
    STATE = "keep-state-in-attributes-and-containers", "Keep tensors in attributes, lists or dicts that exist before"
    MEMORY = "make-new-tensors", "Make a new tensor instead"
    EXCLUDE = "exclude-code-from-graphs", "Do this outside, or exclude it with torch.compiler.disable"
    FIND = "find-graph-breaks", "Print explain() of the compiled function to see what varies"

    def __init__(self, anchor: str, remedy: str) -> None:
        self.anchor, self.remedy = anchor, remedy

    @property
    def link(self) -> str:
        """The section's address."""
        return f"{PAGE}#{self.anchor}"


@dataclass(frozen=True, slots=True)
class BreakReason:
    """Why a program is not one graph: ``cause`` has no full stop; ``remedy`` replaces the section's."""

    cause: str
    section: Section
    remedy: str = ""

    @property
    def advice(self) -> str:
        """The remedy and the link."""
        return f"{self.remedy or self.section.remedy}. See {self.section.link}"

    def __str__(self) -> str:
        return f"{self.cause}. {self.advice}"
