"""Recordings with one stale value each, made by disabling the guard, input or effect that would keep it current.

A program is a module with ``f(x, ...)``, ``args()`` and ``change()``. Every plant is a change that a correct recording
notices.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import tracecomp as torch
from tracecomp.base.errors import WrongResult
from tracecomp.record import opaque_calls
from tracecomp.record.binding import Binding
from tracecomp.record.guards.reads import Read
from tracecomp.record.python_state import PythonState
from tracecomp.record.pytree import flatten_call


class Plant(NamedTuple):
    """A stale value: what goes stale, how, and the program."""

    title: str
    how: Callable[[Any, Any], None] | None
    setup: str
    body: str
    change: str = "pass"
    args: str = "()"


def unguarded(compiled: Any, args: Any) -> None:
    """Disable the single guards that notice a change since the recording."""
    _, leaves = flatten_call(args, {})
    for entry in compiled.entries:
        guards = entry.recording.guards
        for root in guards.reads.roots():
            _disable(root, root.value)
        guards.modules.watch.note(0)  # so that it compares
        guards.list = [g for g in guards.list if g.check(leaves) is None]
        entry.fast = None
    compiled._relink()


def _disable(read: Read, owner: Any) -> None:
    """Drop the reads below ``read`` that no longer fit."""
    now = read.fetch(owner)
    for key, child in list(read.children.items()):
        if not child.fits(child.fetch(now)):
            del read.children[key]
        else:
            _disable(child, now)


def copied(compiled: Any, args: Any) -> None:
    """Let recordings read copies of captured tensors, as they are now, before the change."""
    for entry in compiled.entries:
        entry.recording.inputs[:] = [
            Binding("state", b.ref.detach().clone()) if b.kind == "state" else b for b in entry.recording.inputs
        ]
        entry.recording.updates.clear()
        entry.plan = entry.fast = None
    compiled._relink()


def without(name: str) -> Callable[[Any, Any], None]:
    """Drop the changes of kind ``name`` that recordings make."""

    def drop(compiled: Any, args: Any) -> None:
        for entry in compiled.entries:
            assert getattr(entry.recording, name)
            getattr(entry.recording, name).clear()
            entry.plan = entry.fast = None
        compiled._relink()

    return drop


@contextlib.contextmanager
def frozen_reads() -> Iterator[None]:
    """Record clocks, random numbers, files and numbers of optimizers as constants."""
    with (
        mock.patch.object(opaque_calls, "outside", lambda *args, **kwargs: None),
        mock.patch.object(PythonState, "host", lambda self, owner, key, value: value),
    ):
        yield


def found(plant: Plant, folder: Path) -> WrongResult | None:
    """The report of a plant by ``verify``, or None."""
    lines = "\n    ".join(plant.body.split("\n"))
    name = "frozen_program"
    source = f"{plant.setup}\ndef f(x, *given):\n    {lines}\n"
    path = folder / f"{name}.py"
    path.write_text(f"import tracecomp as torch\nfrom tracecomp import nn\n{source}")
    linecache.checkcache(str(path))
    module: Any = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    space = vars(module)
    try:
        exec(compile(path.read_text(), str(path), "exec"), space)
        run = torch.compile(module.f, verify=1)
        run.quiet = True
        with frozen_reads() if plant.how is None else contextlib.nullcontext():
            return _report(plant, run, space)
    except WrongResult as wrong:
        return wrong
    finally:
        exec(space.get("undo", ""), space)
        del sys.modules[name]


def _report(plant: Plant, run: Any, space: dict[str, Any]) -> None:
    def args() -> Any:
        return (torch.arange(3.0) + 1, *eval(plant.args, space))

    for _ in range(3):
        run(*args())
    if plant.how is copied:
        copied(run, args())
    exec(plant.change, space)
    if plant.how is not None and plant.how is not copied:
        plant.how(run, args())
    for _ in range(2):
        run(*args())


_BOX = "class Box: pass\nb = Box(); b.k = 2.0"
_MODEL = "m = nn.Linear(3, 3); m.register_buffer('k', torch.ones(3))"
_STEP = (
    "w = torch.ones(3, requires_grad=True)\n{}\n"
    "def step(x):\n    o.zero_grad()\n    (w * x).sum().backward()\n    o.step()\n    return w.detach() * 1"
)

PLANTS = [
    # ---- names
    Plant("global number", unguarded, "k = 2.0", "return x * k", "k = 3.0"),
    Plant("global flag", unguarded, "k = True", "return x * 2 if k else x", "k = False"),
    Plant("global text", unguarded, "k = 'a'", "return x * len(k)", "k = 'abc'"),
    Plant("global None", unguarded, "k = None", "return x if k is None else x * k", "k = 3.0"),
    Plant("global function", unguarded, "def g(x): return x * 2", "return g(x)",
          "old = g\ndef g(x): return x * 3"),
    Plant("global of other code", unguarded, "k = 2.0\ndef g(x): return x * k", "return g(x)", "k = 3.0"),
    Plant("closure variable", unguarded, "def make():\n    k = 2.0\n    def g(x): return x * k\n    def put(v):\n"
          "        nonlocal k\n        k = v\n    return g, put\ng, put = make()", "return g(x)", "put(3.0)"),
    Plant("default argument", unguarded, "def g(x, k=2.0): return x * k", "return g(x)", "g.__defaults__ = (3.0,)"),
    Plant("keyword default", unguarded, "def g(x, *, k=2.0): return x * k", "return g(x)",
          "g.__kwdefaults__ = {'k': 3.0}"),
    Plant("code of a function", unguarded, "def g(x): return x * 2\ndef h(x): return x * 3", "return g(x)",
          "g.__code__ = h.__code__"),
    Plant("function of a library", unguarded, "import math\nold = math.floor\nundo = 'math.floor = old'",
          "return x * math.floor(2.5)", "math.floor = math.ceil"),
    # ---- objects
    Plant("attribute", unguarded, _BOX, "return x * b.k", "b.k = 3.0"),
    Plant("attribute added", unguarded, _BOX, "return x * getattr(b, 'n', 1.0)", "b.n = 3.0"),
    Plant("attribute of an attribute", unguarded, f"{_BOX}\nb.c = Box(); b.c.k = 2.0", "return x * b.c.k",
          "b.c.k = 3.0"),
    Plant("object replaced", unguarded, _BOX, "return x * b.k", "b = Box(); b.k = 3.0"),
    Plant("class attribute", unguarded, "class Box:\n    k = 2.0\nb = Box()", "return x * b.k", "Box.k = 3.0"),
    Plant("method", unguarded, "class Box:\n    def g(s, x): return x * 2\nb = Box()", "return b.g(x)",
          "Box.g = lambda s, x: x * 3"),
    Plant("slot", unguarded, "class Box: __slots__ = 'k'\nb = Box(); b.k = 2.0", "return x * b.k", "b.k = 3.0"),
    Plant("property", unguarded, "class Box:\n    @property\n    def k(s): return s._k\nb = Box(); b._k = 2.0",
          "return x * b.k", "b._k = 3.0"),
    Plant("enum member", unguarded, "import enum\nclass E(enum.Enum):\n    A = 2.0\n    B = 3.0\nk = E.A",
          "return x * k.value", "k = E.B"),
    Plant("namespace", unguarded, "from types import SimpleNamespace\nb = SimpleNamespace(k=2.0)", "return x * b.k",
          "b.k = 3.0"),
    # ---- containers
    Plant("list item", unguarded, "L = [2.0]", "return x * L[0]", "L[0] = 3.0"),
    Plant("list length", unguarded, "L = [2.0]", "return x * len(L)", "L.append(3.0)"),
    Plant("list contents", unguarded, "L = [2.0]", "return x * sum(L)", "L.append(3.0)"),
    Plant("nested list", unguarded, "L = [[2.0]]", "return x * L[0][0]", "L[0][0] = 3.0"),
    Plant("dictionary item", unguarded, "D = {'k': 2.0}", "return x * D['k']", "D['k'] = 3.0"),
    Plant("dictionary key", unguarded, "D = {}", "return x * 2 if 'k' in D else x", "D['k'] = 3.0"),
    Plant("dictionary order", unguarded, "D = {'a': 2.0, 'b': 3.0}", "return x * list(D.values())[0]",
          "D['a'] = D.pop('a')"),
    Plant("set", unguarded, "S = {1}", "return x * 2 if 2 in S else x", "S.add(2)"),
    Plant("deque", unguarded, "from collections import deque\nL = deque([2.0])", "return x * L[0]", "L[0] = 3.0"),
    Plant("named tuple", unguarded, "from collections import namedtuple\nP = namedtuple('P', 'k')\np = P(2.0)",
          "return x * p.k", "p = P(3.0)"),
    Plant("array", unguarded, "import numpy as np\na = np.ones(2)", "return x * float(a.sum())", "a[0] = 3.0"),
    Plant("environment variable", unguarded, "import os\nos.environ['FROZEN'] = '2'\n"
          "undo = 'os.environ.pop(\"FROZEN\")'", "return x * float(os.environ['FROZEN'])",
          "os.environ['FROZEN'] = '3'"),
    # ---- arguments
    Plant("number among the arguments", unguarded, "k = 2.0", "return x * given[0]", "k = 3.0", "(k,)"),
    Plant("text among the arguments", unguarded, "k = 'a'", "return x * len(given[0])", "k = 'abc'", "(k,)"),
    Plant("flag among the arguments", unguarded, "k = True", "return x * 2 if given[0] else x", "k = False", "(k,)"),
    Plant("attribute of an argument", unguarded, _BOX, "return x * given[0].k", "b.k = 3.0", "(b,)"),
    Plant("object among the arguments", unguarded, _BOX, "return x * given[0].k", "old = b; b = Box(); b.k = 3.0",
          "(b,)"),
    Plant("list among the arguments", unguarded, "k = 2.0", "return x * given[0][0]", "k = 3.0", "([k],)"),
    Plant("array among the arguments", unguarded, "import numpy as np\na = np.ones(2)",
          "return x * float(given[0].sum())", "a[0] = 3.0", "(a,)"),
    # ---- modules, tensors, modes
    Plant("training flag", unguarded, "m = nn.Dropout(0.5)", "return m(x)", "m.eval()"),
    Plant("option of a module", unguarded, "m = nn.LeakyReLU(0.5)", "return m(-x)", "m.negative_slope = 0.25"),
    Plant("hook", unguarded, _MODEL, "return m(x)", "m.register_forward_hook(lambda m, i, o: o * 2)"),
    Plant("submodule", unguarded, "m = nn.Sequential(nn.ReLU())", "return m(-x)", "m[0] = nn.Tanh()"),
    Plant("parameter replaced", unguarded, _MODEL, "return m(x)", "m.weight = nn.Parameter(torch.ones(3, 3))"),
    Plant("gradient mode", unguarded, "w = torch.ones(3, requires_grad=True)", "return x * w",
          "torch.set_grad_enabled(False); undo = 'torch.set_grad_enabled(True)'"),
    Plant("default dtype", unguarded, "", "return x * torch.ones(3)",
          "torch.set_default_dtype(torch.float64); undo = 'torch.set_default_dtype(torch.float32)'"),
    Plant("requires_grad", unguarded, "w = torch.ones(3)", "return x * w", "w.requires_grad_()"),
    Plant("attribute of a tensor", unguarded, "w = torch.ones(3); w.k = 2.0", "return x * w.k", "w.k = 3.0"),
    Plant("buffer", copied, _MODEL, "return x * m.k", "m.k.fill_(3.0)"),
    Plant("parameter", copied, _MODEL, "return m(x)", "with torch.no_grad(): m.weight.fill_(3.0)"),
    Plant("random generator", copied, "torch.manual_seed(0)", "return x * torch.rand(3)"),
    # ---- optimizers
    Plant("learning rate", None, _STEP.format("o = torch.optim.SGD([w], lr=0.5)"), "return step(x)",
          "o.param_groups[0]['lr'] = 0.25"),
    Plant("momentum", None, _STEP.format("o = torch.optim.SGD([w], lr=0.5, momentum=0.5)"), "return step(x)",
          "o.param_groups[0]['momentum'] = 0.25"),
    Plant("state of an optimizer", without("updates"), _STEP.format("o = torch.optim.Adam([w])"), "return step(x)"),
    # ---- the world
    Plant("clock", None, "import time", "return x * time.perf_counter()"),
    Plant("time of day", None, "import time", "return [x, time.time()]"),
    Plant("random number", None, "import random", "return x * random.random()"),
    Plant("bytes of the system", None, "import os", "return x * os.urandom(4)[0]"),
    Plant("file", None, "from pathlib import Path\npath = Path(__file__).with_name('frozen.txt')\n"
          "path.write_text('2')", "with open(path) as file:\n    return x * float(file.read())",
          "path.write_text('3')"),
    # ---- effects
    Plant("list appended to", without("effects"), "L = []", "L.append(1)\nreturn x * 2"),
    Plant("counter", without("effects"), "class Box: n = 0\nb = Box()", "b.m = 1.0\nreturn x * 2", "b.m = 0.0"),
    Plant("buffer written", without("updates"), "k = torch.zeros(3)", "k.add_(1)\nreturn x * 2"),
    Plant("gradient", without("grads"), "w = torch.ones(3, requires_grad=True)",
          "w.grad = None\n(w * x).sum().backward()\nreturn x * 2", "w.grad = None"),
]  # fmt: skip
