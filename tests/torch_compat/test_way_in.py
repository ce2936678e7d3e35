"""tracecomp in the place of torch: by ``as_torch``, by ``run``, by an installed distribution."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import tracecomp
from tracecomp.torch_compat import command, distribution
from tracecomp.torch_compat.activate import SITE
from tracecomp.torch_compat.names import TORCH_VERSION, table

pytestmark = pytest.mark.peers  # tracecomp takes the place of an installed torch, too
ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").is_file())


def python(*arguments: str, path: tuple[Path, ...] = (), **options: str) -> str:
    """Return the output of a new interpreter."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))} | options
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def as_torch(code: str) -> str:
    return python("-c", "import tracecomp; tracecomp.as_torch()\n" + code)


def test_torch_is_tracecomp_in_every_module_and_keeps_its_own_version() -> None:
    said = as_torch(
        "import torch, torch.nn.functional as F\n"
        "from torch.nn.modules.conv import Conv2d\n"
        "assert torch.nn is tracecomp.nn and F is tracecomp.nn.functional and Conv2d is tracecomp.nn.Conv2d\n"
        "assert torch.Tensor is tracecomp.Tensor and torch.__name__ == torch.__spec__.name == 'torch'\n"
        "print(torch.__version__, torch.__version__ >= (2, 9), tracecomp.__version__)"
    )
    assert said == f"{TORCH_VERSION} True {tracecomp.__version__}"


def test_what_is_set_on_torch_is_set_on_tracecomp() -> None:
    said = as_torch("import torch; torch.m = 3; print(tracecomp.m); del torch.m; print(hasattr(tracecomp, 'm'))")
    assert said.split() == ["3", "False"]


def test_metadata_and_specs_tell_that_torch_is_there() -> None:
    said = as_torch(
        "import importlib.metadata as m, importlib.util as u\n"
        "print(m.version('torch'), u.find_spec('torch') is not None, u.find_spec('torch.nn.functional') is not None,\n"
        "      u.find_spec('torch.distributed.rpc'), u.find_spec('torch.no_such_module'))"
    )
    assert said == f"{TORCH_VERSION} True True None None"


def test_what_only_torch_has_is_imported_and_fails_in_words_when_used() -> None:
    said = as_torch(
        "import torch\n"
        "from torch.distributed.fsdp.wrap import CustomPolicy\n"
        "class Mine(CustomPolicy): pass\n"
        "def use(x: torch.distributed.tensor.DTensor | None): return isinstance(x, CustomPolicy)\n"
        "print(use(None), hasattr(torch.distributed.fsdp.wrap, 'CustomPolicy'))\n"
        "for make in (CustomPolicy, Mine):\n"
        "    try: make(torch.nn.Linear(2, 2))\n"
        "    except NotImplementedError as error: print(error)"
    )
    lines = said.splitlines()
    assert lines[0] == "False False" and len(lines) == 3
    assert all("torch.distributed.fsdp.wrap.CustomPolicy is part of PyTorch" in line for line in lines[1:])


def test_what_torch_does_not_have_either_is_an_import_error() -> None:
    said = as_torch(
        "import torch\n"
        "for line in ('import torch._six', 'from torch.nn import Nothing', 'from torch import ir'):\n"
        "    try: exec(line)\n"
        "    except ImportError: print('refused', line)\n"
        "print(hasattr(torch, 'ir'), hasattr(torch, 'record'), 'record' in dir(torch))"
    )
    assert said.count("refused") == 3 and said.endswith("False False False")


def test_a_missing_name_read_in_a_function_is_an_attribute_error_that_says_whose_it_is() -> None:
    said = as_torch(
        "import torch\n"
        "def read(): return torch.cudnn_convolution\n"
        "try: read()\n"
        "except AttributeError as error: print(error)"
    )
    assert said.startswith("torch.cudnn_convolution is part of PyTorch") and "tracecomp" in said


def test_the_context_manager_ends_it() -> None:
    said = python(
        "-c",
        "import sys, os, tracecomp\nbefore = list(sys.path), os.environ['PYTHONPATH']\n"
        "with tracecomp.as_torch() as torch:\n    import torch.nn as nn\n    assert nn is tracecomp.nn\n"
        "after = list(sys.path), os.environ['PYTHONPATH']\n"
        "print('torch' in sys.modules, 'torch.nn' in sys.modules, after == before)",
    )
    assert said == "False False True"


def test_a_torch_that_is_imported_already_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    code = "import torch, tracecomp\ntry: tracecomp.as_torch()\nexcept RuntimeError as error: print(error)"
    assert "imported already" in python("-c", code, path=(tmp_path,))


