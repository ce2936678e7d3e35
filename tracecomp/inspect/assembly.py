"""Analysis of assembly text: functions, their innermost loops, and the loops' stack accesses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_LABEL = re.compile(r"^([\w.$]+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\b.*?([.\w]*L\w+)$")
_SPILL = re.compile(r"[xyz]mm\d+.*\(%r[sb]p\)|\(%r[sb]p\).*[xyz]mm\d+|\b[qv]\d+.*\[sp")
_INSTRUCTION = re.compile(r"^\s+[a-z]")
_CALL = re.compile(r"^\s+(?:callq?|bl)\s")
_LOCATION = re.compile(r"^\s+\.loc\s+(\d+) (\d+)")
_FILE = re.compile(r'^\s+\.file\s+(\d+) "([^"]*)"(?: "([^"]*)")?', re.MULTILINE)
_COMMENT = re.compile(r"\s*(?:##?|//) .*$")


def functions(assembly: str) -> dict[str, list[str]]:
    """The lines of every function, by name, directives without meaning for readers left out."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    in_text = True
    for line in assembly.splitlines():
        if line.startswith(("\t.section", "\t.text", "\t.data")):
            in_text = ".text" in line
        label = _LABEL.match(line)
        if label and not label[1].startswith((".L", "L")) and in_text:
            lines = found.setdefault(label[1], [])
        elif (label and not label[1].startswith((".Lfunc", ".Ltmp"))) or _INSTRUCTION.match(line) or _is_location(line):
            lines.append(line.expandtabs(8)[4:] if line.startswith("\t") else line)
        elif label and label[1].startswith(".Lfunc_end"):
            lines = []
    return {name: body for name, body in found.items() if body}


def _is_location(line: str) -> bool:
    return line.startswith("\t.loc\t")


def files(assembly: str) -> dict[str, str]:
    """The files that directives for lines refer to, by number."""
    found = {}
    for number, first, second in _FILE.findall(assembly):
        found[number] = f"{first}/{second}" if second else first
    return found


def with_lines(body: Sequence[str], known: Mapping[str, str]) -> list[tuple[str, str]]:
    """The lines of a function without directives, each with the ``file:line`` that it comes from, or an empty text."""
    found, here = [], ""
    for line in body:
        location = _LOCATION.match(line)
        if location is None:
            found.append((line, here if _INSTRUCTION.match(line) else ""))
        elif location[2] != "0":
            here = f"{known.get(location[1], '?')}:{location[2]}"
    return found


def innermost_loops(body: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First and last line of every loop of a function that holds no other one."""
    places = {m[1]: n for n, line in enumerate(body) if (m := _LABEL.match(line))}
    jumps = [(places[m[1]], n) for n, line in enumerate(body) if (m := _JUMP.match(_plain(line))) and m[1] in places]
    loops = {(first, last) for first, last in jumps if first <= last}
    for first, last in sorted(loops):
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops):
            yield first, last


def _plain(line: str) -> str:
    return _COMMENT.sub("", line).rstrip()


def spills(body: Sequence[str]) -> tuple[int, int]:
    """Count vector instructions of innermost loops that access the stack, and all instructions of the loops.

    Loops that call functions are left out: their stack accesses can be the functions' arguments.
    """
    spilled = total = 0
    for first, last in innermost_loops(body):
        lines = [line for line in body[first : last + 1] if _INSTRUCTION.match(line) and not _LABEL.match(line)]
        if any(_CALL.match(line) for line in lines):
            continue
        total += len(lines)
        spilled += sum(1 for line in lines if _SPILL.search(line))
    return spilled, total


def of_kernel(name: str, found: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The functions of a kernel: itself, and the parts that threads share."""
    return {key: body for key, body in found.items() if key == name or key.startswith(f"{name}.")}
