"""The file by which perf knows compiled code: read back by its specification, and compared with this process'
memory."""

from __future__ import annotations

import ctypes
import io
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tracecomp as torch
from tracecomp.base import config
from tracecomp.runtime import jitdump

ELFFile = pytest.importorskip("elftools.elf.elffile").ELFFile

LINE = 26  # of the product below


def network(x: Any, w: Any) -> Any:
    y = torch.relu(x @ w)
    return torch.softmax(y, -1).log1p()


def records(path: Path) -> list[tuple[int, bytes]]:
    """Kind and content of every record."""
    data, found = path.read_bytes(), []
    magic, version, start, _, _, process = struct.unpack_from("<IIIIII", data)
    assert (magic, version, process) == (0x4A695444, 1, os.getpid())
    while start < len(data):
        kind, size = struct.unpack_from("<II", data, start)
        found.append((kind, data[start + 16 : start + size]))
        start += size
    assert start == len(data)
    return found


def in_objects(objects: Sequence[bytes]) -> list[tuple[str, int]]:
    """Return names and sizes of functions in the loaded objects."""
    tables = [ELFFile(io.BytesIO(data)).get_section_by_name(".symtab") for data in objects]
    return [(s.name, s["st_size"]) for t in tables for s in t.iter_symbols() if s["st_info"]["type"] == "STT_FUNC"]


@pytest.mark.parametrize("threads", [1, 2])
def test_it_names_functions_their_code_and_their_lines(tmp_path: Path, threads: int) -> None:
    compiled = torch.compile(network, threads=threads)
    with config.override(jitdump=str(tmp_path)):
        for _ in range(2):
            compiled(torch.randn(70, 60), torch.randn(60, 50))
    names: list[tuple[int, str]] = []
    lines: dict[int, list[tuple[int, str, int]]] = {}
    places: dict[str, range] = {}
    bodies: dict[str, bytes] = {}
    for kind, content in records(tmp_path / f"jit-{os.getpid()}.dump"):
        if kind == 2:
            address, count = struct.unpack_from("<QQ", content)
            at, known = 16, []
            for _ in range(count):
                place, number, _ = struct.unpack_from("<QII", content, at)
                end = content.index(b"\0", at + 16)
                known.append((place, content[at + 16 : end].decode(), number))
                at = end + 1
            assert at == len(content)
            lines[address] = known
        else:
            assert kind == 0
            _, _, _, address, size, number = struct.unpack_from("<IIQQQQ", content)
            called, _, code = content[40:].partition(b"\0")
            assert len(code) == size and ctypes.string_at(address, size) == code
            places[called.decode()] = range(address, address + size)
            bodies[called.decode().partition(": ")[2]] = code
            names.append((number, called.decode()))
    for name, size in in_objects(compiled.entries[0].plan.forward.executable.image.objects):
        kernel, dot, part = name.partition(".")
        own = [k for k in bodies if k == name or (k.startswith(f"{kernel}_") and k.partition(".")[1:] == (dot, part))]
        assert [len(bodies[k]) for k in own] == [size], name
    assert [n for n, _ in names] == list(range(names[0][0], names[0][0] + len(names)))
    product = [name for name in places if name.startswith("network: k0_contract_relu")]
    assert product and all(name.startswith("network: ") for name in places)
    found = [entry for name in product for entry in lines.get(places[name].start, [])]
    assert {(file, number) for _, file, number in found} == {(__file__, LINE)}
    assert all(any(place in p for p in places.values()) for place, _, _ in found)


def test_without_the_setting_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.compile(lambda x: x * 3)(torch.ones(2))
    assert not list(tmp_path.iterdir())


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    (tmp_path / f"jit-{os.getpid()}.dump").symlink_to(kept)
    with pytest.raises(OSError, match="symbolic links"):
        jitdump.Jitdump(str(tmp_path))
    assert kept.read_text() == "mine"
