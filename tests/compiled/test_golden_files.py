"""Files that earlier releases wrote are loaded, and give the bits that they gave then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tracecomp as torch
from tracecomp_runtime import processor

FOLDERS = sorted(p.parent for p in (Path(__file__).parent / "golden_files").glob("*/digests.json"))


@pytest.mark.parametrize("kind", ["code", "graph", "script"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_file_of_an_earlier_release_is_read(folder: Path, kind: str) -> None:
    arrays = np.load(folder / "arrays.npz")
    x = torch.from_numpy(arrays["x"])
    if kind == "script":
        compiled = torch.compile(torch.jit.load(folder / "script.tcp"))
        compiled(x)  # the first call may run eagerly
        found = compiled(x)
    elif kind == "code" and not {*processor.LEVELS} & {*processor.levels()}:
        pytest.skip("the file has code for x86-64 under Linux")
    else:
        digest = json.loads((folder / "digests.json").read_text())[kind]
        found = torch.load_program(folder / f"{kind}.tcp", digest=digest)(x)
    assert np.array_equal(found.detach().numpy(), arrays["y"])


def test_every_release_has_its_files() -> None:
    assert torch.__version__ in {p.name for p in FOLDERS}
