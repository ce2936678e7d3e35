"""Libraries derive classes from distributions and modules at once, so names of the one may not be the other's."""

from __future__ import annotations

import pytest

from tracecomp import distributions, nn

torch = pytest.importorskip("torch")

CLASSES = [c for c in vars(distributions).values() if isinstance(c, type) and issubclass(c, distributions.Distribution)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_a_distribution_can_be_a_module_too(kind: type) -> None:
    ours = {name for c in kind.__mro__[:-1] for name in vars(c)}
    theirs = {name for c in getattr(torch.distributions, kind.__name__).__mro__[:-1] for name in vars(c)}
    of_modules = {name for c in nn.Module.__mro__[:-1] for name in vars(c)}
    shared = {name for name in ours & of_modules if not name.startswith("__")}
    assert shared <= theirs
