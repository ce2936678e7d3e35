"""Programs that were saved, run elsewhere: the bits of the process that saved them, and no belief in damaged files."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.base.errors import CaptureError
from tracecomp.compiled.program_files.levels import LEVELS
from tracecomp_runtime import Container, ProgramError, load_program, processor
from tracecomp_runtime.container import FIXED, FORMAT, MAGIC, first

ROOT = Path(__file__).parents[2]
KINDS = ("code", "graph")

pytestmark = pytest.mark.skipif(not processor.levels(), reason="program files hold code for x86-64 and AArch64")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(4 * 16, 5)
    )


def training() -> tuple[nn.Module, Any, Any, Any]:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 5, (8,))
    for _ in range(2):
        step(x, y)
    return model, step, x, y


RUN = """
import sys
import numpy as np
import tracecomp_runtime
from tracecomp_runtime import processor
level = sys.argv[4]
if level in processor.LEVELS:
    found = processor.LEVELS[processor.LEVELS.index(level):]
    processor.levels = lambda: found
given = np.load(sys.argv[2])
program = tracecomp_runtime.load_program(sys.argv[1], digest=sys.argv[3], threads=2)
losses = [program(given["x"], given["y"]).item() for _ in range(5)]
np.savez(sys.argv[5], losses=losses, **program.state)
assert not {"tracecomp", "llvmlite", "networkx"} & sys.modules.keys()
assert level in ("", program.level), program.level
"""


def elsewhere(program: Path, x: Any, y: Any, digest: str, level: str = "", python: tuple[str, ...] = ()) -> Any:
    """Five steps in another process, which finds nothing of tracecomp but the runtime."""
    folder = program.parent / f"bare{level}"
    folder.mkdir(exist_ok=True)
    shutil.copytree(ROOT / "tracecomp_runtime", folder / "tracecomp_runtime", dirs_exist_ok=True)
    np.savez(folder / "given.npz", x=x.numpy(), y=y.numpy())
    arguments = [str(program), str(folder / "given.npz"), digest, level, str(folder / "found.npz")]
    command = [*(python or (sys.executable,)), "-c", RUN, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "found.npz")


@pytest.mark.slow
def test_a_training_step_goes_on_with_numpy_alone_with_the_same_bits_on_every_level(tmp_path: Path) -> None:
    model, step, x, y = training()
    digest = step.save(tmp_path / "step.tcp", x, y)
    losses = [step(x, y).item() for _ in range(5)]
    state = model.state_dict()
    for level in processor.levels():
        found = elsewhere(tmp_path / "step.tcp", x, y, digest, level)
        assert found["losses"].tolist() == losses, level
        for name in state:
            assert found[name].tobytes() == state[name].numpy().tobytes(), (level, name)


def test_half_precision_is_converted_on_every_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors without F16C lack the instruction; ``save`` refuses code that calls other functions."""
    run, x = torch.compile(lambda x: (x.half() * 3).double().half().float()), torch.randn(50)
    want = run(x)
    digest = run.save(tmp_path / "h.tcp", x)
    levels = processor.levels()
    for level in levels:
        monkeypatch.setattr(processor, "levels", partial(levels.__getitem__, slice(levels.index(level), None)))
        program = load_program(tmp_path / "h.tcp", digest=digest)
        assert program.level == level
        assert program(x.numpy()).tobytes() == want.numpy().tobytes()


