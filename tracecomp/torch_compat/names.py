"""Modules and names of PyTorch, which a program may expect to import."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tracecomp import version

TORCH_VERSION = version.__version__
_LISTED = "docs/ecosystem.md lists what runs"
_ADVICE = (
    ("torch.distributed", "docs/distributed.md lists the supported features for several processes"),
    ("torch.cuda", "tracecomp runs on the CPU only: check torch.cuda.is_available() first"),
    (
        "torch._inductor",
        "only the configuration of torch._inductor exists here; torch.compile does not use torch._inductor",
    ),
    ("torch.onnx", "run the program with PyTorch to export it"),
)


@cache
def table() -> dict[str, frozenset[str]]:
    """Module -> names, as in ``torch_names.txt``; an empty set where they are not listed."""
    text = (Path(__file__).parent / "torch_names.txt").read_text()
    lines = (line.partition(":") for line in text.splitlines())
    return {module: frozenset(names.split()) for module, _, names in lines}


def torch_has(module: str, name: str) -> bool:
    """Whether PyTorch's ``module`` has ``name``."""
    names = table().get(module)
    return names is not None and (not names or name in names)


def absent(path: str) -> str:
    """The sentence that says that ``path`` is PyTorch's and not here, and what to do."""
    advice = next((text for prefix, text in _ADVICE if path.startswith(prefix)), _LISTED)
    return f"{path} is part of PyTorch {TORCH_VERSION.partition('+')[0]} but not of tracecomp: {advice}"
