"""Link objects of machine code into one image with few words that depend on its address.

LLVM emits relocatable ELF objects, for which a loader would need a linker. Nearly all references in them are relative
to the code itself, so they are resolved once when a program is saved. The loader only writes words in the image's data:
addresses of external functions, and absolute addresses inside.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracecomp.base.errors import CompileError

PAGES = {62: 4096, 183: 65536}
"""Page sizes by machine: code and data are on separate pages with different protection; the largest of x86-64 and
AArch64."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
# Numbers of the ELF format: the machine, kinds and flags of sections, sections of symbols without one, relocations.
_ELF, _X86_64, _AARCH64 = b"\x7fELF\x02\x01", 62, 183
_SYMBOL_TABLE, _WITH_ADDENDS, _NO_BITS = 2, 4, 8
_WRITE, _ALLOCATED = 0x1, 0x2
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX = 1, 2, 4, 9, 41, 42
_BY_TABLE = (_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX)
_JUMP = b"\xff\x25"
"""jmp through a word at a 32-bit distance."""
_JUMP_BYTES = 16
"""Bytes reserved for such a jump, which takes six bytes here and twelve on AArch64."""
# The same for AArch64.
_A_64, _A_PAGE, _A_ADD, _A_JUMP, _A_CALL, _A_GOT_PAGE, _A_GOT = 257, 275, 277, 282, 283, 311, 312
_A_LOADS = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4, _A_GOT: 3}
"""Loads and stores at an offset within a page: the number of low bits that are not encoded."""
_A_BY_TABLE = (_A_GOT_PAGE, _A_GOT)


@dataclass(frozen=True)
class Linked:
    """An image: ``contents`` are ``text`` bytes of code and then the data from ``data`` on; ``size`` bytes in memory.

    ``imports`` and ``absolute`` are offsets of words, as ``tracecomp_runtime.machine_code.placed`` takes them.
    """

    contents: bytes
    text: int
    data: int
    size: int
    symbols: dict[str, int]
    imports: list[tuple[str, int]]
    absolute: list[int]

    def description(self) -> dict[str, object]:
        """The loader's data in addition to the contents."""
        return {
            "text": self.text, "data": self.data, "size": self.size, "imports": self.imports, "absolute": self.absolute,
        }  # fmt: skip


@dataclass
class _Section:
    flags: int
    alignment: int
    data: bytes
    relocations: list[tuple[int, int, int, int]]  # offset, kind, symbol, addend
    at: int = 0


@dataclass
class _Object:
    machine: int
    sections: dict[int, _Section] = field(default_factory=dict)
    symbols: list[tuple[str, int, int, bool]] = field(default_factory=list)  # name, section, value, visible outside


