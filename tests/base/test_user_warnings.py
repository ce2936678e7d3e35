"""Every warning of the package names the user's line, then says cause, cost and remedy, once for each line."""

from __future__ import annotations

import ast
import heapq
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.base import config
from tracecomp.base.errors import at_user_line
from tracecomp.base.user_warnings import silenced, warn_user
from tracecomp.codegen.text import native
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.compiled import stance
from tracecomp.eager_kernels import background
from tracecomp.func import stateless
from tracecomp.passes.graph import algebra
from tracecomp.record import object_reads
from tracecomp.runtime import compiler, object_cache, threads
from tracecomp.runtime.compiling import Compiling

ROOT = Path(__file__).parents[2]
PACKAGES = ("tracecomp", "tracecomp_runtime")
MECHANISM = "tracecomp/base/user_warnings.py"
FORM = re.compile(r"\S.*[^.]\. [A-Z].*[^.]\. [A-Z].*([^.]\.|#[a-z-]+)", re.DOTALL)
"""Three sentences at least; the last ends with a full stop or a link."""
Run = Callable[[], object]


# ---- every call of the package


class Call(NamedTuple):
    """A call that a module has: the last part of the function's name, and how many texts it gets in order."""

    path: str
    line: int
    name: str
    texts: int


@cache
def package_calls() -> tuple[Call, ...]:
    return tuple(
        Call(path.relative_to(ROOT).as_posix(), node.lineno, name, sum(not is_category(a) for a in node.args))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for name in [getattr(node.func, "attr", getattr(node.func, "id", ""))]
        if "warn" in name.lower()
    )


def is_category(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Name) and argument.id.endswith("Warning")


def test_one_module_calls_pythons_warnings() -> None:
    names = {"warn", "warn_explicit", "showwarning", "PyErr_WarnEx", "PyErr_WarnExplicit"}
    assert {call.path for call in package_calls() if call.name in names} == {MECHANISM}
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert not [path for path in sources if "from warnings import" in path.read_text(encoding="utf-8")]


def test_every_own_warning_has_three_sentences() -> None:
    sites = [call for call in package_calls() if call.name == "warn_user"]
    assert len(sites) >= 8
    assert not [call for call in sites if call.texts != 3]


# ---- the main ones: each is made by a function of one line


def text_of(x: Any) -> Any:
    """A program that is not one graph."""
    return f"{(x * 2).sum():.1f}"


def is_interpreted(fn: Callable[..., object], **options: Any) -> Any:
    return torch.compile(fn, backend="interpret", **options)


def broken(patch: pytest.MonkeyPatch) -> Run:
    compiled = [is_interpreted(text_of) for _ in range(2)]
    return lambda: compiled.pop()(torch.ones(2))


def at_recompile_limit(patch: pytest.MonkeyPatch) -> Run:
    patch.setattr(stance.current, "limit", 1)
    compiled = is_interpreted(torch.sin, dynamic=False)
    return lambda: [compiled(torch.ones(n)) for n in (1, 2, 3)]


def needing_numbers(patch: pytest.MonkeyPatch) -> Run:
    compiled = is_interpreted(lambda x: x * round(x.sum().item(), 3), fullgraph=True)
    return lambda: [compiled(torch.ones(2) * n) for n in range(12)]


def verified_wrong(patch: pytest.MonkeyPatch) -> Run:
    patch.setattr(algebra, "is_right_identity", lambda op, value, dtype: op.name == "mul" and value in (1, 7))
    compiled = torch.compile(lambda x: x * 7.0, verify=2, mismatch="warn")
    return lambda: [compiled(torch.ones(3)) for _ in range(4)]


def failing_recorder(patch: pytest.MonkeyPatch) -> Run:
    patch.setattr(object_reads, "is_key", None)
    table = {"scale": 2.0}
    return lambda: is_interpreted(lambda x: x * table["scale"])(torch.ones(2))


def without_cache(patch: pytest.MonkeyPatch) -> Run:
    patch.setattr(object_cache, "_shown", set())
    return lambda: object_cache.read("key")


def of_open_size(patch: pytest.MonkeyPatch) -> Run:
    class Fixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.reshape(5) * 2

    shapes = ({0: torch.export.Dim("b")},)
    return lambda: torch.export.draft_export(Fixed(), (torch.ones(5),), dynamic_shapes=shapes)


