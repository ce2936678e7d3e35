"""``help`` of every public name: arguments are explained, and the example runs as it is shown, here and in PyTorch."""

from __future__ import annotations

import doctest
import inspect
import re
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tracecomp
from tracecomp import nn, optim
from tracecomp.base import reference
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import NAMESPACES
from tracecomp.nn import aten
from tracecomp.optim import lr_scheduler

assert aten  # publishes into torch
CLASSES = {"nn": nn, "optim": optim, "optim.lr_scheduler": lr_scheduler}
# Names whose example PyTorch has not, or answers otherwise; docs/reports/surface.md says how.
NOT_IN_TORCH = {
    "Tensor.uniform", "Tensor.exponential", "Tensor.cauchy", "Tensor.log_normal", "Tensor.geometric",
    "Tensor.pin_memory", "Tensor.names", "Tensor.has_names", "Tensor.slice", "torch.fill_diagonal",
    "torch.fill_diagonal_", "torch.set_flush_denormal",
    "torch.embedding_bag", "Tensor.fill_diagonal", "torch.BFloat16Tensor",
    *(f"{space}.{name}" for space in ("torch", "Tensor") for name in ("gammainc_", "gammaincc_", "multigammaln_")),
}  # fmt: skip

# Names that are there because libraries of PyTorch's ask for them: what they do is in their docstring, without example.
NO_EXAMPLE = {
    "Tensor.as_subclass", "torch.UntypedStorage", "torch.TypedStorage", "torch.Stream", "torch.Event",
    "torch.OutOfMemoryError", "torch.SymInt", "torch.SymFloat", "torch.SymBool",
    *(f"torch.sym_{name}" for name in ("int", "float", "max", "min", "not", "ite", "sum", "sqrt")),
    *(f"torch._check{name}" for name in ("", "_value", "_type", "_index", "_not_implemented")),
    "torch._check_is_size", "torch._check_tensor_all", "torch._check_with", "torch._check_tensor_all_with",
    "torch._assert_async",
}  # fmt: skip


def classes(module: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if inspect.isclass(value) and name[0] != "_" and value.__module__.startswith("tracecomp"):
            yield name, value


def public() -> Iterator[tuple[str, Any]]:
    """Yield every public name and its object; the functions that call operators explain these."""
    for space, names in NAMESPACES.items():
        for name, value in names.items():
            if not name.startswith("__") and name != "LinAlgError":  # numpy's
                yield f"{space}.{name}", value
    for name, value in vars(Tensor).items():
        if name[0] != "_" and name not in NAMESPACES["Tensor"]:
            yield f"Tensor.{name}", value
    for space, module in CLASSES.items():
        yield from ((f"{space}.{name}", value) for name, value in classes(module))
    for name, value in vars(nn.init).items():
        if inspect.isfunction(value) and value.__module__ == nn.init.__name__ and name in reference.examples("nn.init"):
            yield f"nn.init.{name}", value


PUBLIC = {
    name: value
    for name, value in public()
    if name not in NO_EXAMPLE and not name.rpartition(".")[2].startswith("_foreach_")
}
PARSER = doctest.DocTestParser()


def run(name: str, doc: str, torch: Any) -> str:
    """Return the error of the example in ``doc``; nothing if its output is right."""
    F = torch.nn.functional
    names = {"torch": torch, "nn": torch.nn, "F": F, "np": np}
    test = PARSER.get_doctest(doc, names, name, None, 0)
    if not test.examples or not any(example.want for example in test.examples):
        return f"{name}: no example with a result"
    report: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    return "".join(report)


def spaces() -> list[str]:
    return sorted({name.rpartition(".")[0] for name in PUBLIC})


@pytest.mark.slow
@pytest.mark.parametrize("space", spaces())
def test_every_public_name_has_an_example_that_gives_what_it_shows(space: str) -> None:
    state = tracecomp.get_rng_state()
    wrong = [
        run(name, value.__doc__ or "", tracecomp) for name, value in PUBLIC.items() if name.rpartition(".")[0] == space
    ]
    tracecomp.set_rng_state(state)
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("space", spaces())
def test_pytorch_gives_the_same_text(space: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.masked")
    wrong = [
        run(name, value.__doc__ or "", torch)
        for name, value in PUBLIC.items()
        if name.rpartition(".")[0] == space and name not in NOT_IN_TORCH
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))


def forms(value: Any) -> Sequence[Callable[..., object]]:
    if inspect.isclass(value):
        made = value.__dict__.get("__init__")
        return [made] if inspect.isfunction(made) else []
    source = inspect.unwrap(value)
    return (typing.get_overloads(source) or [source]) if inspect.isfunction(source) else []


def test_every_argument_of_every_public_name_is_explained() -> None:
    named = {p for value in PUBLIC.values() for form in forms(value) for p in inspect.signature(form).parameters}
    assert sorted(named - reference.arguments().keys() - {"self", "kwargs", "cls"}) == []


def test_help_shows_arguments_shape_errors_and_an_example() -> None:
    doc = inspect.getdoc(tracecomp.log_softmax) or ""
    assert "dim (int): the dimension" in doc and "IndexError: ``dim``" in doc
    assert ">>> torch.log_softmax(x, dim=1)" in doc
    assert "broadcast to" in (inspect.getdoc(tracecomp.maximum) or "")
    assert "a tensor is complex" in (inspect.getdoc(tracecomp.floor) or "")
    assert "weight_decay (" in (inspect.getdoc(optim.SGD) or "")


def test_no_example_is_left_of_a_name_that_is_gone() -> None:
    for space in spaces():
        known = {name.rpartition(".")[2] for name in PUBLIC if name.rpartition(".")[0] == space}
        assert sorted(reference.examples(space).keys() - known) == []


def test_sections_of_composed_texts_are_not_indented() -> None:
    """From Python 3.13 on, docstrings of source files are not indented, as the added sections are."""
    indented = re.compile(r"^ +(Args|Example):$", re.MULTILINE)
    assert [name for name, value in PUBLIC.items() if indented.search(inspect.getdoc(value) or "")] == []