def _read(code: bytes) -> _Object:
    """The parts of an object that are loaded."""
    found = _HEADER.unpack_from(code)
    if code[:6] != _ELF or found[2] not in PAGES:
        raise CompileError("program files hold code for x86-64 and AArch64 only")
    at, count = found[6], found[12]
    heads = [_SECTION.unpack_from(code, at + k * _SECTION.size) for k in range(count)]
    result = _Object(found[2])
    for number, (_, kind, flags, _, offset, size, _, _, alignment, _) in enumerate(heads):
        if flags & _ALLOCATED:
            data = bytes(size) if kind == _NO_BITS else code[offset : offset + size]
            result.sections[number] = _Section(flags, max(alignment, 1), data, [])
    for _, kind, _, _, offset, size, link, info, _, _ in heads:
        if kind == _SYMBOL_TABLE:
            names = heads[link][4]
            for k in range(size // _SYMBOL.size):
                name, how, _, section, value, _ = _SYMBOL.unpack_from(code, offset + k * _SYMBOL.size)
                text = code[names + name : code.index(b"\0", names + name)].decode()
                result.symbols.append((text, section, value, how >> 4 != 0))
        elif kind == _WITH_ADDENDS and info in result.sections:
            for k in range(size // _RELOCATION.size):
                place, what, addend = _RELOCATION.unpack_from(code, offset + k * _RELOCATION.size)
                result.sections[info].relocations.append((place, what & 0xFFFFFFFF, what >> 32, addend))
    return result


def is_linkable(code: bytes) -> bool:
    """Whether this is an object of x86-64, which ``link`` reads."""
    return code[:6] == _ELF and struct.unpack_from("<H", code, 18)[0] == _X86_64


def link(objects: Sequence[bytes]) -> Linked:
    """One image of ``objects``, which may refer to each other. CompileError if they cannot be linked."""
    return _Linker([_read(code) for code in objects]).linked()


class _Linker:
    def __init__(self, objects: list[_Object]) -> None:
        self.objects = objects
        self.machine = objects[0].machine
        self.by_table = _BY_TABLE if self.machine == _X86_64 else _A_BY_TABLE
        self.contents = bytearray()
        self.symbols: dict[str, int] = {}
        self.slots: dict[str, int] = {}  # words that hold addresses, by name or offset
        self.jumps: dict[str, int] = {}
        self.absolute: list[int] = []

    def linked(self) -> Linked:
        code = [s for o in self.objects for s in o.sections.values() if not s.flags & _WRITE]
        data = [s for o in self.objects for s in o.sections.values() if s.flags & _WRITE]
        self._lay_out(code)
        outside = self._outside()
        self.jumps = {name: self._room(_JUMP_BYTES) for name in outside}
        text = len(self.contents)
        start = self._room(0, PAGES[self.machine])
        self._lay_out(data)
        self._define()
        for name in self._tabled() | set(outside):
            self.slots[name] = self._room(8)
        for name, at in self.jumps.items():
            self._jump(at, self.slots[name])
        for one in self.objects:
            for section in one.sections.values():
                for relocation in section.relocations:
                    self._settle(one, section, *relocation)
        for name in sorted(self.slots.keys() & self.symbols.keys()):
            self._word(self.slots[name], self.symbols[name])
        packed = bytes(self.contents[:text] + self.contents[start:])
        imports = [(name, self.slots[name]) for name in outside]
        return Linked(packed, text, start, len(self.contents), self.symbols, imports, self.absolute)

    def _room(self, size: int, alignment: int = 16) -> int:
        """Reserve ``size`` more bytes; return their offset."""
        at = -(-len(self.contents) // alignment) * alignment
        self.contents.extend(bytes(at + size - len(self.contents)))
        return at

    def _lay_out(self, sections: Sequence[_Section]) -> None:
        for section in sections:
            section.at = self._room(len(section.data), section.alignment)
            self.contents[section.at : section.at + len(section.data)] = section.data

    def _define(self) -> None:
        """Record the symbols that are visible outside their object."""
        for one in self.objects:
            for name, section, value, visible in one.symbols:
                if section == _COMMON:
                    raise CompileError(f"the object has a common symbol, {name}")
                if visible and section in one.sections:
                    if name in self.symbols:  # calls would be ambiguous
                        raise CompileError(f"two objects define {name}")
                    self.symbols[name] = one.sections[section].at + value

    def _outside(self) -> list[str]:
        """The names that objects refer to and none defines, in order."""
        defined = {n for o in self.objects for n, section, _, visible in o.symbols if visible and section in o.sections}
        found = (n for o in self.objects for n, section, _, _ in o.symbols if section == _UNDEFINED and n)
        return [name for name in dict.fromkeys(found) if name not in defined]

    def _tabled(self) -> set[str]:
        """The names whose address is read from a table."""
        return {
            one.symbols[symbol][0]
            for one in self.objects
            for section in one.sections.values()
            for _, kind, symbol, _ in section.relocations
            if kind in self.by_table
        }

    def _address(self, one: _Object, symbol: int) -> int | None:
        """The address of a symbol in the image; None for an external one."""
        name, section, value, _ = one.symbols[symbol]
        if section in one.sections:
            return one.sections[section].at + value
        return self.symbols.get(name)

    def _settle(self, one: _Object, section: _Section, place: int, kind: int, symbol: int, addend: int) -> None:
        """Resolve the reference at ``place`` of ``section``."""
        at, name, target = section.at + place, one.symbols[symbol][0], self._address(one, symbol)
        if kind in self.by_table:
            if name not in self.jumps and name not in self.symbols:
                raise CompileError(f"the code reads the address of {name} from a table, as only visible symbols may")
            target = self.slots[name]
        elif target is None and kind in (_R_PLT32, _A_CALL, _A_JUMP):
            target = self.jumps[name]
        if target is None:
            raise CompileError(f"the code takes the address of {name}, which is outside")
        if kind in (_R_64, _A_64) and section.flags & _WRITE:
            self._word(at, target + addend)
        elif self.machine == _X86_64 and kind in (_R_PC32, _R_PLT32, *_BY_TABLE):
            self.contents[at : at + 4] = struct.pack("<i", target + addend - at)
        elif self.machine != _AARCH64 or not self._instruction(at, kind, target + addend):
            raise CompileError(f"the object has a relocation of kind {kind} for {name}")

    def _jump(self, at: int, slot: int) -> None:
        """A jump through the word at ``slot``."""
        if self.machine == _X86_64:
            self.contents[at : at + 6] = _JUMP + struct.pack("<i", slot - (at + len(_JUMP) + 4))
            return
        # adrp x16, page; ldr x16, [x16, place]; br x16
        self.contents[at : at + 12] = struct.pack("<3I", 0x90000010, 0xF9400210, 0xD61F0200)
        self._instruction(at, _A_PAGE, slot)
        self._instruction(at + 4, _A_GOT, slot)

    def _instruction(self, at: int, kind: int, target: int) -> bool:
        """Encode the address ``target`` in an instruction of AArch64; False if the kind is unknown."""
        (word,) = struct.unpack_from("<I", self.contents, at)
        if kind in (_A_PAGE, _A_GOT_PAGE):
            pages = (target >> 12) - (at >> 12)
            word |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5
        elif kind in (_A_CALL, _A_JUMP):
            word |= target - at >> 2 & 0x3FFFFFF
        elif kind == _A_ADD:
            word |= (target & 0xFFF) << 10
        elif kind in _A_LOADS:
            word |= (target & 0xFFF) >> _A_LOADS[kind] << 10
        else:
            return False
        struct.pack_into("<I", self.contents, at, word)
        return True

    def _word(self, at: int, value: int) -> None:
        """A word of data that holds an address in the image."""
        self.contents[at : at + 8] = struct.pack("<Q", value)
        self.absolute.append(at)
