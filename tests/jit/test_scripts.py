"""Scripts: programs that run without the classes they were written as, and reach nothing but tensors."""

from __future__ import annotations

import inspect
import io
import math
import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, List, Optional  # noqa: UP035  as people write for TorchScript

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.jit import guard
from tracecomp.jit.language import NotSupportedError, compiled, parsed
from tracecomp.nn import functional as F
from tracecomp_runtime.container import ProgramError

ROOT = str(Path(torch.__file__).parents[1])
SCALE = 3


def helper(x: torch.Tensor, k: int = 2) -> torch.Tensor:
    return x * k + math.pi


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n, n, 3, padding=1)
        self.bn = nn.BatchNorm2d(n)
        self.act = F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.bn(self.conv(x))) + helper(x, SCALE)


class Net(nn.Module):
    width = 7

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4) for _ in range(2)])
        self.head = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 3))
        self.register_buffer("scale", torch.tensor(2.0))
        self.rnn = nn.LSTM(4, 5, batch_first=True)
        self.steps = 0

    @property
    def twice(self) -> int:
        return self.steps * 2

    def forward(self, x: torch.Tensor, flag: bool = False, other: Optional[torch.Tensor] = None) -> Any:  # noqa: UP045
        means: List[torch.Tensor] = []  # noqa: UP006
        for block in self.blocks:
            x = block(x)
            means.append(x.mean())
        y = x.mean((2, 3))
        if flag and y.sum() > -1e9:
            y = y * self.scale
        elif other is not None:
            y = y + other
        i = 0
        while i < 3:
            y = y + 0.1 * i
            i += 1
        found: Dict[str, torch.Tensor] = {"y": self.head(y)}  # noqa: UP006
        hidden, _ = self.rnn(y.unsqueeze(1))
        part = y[:, 1:3]
        part[..., 0] += self.width
        self.steps += 1
        return found, means, hidden, f"{i} of {y.shape}", self.twice, torch.stack([m + 0 for m in means])

    @torch.jit.export
    def flat(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dim() == 4, "not an image"
        return x.view(x.size(0), -1).softmax(-1)


def saved(value: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(value, file)
    file.seek(0)
    return file


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return all(same(a[k], b[k]) for k in a) if isinstance(a, dict) else a == b


def test_a_loaded_module_computes_the_same_bits_keeps_state_and_compiles() -> None:
    model = Net().eval()
    scripted = torch.jit.script(model)
    assert isinstance(scripted, torch.jit.ScriptModule) and scripted.original_name == "Net"
    loaded = torch.jit.load(saved(scripted))
    assert {*loaded.state_dict()} == {*model.state_dict()}
    x = torch.randn(2, 4, 5, 5)
    for flag in (True, False):
        assert same(loaded(x, flag), model(x, flag))
    assert loaded.steps == model.steps == 2
    assert same(loaded.flat(x), model.flat(x))
    compiled_ = torch.compile(loaded)
    for _ in range(2):
        assert same(compiled_(x, True), model(x, True))
    again = torch.jit.load(saved(loaded))
    assert same(again(x), model(x))


def test_a_scripted_module_shares_everything_with_its_original() -> None:
    model = Net()
    scripted = torch.jit.script(model)
    scripted.eval()
    assert not model.training and scripted.head[0].weight is model.head[0].weight
    scripted.steps = 5
    assert model.steps == 5


@pytest.mark.slow
def test_a_file_needs_none_of_the_classes(tmp_path: Any) -> None:
    file, data = tmp_path / "net.pt", tmp_path / "data.npz"
    model = Net().eval()
    torch.jit.script(model).save(file)
    x = torch.randn(3, 4, 6, 6)
    np.savez(data, x=x.numpy(), y=model(x)[0]["y"].detach().numpy())
    script = f"""
        import numpy as np, tracecomp as torch
        data = np.load({str(data)!r})
        found = torch.jit.load({str(file)!r})(torch.from_numpy(data["x"]))[0]["y"]
        assert np.array_equal(found.detach().numpy(), data["y"])
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path, check=True, env={"PYTHONPATH": ROOT})


def test_loaded_modules_train_as_the_original_does() -> None:
    model = Block(4)
    loaded = torch.jit.load(saved(torch.jit.script(model)))
    x = torch.randn(2, 4, 5, 5)
    for m in (model, loaded):
        m.train()
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            optimizer.step()
    assert same(model.state_dict(), loaded.state_dict())


def test_functions_recursion_and_closures_are_kept() -> None:
    factor = 3.5

    def inner(x: torch.Tensor, depth: int) -> torch.Tensor:
        if depth == 0:
            return x * factor
        return inner(x + depth, depth - 1)

    def outer(x: torch.Tensor, *, depth: int = 3) -> torch.Tensor:
        with torch.no_grad():
            return inner(x, depth) + inner(x, 0)

    loaded = torch.jit.load(saved(torch.jit.script(outer)))
    x = torch.randn(4, requires_grad=True)
    assert same(loaded(x), outer(x)) and not loaded(x).requires_grad
    assert same(loaded(x, depth=1), outer(x, depth=1))


def test_no_grad_as_a_decorator_and_left_out_functions() -> None:
    class M(nn.Module):
        @torch.no_grad()
        def forward(self, x: torch.Tensor, deep: bool = False) -> torch.Tensor:
            return self.debug(x) if deep else x * 2

        @torch.jit.unused
        def debug(self, x: torch.Tensor) -> torch.Tensor:
            import os  # the language has no imports, and this is not read

            return x * len(os.environ)

    loaded = torch.jit.load(saved(torch.jit.script(M())))
    x = torch.ones(2, requires_grad=True)
    assert not loaded(x).requires_grad
    with pytest.raises(torch.jit.Error, match="left out of the script by 'unused'"):
        loaded(x, True)


def test_traces_outside_of_the_language_are_saved_as_graphs() -> None:
    def odd(x: torch.Tensor) -> torch.Tensor:
        return (lambda y: y * 2 + y.sin())(x)

    traced = torch.jit.trace(odd, torch.randn(3))
    loaded = torch.jit.load(saved(traced))
    x = torch.randn(3)
    assert same(loaded(x), odd(x))
    with pytest.raises(TypeError, match="saved for"):
        loaded(torch.randn(4))
    block = torch.jit.trace(Block(2).eval(), torch.randn(1, 2, 4, 4))
    assert torch.jit.load(saved(block))(torch.randn(5, 2, 3, 3)).shape == (5, 2, 3, 3)  # its text is kept: any size


def _unsaid() -> list[tuple[Any, str]]:
    class Hooked(nn.Module):
        def forward(self, x: Any) -> Any:
            return x

    hooked = Hooked()
    hooked.register_forward_hook(lambda *_: None)

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.file = sys.stdout

        def forward(self, x: Any) -> Any:
            print(self.file)
            return x

    def generates(x: Any) -> Any:
        yield x

    def reads_files(x: Any) -> Any:
        return open(x)

    def tries(x: Any) -> Any:
        try:
            return x
        finally:
            print("done")

    return [
        (hooked, "hooks"), (Reads(), "Reads.file"), (generates, "'Yield'"), (reads_files, "'open'"), (tries, "'Try'"),
        (lambda x: x, "lambda|read as Python"),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(6))
def test_what_is_not_in_the_language_is_refused_with_its_place(number: int) -> None:
    value, said = _unsaid()[number]
    with pytest.raises(NotSupportedError, match=said):
        saved(torch.jit.script(value))


ESCAPES = (
    "x.__class__", "x.__reduce__()", "().__class__.__bases__", "'{0.__class__}'.format(x)", "'{0[0]}'.format(x)",
    "torch.load('f')", "torch.save(x, 'f')", "torch.compile", "torch.set_default_dtype(torch.float64)",
    "getattr(x, '__class__')", "getattr(torch, '__builtins__')", "__import__('os')", "x.numpy().tofile('f')",
    "eval('1')", "exec('1')", "globals()", "open('f')", "x.register_hook.__globals__", "print.__self__",
    "[c for c in ().__class__.__base__.__subclasses__()]", "self._methods", "self.__dict__", "self.save('f')",
    "self.register_forward_hook(print)", "self._parameters", "self.load_state_dict({})", "math.__loader__",
    "F.relu.__globals__", "type(x)", "vars(x)", "x.storage().tofile('f')", "'{:{x.y}}'.format(1)",
    "torch.from_file('f', True, 8)", "torch.from_dlpack(x)", "torch.from_numpy(x.numpy())",
)  # fmt: skip


HIDDEN = (
    "for torch.Tensor.evil in [1]: pass", "for (a, x._data) in [(1, 2)]: pass", "a, *x._grad = [1, 2]", "del x._data",
    "with torch.no_grad() as torch.Tensor.evil: pass", "a = [1 for torch.Tensor.evil in [1]]",
    "a = {1: 2 for torch.Tensor.evil in [1]}", "def g(self): return self._own\n    g(x.numpy())",
    "def g(*, self): return self._own\n    g(self=x.numpy())", "def g(*self): return self._own\n    g(x)",
    "def g(**self): return self._own\n    g(x=x)", "def self(): return 1\n    self._own",
    "[self._own for self in [x.numpy()]]",
)  # fmt: skip
"""Statements in which an attribute is read, set or deleted where no expression or assignment shows it."""


@pytest.mark.parametrize("hidden", HIDDEN)
def test_no_statement_gets_around_the_look_at_attributes(hidden: str) -> None:
    declared = frozenset({"_own"})
    held = guard.scripted_class("Held", (guard.Scripted, nn.Module), {}, declared)
    names = {**guard.BUILTINS, **guard.GUARDS, "torch": guard.namespaces()["torch"]}
    with pytest.raises((NotSupportedError, AttributeError), match=r"not supported in scripts|cannot read"):
        compiled(parsed(f"def f(self, x):\n    {hidden}\n    return 0", "f"), "f", names, declared)(
            held(), torch.zeros(2)
        )
    assert not hasattr(torch.Tensor, "evil")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("escape", ESCAPES)
def test_no_script_reaches_beyond_tensors(escape: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {**guard.BUILTINS, **guard.GUARDS, "torch": guard.namespaces()["torch"], "math": guard.namespaces()["math"],
             "F": guard.namespaces()["torch.nn.functional"]}  # fmt: skip
    module = torch.jit.load(saved(torch.jit.script(Block(2))))
    with pytest.raises((NotSupportedError, AttributeError, NameError, ValueError)):
        compiled(parsed(f"def f(self, x):\n    return {escape}", "f"), "f", names)(module, torch.zeros(2))
    assert not [*tmp_path.iterdir()]


def test_no_function_that_scripts_have_takes_a_file() -> None:
    taken = []
    for space in guard.namespaces().values():
        for name, member in space.members.items():
            try:
                given = inspect.signature(member).parameters
            except (TypeError, ValueError):  # no function, or one of C's
                continue
            taken += [f"{space.name}.{name}" for p in given if re.search("file|path|folder|^dir|url", p)]
    assert not taken


def test_damaged_files_are_errors_that_say_so(tmp_path: Any) -> None:
    data = bytearray(saved(torch.jit.script(Block(2))).getvalue())
    chosen = random.Random(0)
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(chosen.randint(1, 4)):
            bad[chosen.randrange(len(bad))] = chosen.randrange(256)
        bad = bad[: chosen.randrange(len(bad))] if chosen.random() < 0.2 else bad
        if bad == data:
            continue
        try:
            torch.jit.load(io.BytesIO(bytes(bad)))
        except (ProgramError, ValueError) as error:
            assert "program" in str(error) or "zip" in str(error) or "damaged" in str(error)
        except Exception as error:
            assert "zip" in str(error), error


def test_hostile_descriptions_are_refused(tmp_path: Any) -> None:
    from tracecomp.compiled.program_files import container
    from tracecomp_runtime import tensors

    base = {"kind": "script", "functions": [], "classes": [], "tensors": [], "modules": [], "root": ["module", 0]}
    module = {"class": "Module", "attributes": {}, "parameters": {}, "buffers": {}, "children": {}}
    cases: list[dict[str, Any]] = [
        {"modules": [{**module, "class": "Module.__init__"}]}, {"modules": [{**module, "class": "functional"}]},
        {"modules": [{**module, "attributes": {"_parameters": 3}}]}, {"root": ["module", 7]},
        {"modules": [{**module, "attributes": {"x": ["of", "torch", "__class__"]}}]}, {"root": ["function", 0]},
        {"modules": [{**module, "attributes": {"x": ["space", "os"]}}]},
        {"modules": [{**module, "children": {"a": 9}}]},
        {"modules": [{**module, "attributes": {"x": ["typing", "get_type_hints"]}}]},
        {"root": ["function", 0], "functions": [{"name": "f", "text": "import os", "names": {}, "defaults": [],
                                                 "named_defaults": {}}]},
    ]  # fmt: skip
    for k, case in enumerate(cases):
        path = tmp_path / f"{k}.pt"
        container.write(path, {**base, **case}, {"tensors": tensors.to_bytes({})})
        with pytest.raises(ProgramError, match="damaged"):
            torch.jit.load(path)


@pytest.mark.parametrize("way", ["attributes", "methods", "properties", "children"])
def test_no_name_of_a_file_says_what_its_scripts_may_read(way: str, tmp_path: Any) -> None:
    """A file that called an attribute of its module ``declared`` could read ``save``, and write where it wanted."""
    from tracecomp.compiled.program_files import container
    from tracecomp_runtime import tensors

    def function(text: str) -> dict[str, Any]:
        return {"name": "f", "text": text, "names": {}, "defaults": [], "named_defaults": {}}

    target = tmp_path / "written"
    mine = {"attributes": ["list", ["save"]], "methods": [1, True], "properties": [1, None], "children": 1}[way]
    forward = function(f"def forward(self, x):\n    self.save({str(target)!r})\n    return x")
    empty: dict[str, Any] = {"attributes": {}, "parameters": {}, "buffers": {}, "children": {}}
    shape = {"name": "M", "base": "Module", "methods": {"forward": [0, False]}, "properties": {}}
    module = {"class": 0, **empty}
    for name in sorted({*dir(guard.Scripted), "declared"} - {*dir(object)} - {"__weakref__", "__dict__"}):
        if not name.startswith("__"):
            owner = shape if way in shape else module
            owner[way] = {**owner[way], name: mine}  # type: ignore[dict-item]
    header = {
        "kind": "script", "functions": [forward, function("def declared(self):\n    return ['save']")],
        "classes": [shape], "tensors": [], "modules": [module, {"class": "Identity", **empty}], "root": ["module", 0],
    }  # fmt: skip
    container.write(tmp_path / "evil.pt", header, {"tensors": tensors.to_bytes({})})
    with pytest.raises(RuntimeError, match="cannot read 'save'"):
        torch.jit.load(tmp_path / "evil.pt")(torch.ones(2))
    assert not target.exists()


def test_extra_files_and_what_jit_save_takes(tmp_path: Any) -> None:
    file = tmp_path / "f.pt"
    torch.jit.save(torch.jit.script(helper), file, _extra_files={"note": "ten classes"})
    extra: dict[str, Any] = {"note": ""}
    torch.jit.load(file, _extra_files=extra)
    assert extra["note"] == b"ten classes"
    with pytest.raises(ValueError, match=r"torch\.jit\.script"):
        torch.jit.save(nn.Linear(2, 2), file)


class Asserting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert(x.shape[-1] == 3, "wrong size")
        return x


def raising(x: torch.Tensor, n: int) -> torch.Tensor:
    if n == 0:
        raise ValueError("said by the program")
    if n == 1:
        assert x.shape[0] == 9, "asserted"
    if n == 2:
        return x[7]
    if n == 3:
        return torch.cat([x, x], 9)
    if n == 4:
        return x * [1, 2][n]
    if n == 5:
        return x * (1 // (n - 5))
    return x


@pytest.mark.parametrize("made", [torch.jit.script, lambda fn: torch.jit.trace(fn, (torch.ones(3), 9))])
def test_errors_have_the_kinds_of_scripts(made: Any) -> None:
    script = made(raising)
    for n in range(6):
        kind: type[Exception] = torch.jit.Error if n < 2 else RuntimeError
        with pytest.raises(kind, match=r"Traceback of TorchScript(.|\n)*raising(.|\n)*HERE") as caught:
            script(torch.ones(3), n)
        assert type(caught.value) is kind
    assert not issubclass(torch.jit.Error, RuntimeError)
    with pytest.raises(RuntimeError, match="missing"):
        script(torch.ones(3))
    with pytest.raises(torch.jit.Error, match="AssertionError: wrong size"):
        torch.jit.script(Asserting())(torch.ones(2))


@pytest.mark.slow
def test_a_recording_sees_its_own_errors_through_a_script() -> None:
    script = torch.jit.script(raising)
    compiled = torch.compile(lambda x, n: script(x, n) + 1)
    for _ in range(3):
        assert same(compiled(torch.ones(3), 9), torch.ones(3) + 1)
        with pytest.raises(RuntimeError, match="TorchScript"):
            compiled(torch.ones(3), 2)