def test_children_and_spawned_workers_and_pickles_agree(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pickle, subprocess, sys\n"
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def double(batch):\n"
        "    import torch\n"
        "    return torch.stack([x for x, in batch]) * 2\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:])\n"
        "    child = 'import torch; print(torch.__version__)'\n"
        "    print(subprocess.run([sys.executable, '-c', child], capture_output=True, text=True).stdout.strip())\n"
        "    data = TensorDataset(torch.arange(4.0))\n"
        "    for method in ('fork', 'spawn'):\n"
        "        loader = DataLoader(data, 2, collate_fn=double, num_workers=1, multiprocessing_context=method)\n"
        "        print([b.tolist() for b in loader])\n"
        "    print(pickle.loads(pickle.dumps(torch.nn.Linear(2, 1))))\n"
    )
    lines = python("-m", "tracecomp", "run", str(script), "-m", "--flag").splitlines()
    assert lines[0] == "['-m', '--flag']" and lines[1] == TORCH_VERSION
    assert lines[2] == lines[3] == "[[0.0, 2.0], [4.0, 6.0]]" and lines[4].startswith("Linear(in_features=2")


def test_a_module_is_run_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys, torch; print(__name__, sys.argv[1:], torch.__name__)")
    assert python("-m", "tracecomp", "run", "-m", "program", "a", path=(tmp_path,)) == "__main__ ['a'] torch"


def test_install_makes_torch_importable_and_uninstall_leaves_nothing(tmp_path: Path) -> None:
    assert distribution.status(tmp_path) == f"no torch in {tmp_path}"
    said = distribution.install(tmp_path)
    assert said.startswith(distribution.status(tmp_path)) and "is tracecomp" in said and "constraints.txt" in said
    code = "import torch, importlib.metadata as m; print(torch.nn.Linear, m.version('torch'))"
    assert python("-c", code, path=(tmp_path,)) == f"<class 'torch.nn.modules.linear.Linear'> {TORCH_VERSION}"
    distribution.install(tmp_path)
    distribution.uninstall(tmp_path)
    assert not list(tmp_path.iterdir())


def test_pip_of_a_virtual_environment_stays_with_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    code = (
        "import sys, subprocess; from tracecomp.torch_compat import distribution as d; print(d.install())\n"
        "settings = sys.prefix + '/pip.conf'\n"
        "import configparser; c = configparser.ConfigParser(); c.read(settings)\n"
        "print(open(c['global']['constraint']).read().strip()); print(d.uninstall())\n"
        "import os; print(os.path.exists(settings))\n"
        "open(settings, 'w').write('[global]'); print(d.install()); d.uninstall(); print(open(settings).read())"
    )
    site = Path(np.__file__).parents[1]
    done = subprocess.run(
        [tmp_path / "env" / "bin" / "python", "-c", code], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, site)))},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0].endswith("pip.conf makes pip keep it"), done.stderr
    assert lines[1] == f"torch=={TORCH_VERSION}" and lines[2].startswith("no torch in") and lines[3] == "False"
    assert "give pip '-c" in lines[4] and lines[5] == "[global]"


def test_a_torch_of_others_is_never_touched(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("theirs = True")
    with pytest.raises(FileExistsError, match="not changed"):
        distribution.install(tmp_path)
    metadata = tmp_path / "torch-2.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.0\n")
    for action in (distribution.install, distribution.uninstall):
        with pytest.raises(FileExistsError, match="is PyTorch"):
            action(tmp_path)
    assert (package / "__init__.py").read_text() == "theirs = True"


def test_the_distribution_has_the_version_that_torch_says() -> None:
    folder = SITE / f"torch-{TORCH_VERSION}.dist-info"
    assert f"Version: {TORCH_VERSION}\n" in (folder / "METADATA").read_text()


def test_the_table_of_names_is_that_of_the_torch_here() -> None:
    torch = pytest.importorskip("torch")
    if torch.__version__.split("+")[0] != TORCH_VERSION.split("+")[0]:
        pytest.skip("another version of PyTorch")
    assert {"Linear", "Module"} <= table()["torch.nn"] and all(hasattr(torch, n) for n in table()["torch"])


