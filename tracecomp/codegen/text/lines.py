"""The user's lines in LLVM text, as debug information: the source line of each instruction of a kernel.

Instructions are marked with their origins while they are written. ``finish`` replaces the marks by locations, and gives
all others the line of their kernel. Programs for execution omit the marks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from tracecomp.base.errors import Source

_FIRST = 100
"""Numbers below are those of other metadata (``modules.py``)."""
_DEFINE = re.compile(r"^define .*?@([-\w.]+)\(.*(?= \{$)")
_MARKED = re.compile(r"^(  .*?)(?: ;from (\d+))?$")


class Lines:
    """The debug information of one module; ``sources`` are the lines of graph nodes."""

    def __init__(self, sources: Mapping[object, Source]) -> None:
        self.sources = sources
        self._marks: dict[Source, int] = {}
        self._texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._unit = self._number("")
        flags = ['!{i32 7, !"Dwarf Version", i32 4}', '!{i32 2, !"Debug Info Version", i32 3}']
        self._flags = [self._number(flag) for flag in flags]

    def mark(self, origin: object) -> str:
        """The suffix of an instruction that comes from ``origin``; empty if its line is unknown."""
        source = self.sources.get(origin)
        if source is None:
            return ""
        return f" ;from {self._marks.setdefault(source, len(self._marks))}"

    def finish(self, text: str, default: Source | None) -> str:
        """The functions of a kernel with locations; instructions without a mark are from the line ``default``."""
        marks = {n: source for source, n in self._marks.items()}
        default = default or next(iter(marks.values()), None)
        if default is None:
            return text
        found, scope = [], 0
        for line in text.split("\n"):
            if head := _DEFINE.match(line):
                scope = self._function(head[1], default)
                found.append(f"{head[0]} !dbg !{scope} {{")
            elif line.startswith("  ") and (marked := _MARKED.match(line)):
                source = marks[int(marked[2])] if marked[2] else default
                found.append(f"{marked[1]}, !dbg !{self._location(scope, default.file, source)}")
            else:
                found.append(line)
        return "\n".join(found)

    def metadata(self) -> str:
        """The entries at the end of the module."""
        if not self._files:
            return ""
        first = self._files[0]
        unit = f'distinct !DICompileUnit(language: DW_LANG_C99, file: !{first}, producer: "tracecomp", '
        self._texts[0] = f"{unit}emissionKind: LineTablesOnly)"
        lines = [f"!{_FIRST + n} = {text}" for n, text in enumerate(self._texts)]
        flags = ", ".join(f"!{n}" for n in self._flags)
        return "\n".join([f"!llvm.dbg.cu = !{{!{self._unit}}}", f"!llvm.module.flags = !{{{flags}}}", *lines, ""])

    @property
    def _files(self) -> list[int]:
        return [n for text, n in self._numbers.items() if text.startswith("!DIFile")]

    def _number(self, text: str) -> int:
        """The number of an entry, which is created on first use."""
        if text not in self._numbers:
            self._numbers[text] = _FIRST + len(self._texts)
            self._texts.append(text)
        return self._numbers[text]

    def _file(self, path: str) -> int:
        pure = PurePath(path)
        return self._number(f"!DIFile(filename: {_quoted(pure.name)}, directory: {_quoted(str(pure.parent))})")

    def _function(self, name: str, source: Source) -> int:
        file = self._file(source.file)
        kind = self._number("!DISubroutineType(types: !{null})")
        return self._number(
            f"distinct !DISubprogram(name: {_quoted(name)}, scope: !{file}, file: !{file}, line: {source.line}, "
            f"type: !{kind}, spFlags: DISPFlagDefinition, unit: !{self._unit})"
        )

    def _location(self, function: int, file: str, source: Source) -> int:
        scope = function
        if source.file != file:
            block = f"!DILexicalBlockFile(scope: !{function}, file: !{self._file(source.file)}, discriminator: 0)"
            scope = self._number(block)
        return self._number(f"!DILocation(line: {source.line}, column: 0, scope: !{scope})")


def _quoted(text: str) -> str:
    """A string of LLVM's: bytes other than plain letters as two hexadecimal digits."""
    plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
    return f'"{"".join(plain)}"'