@pytest.mark.skipif("aarch64" in processor.levels(), reason="files saved here have no code for x86-64")
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="qemu-user is not installed")
@pytest.mark.parametrize(
    ("name", "level"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3"), ("Skylake-Server", "")]
)  # qemu does not emulate AVX-512, so the last level gets the remaining code
def test_an_emulated_processor_gets_its_level_and_the_same_bits(tmp_path: Path, name: str, level: str) -> None:
    _, step, x, y = training()
    digest = step.save(tmp_path / "step.tcp", x, y)
    losses = [step(x, y).item() for _ in range(5)]
    python = ("qemu-x86_64", "-cpu", name, "-E", f"PYTHONPATH={':'.join(sys.path)}", sys.executable)
    assert elsewhere(tmp_path / "step.tcp", x, y, digest, level, python)["losses"].tolist() == losses


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_gives_the_same_bits_from_a_file(tmp_path: Path, kind: str) -> None:
    model = network().eval()
    compiled = torch.compile(model)
    x = torch.randn(3, 1, 6, 6)
    with torch.no_grad():
        digest = compiled.save(tmp_path / "model.tcp", x, kind=kind)
        want = compiled(x)
    loaded = torch.load_program(tmp_path / "model.tcp", digest=digest)
    for _ in range(3):  # the second call is the first that native code serves whole
        assert loaded(x).numpy().tobytes() == want.numpy().tobytes()
    assert loaded(x.transpose(2, 3).transpose(2, 3)).equal(want)
    with pytest.raises(ValueError, match="read-only"):
        loaded.program.state["0.weight"][...] = 0


@pytest.mark.parametrize("kind", KINDS)
def test_paths_shapes_views_and_nested_results_are_saved(tmp_path: Path, kind: str) -> None:
    def fn(x: Any, n: int) -> Any:
        if x.sum() > 0:
            return x * 2, {"turned": (x + 1).t()[:1], "n": n}
        return x - 1, {"turned": x.t()[:1], "n": n}

    compiled = torch.compile(fn)
    more, less, other = torch.ones(3, 4), -torch.ones(3, 4), torch.ones(2, 2)
    compiled(more, 3), compiled(less, 3)
    digest = compiled.save(tmp_path / "f.tcp", more, 3, also=[(other, 3)], kind=kind)
    loaded = torch.load_program(tmp_path / "f.tcp", digest=digest)
    for x in (more, less, other):
        (first_, second), (want, wanted) = loaded(x, 3), fn(x, 3)
        assert first_.equal(want) and second["turned"].equal(wanted["turned"]) and second["n"] == 3
        assert second["turned"].stride() == wanted["turned"].stride()
    with pytest.raises(TypeError, match=r"saved for \(float32\[3, 4\].*got \(float64\[3, 4\], 3\)"):
        loaded(more.double(), 3)
    with pytest.raises(TypeError, match="nested"):
        loaded(more)
    with pytest.raises(RuntimeError, match="no saved path"):
        loaded(-other, 3)


def test_an_index_out_of_range_is_an_error_of_the_loaded_program_too(tmp_path: Path) -> None:
    compiled = torch.compile(lambda x, i: x[i] + 1)
    x, i = torch.arange(5.0), torch.tensor([0, 4])
    loaded = torch.load_program(tmp_path / "f.tcp", digest=compiled.save(tmp_path / "f.tcp", x, i))
    assert loaded(x, i).tolist() == [1, 5] == loaded(x, i).tolist()
    for _ in range(2):
        with pytest.raises(IndexError, match="index out of range"):
            loaded(x, i + 1)
    assert loaded(x, i).tolist() == [1, 5]


def test_arguments_are_overwritten_in_place(tmp_path: Path) -> None:
    def fn(x: Any) -> Any:
        x.mul_(2)
        return x.sum()

    compiled = torch.compile(fn)
    loaded = torch.load_program(tmp_path / "f.tcp", digest=compiled.save(tmp_path / "f.tcp", torch.ones(4)))
    x = torch.ones(4)
    assert [loaded(x).item(), loaded(x).item(), x.tolist()] == [8, 16, [4, 4, 4, 4]]
    with pytest.raises(ValueError, match="C-contiguous"):
        loaded(torch.ones(4, 2)[:, 0])


@pytest.mark.parametrize("kind", ["code", "graph"])
def test_fast_math_is_saved_and_what_is_not_fast_stays_exact(tmp_path: Path, kind: str) -> None:
    x, path = torch.linspace(-3, 3, 1000), tmp_path / "fast.tcp"
    results = []
    for fast in (True, False):
        compiled = torch.compile(lambda x: torch.tanh(x) * torch.tanh(x * 0.3), fast_math=fast)
        digest = compiled.save(path, x, kind=kind)
        loaded = torch.load_program(path, digest=digest)(x)
        assert torch.equal(loaded, compiled(x))
        results.append(loaded)
    assert not torch.equal(*results) and torch.allclose(results[0], results[1], atol=1e-5)


def test_what_needs_python_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    def fn(x: Any) -> Any:
        return torch.linalg.eigvalsh(x)

    compiled = torch.compile(fn)
    with pytest.raises(CaptureError, match="LAPACK"):
        compiled.save(tmp_path / "f.tcp", torch.eye(3))
    with pytest.raises(ValueError, match="levels must be among"):
        torch.compile(torch.exp).save(tmp_path / "f.tcp", torch.ones(2), levels=["avx"])
    with pytest.raises(ValueError, match="kind must be"):
        torch.compile(torch.exp).save(tmp_path / "f.tcp", torch.ones(2), kind="text")
    assert not [*tmp_path.iterdir()]


def test_machine_code_is_loaded_by_its_digest_only(tmp_path: Path) -> None:
    path = tmp_path / "f.tcp"
    digest = torch.compile(lambda x: x + 1).save(path, torch.ones(3))
    with pytest.raises(ProgramError, match="Pass the digest"):
        torch.load_program(path)
    with pytest.raises(ProgramError, match="expected"):
        torch.load_program(path, digest=digest[:-1] + ("0" if digest[-1] != "0" else "1"))
    data = bytearray(path.read_bytes())
    data[data.rindex(bytes(Container(path).section("tensors")))] ^= 1
    path.write_bytes(data)
    with pytest.raises(ProgramError, match="damaged"):
        torch.load_program(path, digest=digest)


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    (tmp_path / "f.tcp").write_bytes(FIXED.pack(MAGIC, FORMAT + 1, 2, bytes(32)) + b"{}")
    with pytest.raises(ProgramError, match=f"format {FORMAT + 1}; this version reads formats up to {FORMAT}"):
        torch.load_program(tmp_path / "f.tcp")


def remade(path: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """Change a file's header and sections, and update their digests."""
    file = Container(path)
    sections = {name: bytes(file.section(name)) for name in file.header["sections"]}
    header = file.header
    change(header, sections)
    places, body = {}, b""
    for name, data in sections.items():
        places[name] = {"offset": len(body), "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        body += data + bytes(-len(data) % 64)
    text = json.dumps({**header, "sections": places}).encode()
    head = FIXED.pack(MAGIC, FORMAT, len(text), hashlib.sha256(text).digest()) + text
    path.write_bytes(head.ljust(first(len(text)), b"\0") + body)


def mutated(rng: random.Random, value: Any) -> Any:
    """``value`` (JSON) with one place in it changed."""
    if isinstance(value, dict) and value:
        key = rng.choice([*value])
        return {k: mutated(rng, v) if k == key else v for k, v in value.items() if k != key or rng.random() > 0.1}
    if isinstance(value, list) and value and rng.random() > 0.1:
        at = rng.randrange(len(value))
        return [mutated(rng, v) if k == at else v for k, v in enumerate(value)]
    return rng.choice([None, -1, 0, 1, 7, 2**40, -(2**63), 1e300, "", "float64", "state", "output", [], [[]], {}, True])


def damage_graph_files(folder: Path, count: int, seed: int) -> Counter[str]:
    """Count the outcomes for ``count`` files with graphs that were changed and have matching digests."""
    (_, step, x, y), rng = training(), random.Random(seed)
    small, a, found = torch.compile(lambda a: (a @ a).relu().sum(0) + a[2]), torch.randn(4, 4), Counter[str]()
    whole = [folder / "step.tcp", folder / "small.tcp", folder / "open.tcp"]
    step.save(whole[0], x, y, kind="graph")
    small.save(whole[1], a, kind="graph")
    rows = torch.compile(lambda a: ((a * 2).softmax(0).t(), a.sum(0)))
    torch._dynamo.mark_dynamic(a, 0, min=3, max=8)
    rows.save(whole[2], a, kind="graph")
    originals, path = [p.read_bytes() for p in whole], folder / "damaged.tcp"

    def change(header: dict[str, Any], sections: dict[str, bytes]) -> None:
        if rng.random() < 0.5:
            damaged = mutated(rng, {k: v for k, v in header.items() if k != "sections"})
            header.clear()
            header.update(damaged)
            return
        name = rng.choice([*sections])
        data = bytearray(sections[name])
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        sections[name] = bytes(data)

    for number in range(count):
        which = 1 + number % 2 if number % 10 else 0  # most of them small, which compiles at once
        path.write_bytes(originals[which])
        remade(path, change)
        try:
            loaded = torch.load_program(path)
        except ProgramError:
            found["refused"] += 1
            continue
        try:
            loaded(*((a,) if which else (x, y)))
            found["ran"] += 1
        except (TypeError, ValueError, IndexError, RuntimeError):
            found["refused the call"] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_backward_pass_would_read_is_not_saved(tmp_path: Path, kind: str) -> None:
    """A model with parameters, called without ``no_grad``: a file gives the results alone."""
    model, x = network().eval(), torch.randn(3, 1, 6, 6)
    call = torch.compile(lambda x: model(x))
    want = call(x)
    assert want.requires_grad
    digest = call.save(tmp_path / "m.tcp", x, kind=kind)
    assert len(Container(tmp_path / "m.tcp").header["paths"][0]["outputs"]) == 1
    found = torch.load_program(tmp_path / "m.tcp", digest=digest if kind == "code" else None)(x)
    assert np.array_equal(found.numpy(), want.detach().numpy()) and not found.requires_grad
    want.sum().backward()  # the function itself continues as before
    assert all(p.grad is not None for p in model.parameters())


def test_arguments_that_were_not_saved_are_told_as_they_are(tmp_path: Path) -> None:
    digest = torch.compile(lambda x, more: x + more["a"][0]).save(
        tmp_path / "m.tcp", torch.ones(2), {"a": [torch.ones(2)]}
    )
    run, x = torch.load_program(tmp_path / "m.tcp", digest=digest), np.ones(2, np.float32)
    for args, wanted, told in (
        ((), "(*, {'a': [*]})", "()"), ((x,), "(*, {'a': [*]})", "(float32[2])"),
        ((x, {"b": [x]}), "{'a': [*]}", "{'b': [float32[2]]}"), ((x, {"a": (x, x)}), "[*]", "(float32[2], float32[2])"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"nested as {re.escape(wanted)}, but got {re.escape(told)}$"):
            run(*args)
    with pytest.raises(TypeError, match="a different byte order"):
        run(x.astype(">f4"), {"a": [x]})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_graph_file_is_an_error_or_a_program_that_stays_in_its_arrays(tmp_path: Path, seed: int) -> None:
    found = damage_graph_files(tmp_path, 25, seed)
    assert found["refused"] > 5 and found.total() == 25


def test_bytes_that_are_changed_without_their_digests_are_always_noticed(tmp_path: Path) -> None:
    path, rng = tmp_path / "f.tcp", random.Random(0)
    digest = torch.compile(lambda x: x @ x).save(path, torch.ones(4, 4))
    original = path.read_bytes()
    length = struct.unpack_from("<I", original, 12)[0]
    for _ in range(200):
        data = bytearray(original)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(first(length))] ^= 1 << rng.randrange(8)
        if bytes(data[: FIXED.size + length]) == original[: FIXED.size + length] and len(data) == len(original):
            continue  # only the padding behind the header was changed
        path.write_bytes(data)
        with pytest.raises(ProgramError):
            torch.load_program(path, digest=digest)


def test_every_level_has_its_own_code() -> None:
    assert [*LEVELS] == [*reversed(processor.LEVELS)]
    assert processor.levels() in (("aarch64",), processor.LEVELS[-len(processor.levels()) :])


def test_a_program_that_is_not_one_graph_says_why_it_cannot_be_saved(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="graph break in"),
        pytest.raises(CaptureError, match=r"not a single graph: .*numpy"),
    ):
        torch.compile(lambda x: x.numpy()).save(tmp_path / "m.tcp", torch.ones(2))