OWN: dict[str, Callable[[pytest.MonkeyPatch], Run]] = {
    "a graph break": broken,
    "the recompile limit": at_recompile_limit,
    "a recording for each number": needing_numbers,
    "a wrong result": verified_wrong,
    "an error of the recorder": failing_recorder,
    "no cache": without_cache,
    "draft_export": of_open_size,
    "set_logs": lambda patch: lambda: torch._logging.set_logs(graph_breaks=True),
}
X = torch.ones(3)
PYTORCH: dict[str, tuple[type[Warning], Run]] = {
    "tensor of a tensor": (UserWarning, lambda: torch.tensor(X)),
    "T of three dimensions": (UserWarning, lambda: X.reshape(1, 1, -1).T),
    "byte mask": (UserWarning, lambda: X[torch.ones(3, dtype=torch.uint8)]),
    "list of slices": (UserWarning, lambda: X.reshape(3, 1)[[slice(1), slice(1)]]),
    "out resized": (UserWarning, lambda: torch.add(X, X, out=torch.ones(1))),
    "grad of a result": (UserWarning, lambda: (torch.ones(1, requires_grad=True) * 2).grad),
    "sizes of a loss": (UserWarning, lambda: nn.functional.mse_loss(X, X.reshape(3, 1))),
    "size_average": (UserWarning, lambda: nn.functional.mse_loss(X, X, size_average=True)),
    "size_average of a module": (UserWarning, lambda: nn.MSELoss(size_average=True)),
    "initializer": (UserWarning, lambda: nn.init.kaiming_normal_(torch.ones(0, 1))),
    "older initializer": (FutureWarning, lambda: nn.init.normal(torch.ones(2))),
    "dropout of one layer": (UserWarning, lambda: nn.LSTM(2, 2, dropout=0.5)),
    "older hook": (FutureWarning, lambda: with_older_hook()(torch.ones(3, requires_grad=True))),
    "clip_grad_norm": (FutureWarning, lambda: nn.utils.clip_grad_norm([nn.Parameter(X)], 1.0)),
    "autocast": (UserWarning, lambda: torch.autocast("cuda")),
    "scaler": (UserWarning, lambda: torch.amp.GradScaler("cuda")),
    "duplicates": (UserWarning, lambda: torch.optim.SGD([nn.Parameter(X)] * 2, 0.1)),
    "schedule before a step": (UserWarning, lambda: new_schedule().step()),
    "no window": (UserWarning, lambda: torch.stft(torch.ones(16), 8, return_complex=True)),
    "empty split": (UserWarning, lambda: torch.utils.data.random_split([1, 2], [1.0, 0.0])),
    "too many workers": (UserWarning, lambda: torch.utils.data.DataLoader([1], num_workers=4096)),
    "functional_call": (FutureWarning, lambda: stateless.functional_call(nn.ReLU(), {}, (X,))),
}


def with_older_hook() -> Any:
    module = nn.Sequential(nn.ReLU(), nn.Linear(3, 3))
    module.register_backward_hook(lambda *args: None)
    return module


def new_schedule() -> Any:
    return torch.optim.lr_scheduler.ConstantLR(torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1))


def shown(run: Callable[..., object], *args: object) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        run(*args)
    return seen


