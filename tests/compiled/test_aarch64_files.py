"""Program files for AArch64: an emulated executable runs their code without Python or a C library."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.compiled.program_files.levels import chosen
from tracecomp_runtime import Container, machine_code, processor, tensors

BASE, PAGE = 0x400000, 65536
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")


def executable(code: dict[str, Any], contents: bytes, arrays: list[Any], outputs: list[Any]) -> bytes:
    """A static executable that runs the code once and writes the outputs: image, start, literals, table, arrays."""
    image = bytearray(code["size"])
    image[: code["text"]] = contents[: code["text"]]
    image[code["data"] : code["data"] + len(contents) - code["text"]] = contents[code["text"] :]
    first = BASE + PAGE
    for at in code["absolute"]:
        struct.pack_into("<Q", image, at, struct.unpack_from("<Q", image, at)[0] + first)
    start = -(-len(image) // 64) * 64
    pieces, places, at = [], [], start + 256 + 8 * (len(arrays) + len(outputs))
    for array in (*arrays, *outputs):
        at = -(-at // 64) * 64
        places.append(first + at)
        pieces.append((at, array.tobytes()))
        at += max(array.nbytes, 1)
    arena = -(-at // 64) * 64
    end = arena + code["memory_bytes"] + code["thread_bytes"] + 64
    body = bytearray(end)
    body[: len(image)] = image
    for at, data in pieces:
        body[at : at + len(data)] = data
    size = sum(o.nbytes for o in outputs)
    assert len(outputs) == 1
    literals = [first + start + 256, first + arena, first + end - 8, first + code["entry"], places[-1], size]

    def load(register: int, instruction: int, literal: int) -> int:
        return 0x58000000 | ((128 + 8 * literal - 4 * instruction) // 4) << 5 | register

    words = [
        load(0, 0, 0), load(1, 1, 1), 0xD2800002, load(3, 3, 2), load(9, 4, 3), 0xD63F0120,  # the entry
        0xD2800020, load(1, 7, 4), load(2, 8, 5), 0xD2800808, 0xD4000001,  # write(1, output, size)
        0xD2800000, 0xD2800BA8, 0xD4000001,  # exit(0)
    ]  # fmt: skip
    struct.pack_into(f"<{len(words)}I", body, start, *words)
    struct.pack_into("<6Q", body, start + 128, *literals)
    struct.pack_into(f"<{len(places)}Q", body, start + 256, *places)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = _HEADER.pack(ident, 2, 183, 1, first + start, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = _SEGMENT.pack(1, 7, PAGE, first, first, len(body), len(body), PAGE)
    return (header + segment).ljust(PAGE, b"\0") + bytes(body)


def emulated(path: Path, args: list[Any]) -> Any:
    """Return the results for ``args`` of the AArch64 code in a program file."""
    file = Container(path)
    held = dict(tensors.arrays(file.section("tensors"), file))
    (code,) = file.header["levels"]["aarch64"]
    arrays = [
        args[name] if kind == "argument" else held[f"{'constant' if kind == 'constant' else 'state'}:{name}"]
        for kind, name in code["inputs"]
    ]
    ((dtype, shape, *_),) = file.header["paths"][0]["outputs"]
    output = np.zeros(shape, dtype)
    made = path.with_suffix(".elf")
    made.write_bytes(executable(code, bytes(file.section(code["section"])), arrays, [output]))
    made.chmod(0o755)
    found = subprocess.run(["qemu-aarch64", str(made)], capture_output=True, check=True, timeout=120)
    return np.frombuffer(found.stdout, dtype).reshape(shape)


@pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="qemu-user is not installed")
@pytest.mark.parametrize("case", ["network", "functions", "sums"])
def test_code_for_aarch64_gives_the_same_bits(tmp_path: Path, case: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(144, 5), nn.Softmax(-1)).eval()
    functions = {
        "network": lambda x: model(x),
        "functions": lambda x: (x.exp() + x.sin() + x.erf() + x.sigmoid()).half().float() + (x * 9).to(torch.int32),
        "sums": lambda x: (x.flatten(1) @ x.flatten(1).t()).cumsum(0) + x.std() + x.double().sum().float(),
    }
    compiled, x = torch.compile(functions[case]), torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        compiled.save(tmp_path / "f.tcp", x, levels=["aarch64"])
        want = compiled(x)
    assert emulated(tmp_path / "f.tcp", [x.numpy()]).tobytes() == want.numpy().tobytes()


def test_code_for_other_processors_is_refused_where_it_does_not_run(tmp_path: Path) -> None:
    if "aarch64" in processor.levels():
        pytest.skip("this is such a processor")
    digest = torch.compile(lambda x: x + 1).save(tmp_path / "f.tcp", torch.ones(2), levels=["aarch64"])
    mine = processor.levels()[0]
    said = rf"holds code for aarch64; this processor is {mine}\. Save the program with levels=\['{mine}'\]"
    with pytest.raises(ValueError, match=said):
        torch.load_program(tmp_path / "f.tcp", digest=digest)


def test_files_hold_code_for_the_architecture_that_saves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for mine, names in ((processor.LEVELS, processor.LEVELS), (("aarch64",), ("aarch64",))):
        monkeypatch.setattr(processor, "levels", lambda mine=mine: mine)
        assert sorted(chosen(None)) == sorted(names)
    assert [*chosen(["aarch64", "x86-64-v3"])] == ["aarch64", "x86-64-v3"]


def test_other_systems_refuse_code_for_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = torch.compile(lambda x: x + 1).save(tmp_path / "f.tcp", torch.ones(2))
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ValueError, match=r"holds code for Linux; this system is darwin\. Save .* with kind='graph'"):
        torch.load_program(tmp_path / "f.tcp", digest=digest)


def test_code_is_shown_to_instruction_fetches_before_it_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """AArch64 fetches instructions past its data caches."""
    shown: list[tuple[int, int]] = []

    class Library:
        def __getattr__(self, name: str) -> Any:
            if name != "__clear_cache":
                raise AttributeError(name)
            return lambda start, end: shown.append((start.value, end.value))

    monkeypatch.setattr(machine_code, "_ARM", True)
    monkeypatch.setattr(machine_code, "_with_clear_cache", Library)
    code = machine_code.executable(bytes(100))
    assert shown == [(code.address, code.address + 100)]
