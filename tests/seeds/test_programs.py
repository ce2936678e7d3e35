"""Every program eagerly and compiled, and with the import changed to torch."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.seeds.harness import PROGRAMS, Compiling, Eager, Program, assert_close, load, programs

FILES = sorted(p for p in PROGRAMS.glob("*.py") if p.stem != "__init__")


def own(path: Path) -> dict[str, Program]:
    """Return the programs of a file; none if it needs a library that is missing, so that the others still run."""
    try:
        return programs(load(path))
    except pytest.skip.Exception:
        return {}


OWN = {path.stem: own(path) for path in FILES}
NAMES = [(stem, name) for stem, found in OWN.items() for name in found]
COMPILED = [(stem, name) for stem, name in NAMES if OWN[stem][name].compiles]
TORCH = [(stem, name) for stem, name in NAMES if OWN[stem][name].exact_torch]


def needs_a_peer(stem: str, name: str) -> bool:
    """Whether a program, or its whole file, asks for a package that the ``test`` extra does not install."""
    file = (PROGRAMS / f"{stem}.py").read_text(encoding="utf-8")
    return "\neinops = " in file or "importorskip" in inspect.unwrap(OWN[stem][name].fn).__code__.co_names


def cases(names: list[tuple[str, str]]) -> list[Any]:
    """Parameters, with a mark on those that need a peer."""
    return [pytest.param(*n, marks=[pytest.mark.peers] if needs_a_peer(*n) else []) for n in names]


# A loader warns if there are fewer processors than workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def of(stem: str, name: str) -> Program:
    return OWN[stem][name]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("stem", "name"), cases(NAMES))
def test_eager(stem: str, name: str) -> None:
    of(stem, name).fn(Eager())


@pytest.mark.sampled(39)
@pytest.mark.parametrize(("stem", "name"), cases(COMPILED))
def test_compiled_equals_eager(stem: str, name: str) -> None:
    run = Compiling()
    compiled = of(stem, name).fn(run)
    run.check()
    assert_close(compiled, of(stem, name).fn(Eager()))


@pytest.mark.peers
@pytest.mark.parametrize(("stem", "name"), TORCH)
def test_same_as_torch(stem: str, name: str, torch_programs: dict[str, dict[str, Program]]) -> None:
    assert_close(of(stem, name).fn(Eager()), torch_programs[stem][name].fn(Eager()))


@pytest.fixture(scope="module")
def torch_programs() -> dict[str, dict[str, Any]]:
    pytest.importorskip("torch")
    return {path.stem: programs(load(path, "torch")) for path in FILES if OWN[path.stem]}