@pytest.mark.parametrize("kind", OWN)
def test_own_warnings_have_the_form_and_name_the_users_line_once(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with config.override(cache_dir=str(tmp_path / "file" / "in" if kind == "no cache" else tmp_path)):
        run: Any = OWN[kind](monkeypatch)
        seen = shown(lambda: [run(), run()])
    line = run.__code__.co_firstlineno
    assert [w.filename for w in seen] == [__file__] * len(seen)
    about_it = [w for w in seen if w.lineno == line]
    assert len(about_it) == (2 if kind == "an error of the recorder" else 1), [str(w.message) for w in seen]
    for w in seen:
        assert FORM.fullmatch(str(w.message)), str(w.message)


@pytest.mark.parametrize("kind", PYTORCH)
def test_warnings_of_pytorch_name_the_users_line_once(kind: str) -> None:
    category, run = PYTORCH[kind]
    seen = shown(lambda: [run(), run()])
    line = run.__code__.co_firstlineno
    assert [(w.category, w.filename, w.lineno) for w in seen] == [(category, __file__, line)]


# ---- places without a line of the program on the stack


def line_of(code: str) -> tuple[str, int]:
    """Return where ``code`` is in this file."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if text.strip().startswith(code))
    return __file__, line


def in_a_thread(work: Run) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


def place(seen: list[warnings.WarningMessage]) -> tuple[str, int]:
    (one,) = seen
    return one.filename, one.lineno


slow = partial(warn_user, "it is slow", "Calls take longer", "Do something else")


def of_package(code: str, **names: object) -> dict[str, Any]:
    """Run ``code`` as generated code of a module of the package."""
    space = {**names, "__file__": str(ROOT / "tracecomp" / "fft.py")}
    exec(code, space)
    return space


def test_a_thread_of_the_user_names_the_compiled_functions_definition() -> None:
    call = partial(is_interpreted(text_of), torch.ones(2))
    assert place(shown(in_a_thread, call)) == line_of("def text_of")
    with ThreadPoolExecutor(1) as pool:
        call = partial(is_interpreted(text_of), torch.ones(2))
        assert place(shown(lambda: pool.submit(call).result())) == line_of("def text_of")
    module = nn.Module()
    vars(module)["forward"] = text_of
    call = partial(is_interpreted(module), torch.ones(2))
    assert place(shown(in_a_thread, call)) == line_of("def text_of")


def test_a_thread_of_the_package_names_the_line_that_began_its_work() -> None:
    def begin_in_background() -> None:
        background.begin("work", slow)
        background.finish()

    assert place(shown(begin_in_background)) == line_of('background.begin("work", slow)')


def test_a_thread_that_compiles_names_the_line_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    made = of_package("def object_code(text, target):\n    return warn()", warn=slow)["object_code"]
    monkeypatch.setattr(compiler, "object_code", made)
    monkeypatch.setattr(threads, "get_num_threads", lambda: 2)

    target = native.host_target()

    def compile_two_modules() -> None:
        with Compiling(target) as compiling:
            compiling.begin(ModuleText(target, (), {}))
            compiling.finish(ModuleText(target, (), {}))

    assert place(shown(compile_two_modules)) == line_of("compiling.begin(")


def test_functions_in_c_and_pythons_library_are_passed_over() -> None:
    def in_c() -> None:
        list(map(torch.tensor, [X]))

    def in_python() -> None:
        heapq.nlargest(1, [X], key=torch.tensor)

    assert place(shown(in_c)) == line_of("list(map(torch.tensor")
    assert place(shown(in_python)) == line_of("heapq.nlargest(1")


def test_methods_of_the_packages_dataclasses_are_passed_over() -> None:
    init = of_package("def init():\n    return at_user_line('wrong')", at_user_line=at_user_line)["init"]
    assert init() == f"wrong (at {__file__}:{sys._getframe().f_lineno})"


AT_EXIT = """
import atexit
import tracecomp as torch
def step(x):
    return f"{(x * 2).sum():.1f}"
atexit.register(torch.compile(step, backend="interpret"), torch.ones(2))
atexit.register(torch.tensor, torch.ones(2))
"""


def test_the_end_of_the_interpreter_names_a_line_of_the_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(AT_EXIT)
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT, check=True)
    assert f"{script}:4: UserWarning: graph break in step" in ran.stderr
    assert f"{script}:1: UserWarning: To copy construct" in ran.stderr
    assert "sys:1" not in ran.stderr


def test_a_line_shows_one_warning_about_a_thing_until_filters_change() -> None:
    def warn(value: float, about: str | None) -> None:
        warn_user(f"it took {value} s", "Calls take longer", "Do something else", about=about)

    assert len(shown(lambda: [warn(n, "time") for n in range(3)])) == 1
    assert len(shown(lambda: [warn(n, str(n)) for n in range(3)])) == 3
    assert len(shown(lambda: [warn(n, None) for n in (1, 1, 2)])) == 2
    with pytest.warns(UserWarning, match=r"it took 2 s. Calls take longer. Do something else.$"):
        warn(2, "time")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="it took 3 s"):
            warn(3, "time")


def test_a_silent_block_keeps_what_lines_have_shown() -> None:
    def warn() -> None:
        for _ in range(3):
            slow()
            with silenced():
                slow()
                warnings.warn("unheard", UserWarning, stacklevel=1)

    before = [*warnings.filters]
    assert len(shown(warn)) == 1
    assert [*warnings.filters] == before