def test_types_that_nothing_can_hold_can_be_named() -> None:
    narrow = [f"{word}{bits}" for word in ("uint", "int") for bits in range(1, 8)]
    quantized = ["quint8", "qint8", "qint32", "quint4x2", "quint2x4"]
    names = [*quantized, "complex32", "float4_e2m1fn_x2", *narrow]
    kinds = [getattr(tracecomp, name) for name in names]
    assert [str(k) for k in kinds] == [f"torch.{name}" for name in names] and len(set(kinds)) == len(names)
    assert [k.is_signed for k in kinds[-14:]] == [False] * 7 + [True] * 7
    for kind in kinds:
        with pytest.raises(TypeError, match=f"torch.{kind.name} is not supported as the dtype of a tensor"):
            tracecomp.zeros(2, dtype=kind)


def test_objects_that_end_at_exit_still_use_torch() -> None:
    last = "class Last:\n    def __del__(self, torch=torch): print(torch.is_tensor(0))\n"
    assert as_torch(f"import torch\n{last}last = Last()\n") == "False"


def test_a_missing_program_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.py")
    assert command.run([missing]) == 2
    assert capsys.readouterr().err == f"error: no file {missing}\n"


FIRST_IMPORTS = """
import os, sys
from importlib import import_module
import torch
from tracecomp.torch_compat.finder import home_of

for name in sys.argv[1:]:
    if not os.fork():
        import_module(name)
        os._exit(sys.modules[name] is not sys.modules[home_of(name)])
    assert os.wait()[1] == 0, name
"""


def test_a_module_of_torch_is_the_same_object_whichever_is_imported_first() -> None:
    names = ("utils.data.dataset", "nn.modules.linear", "optim.sgd", "distributions.normal", "fx.graph", "autograd")
    python("-c", f"import tracecomp; tracecomp.as_torch()\n{FIRST_IMPORTS}", *(f"torch.{name}" for name in names))


HOMES = """
import inspect, pickle
import torch
from tracecomp.base.code_origin import is_own

public = [
    getattr(space, name) for space in (torch, torch.nn, torch.optim, torch.optim.lr_scheduler, torch.utils.data)
    for name in dir(space) if not name.startswith("_") and isinstance(getattr(space, name, None), type)
]
assert len(public) > 250
for kind in (*public, torch.relu, torch.nn.functional.relu, torch.nn.init.normal_):
    if kind.__module__.startswith("torch"):
        assert is_own(kind), kind
        assert pickle.loads(pickle.dumps(kind)) is kind
assert all(k.__module__.startswith("torch.optim") for k in public if issubclass(k, torch.optim.Optimizer))
assert all(k.__module__.startswith(("torch.nn", "torch.jit")) for k in public if issubclass(k, torch.nn.Module))
assert inspect.getsource(torch.nn.Linear).startswith("class Linear(")
for kind in (torch.nn.Linear, torch.optim.SGD, torch.optim.lr_scheduler.StepLR, torch.Tensor, type(torch.float32)):
    print(kind)
print(torch.nn.init.normal_.__module__)
"""


def test_classes_have_pytorchs_module_names() -> None:
    assert as_torch(HOMES).splitlines() == [
        "<class 'torch.nn.modules.linear.Linear'>", "<class 'torch.optim.sgd.SGD'>",
        "<class 'torch.optim.lr_scheduler.StepLR'>", "<class 'torch.Tensor'>", "<class 'torch.dtype'>", "torch.nn.init",
    ]  # fmt: skip


def test_class_names_are_restored_after_the_context_manager() -> None:
    said = python(
        "-c",
        "import tracecomp\nbefore = tracecomp.nn.Linear.__module__, tracecomp.Tensor.__qualname__\n"
        "with tracecomp.as_torch():\n    import torch.optim\n    assert torch.nn.Linear.__module__ != before[0]\n"
        "print((tracecomp.nn.Linear.__module__, tracecomp.Tensor.__qualname__) == before, tracecomp.optim.SGD)",
    )
    assert said == "True <class 'tracecomp.optim.sgd.SGD'>"


def test_a_module_saved_under_the_name_torch_loads_under_both_names(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    as_torch(f"import torch; torch.save(torch.nn.Sequential(torch.nn.Linear(2, 3)), {str(path)!r})")
    load = f"load({str(path)!r}, weights_only=False)"
    allowed = (
        f"with {{0}}.serialization.safe_globals([{{0}}.nn.Sequential, {{0}}.nn.Linear]): {{0}}.load({str(path)!r})"
    )
    shown = "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n)"
    assert as_torch(f"import torch; print(torch.{load})\n{allowed.format('torch')}") == shown
    assert python("-c", f"import tracecomp; print(tracecomp.{load})\n{allowed.format('tracecomp')}") == shown
