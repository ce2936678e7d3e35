"""Schemas of operators: the table has PyTorch's text, and its parts are PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import tracecomp
from tracecomp.base.function_schema import FunctionSchema, infer_schema
from tracecomp.library import Library, custom_op, ops


def parts(argument: Any) -> tuple[Any, ...]:
    alias = argument.alias_info
    sharing = alias and (alias.is_write, set(alias.before_set), set(alias.after_set))
    default = (argument.has_default_value(), repr(argument.default_value))
    kinds = (str(argument.type), argument.type.kind(), str(argument.real_type), argument.N)
    return argument.name, kinds, argument.kwarg_only, default, sharing, argument.is_out


def test_schemas_of_both_packages_are_equal() -> None:
    torch = pytest.importorskip("torch")
    from tests.library.write_schemas import PATH, lines

    assert PATH.read_text().splitlines() == lines(), "run python -m tests.library.write_schemas"
    for line in lines():
        packet, _, overload = line.partition("(")[0].partition(".")
        mine, other = (getattr(getattr(x, packet), overload or "default") for x in (ops.aten, torch.ops.aten))
        assert mine.name() == other.name()
        assert str(mine._schema) == str(other._schema)
        assert mine._schema.is_mutable == other._schema.is_mutable
        assert (mine._schema.name, mine._schema.overload_name) == (other._schema.name, other._schema.overload_name)
        for own, theirs in ((x._schema.arguments, y._schema.arguments) for x, y in ((mine, other),)):
            assert list(map(parts, own)) == list(map(parts, theirs)), line
        assert list(map(parts, mine._schema.returns)) == list(map(parts, other._schema.returns)), line


FUNCTIONS = (
    "def f(x: t.Tensor, n: int = 3, *, s: str = 'a', scale: float = 0.5, on: bool = True) -> t.Tensor: ...",
    "def f(x: t.Tensor, y: t.Tensor | None = None, sizes: list[int] | None = None) -> tuple[t.Tensor, t.Tensor]: ...",
    "def f(xs: list[t.Tensor], dtype: t.dtype, device: t.device) -> list[t.Tensor]: ...",
    "def f(x: t.Tensor, xs: Sequence[int], value: Union[int, float, bool]) -> None: ...",
    "def f(x: t.Tensor, y: Optional[t.Tensor]) -> int: ...",
)
BAD = (
    "def f(x) -> t.Tensor: ...", "def f(x: t.Tensor): ...", "def f(x: dict) -> t.Tensor: ...",
    "def f(*x: t.Tensor) -> t.Tensor: ...", "def f(x: t.Tensor, y: int) -> t.Tensor: ...",
)  # fmt: skip


def function(library: Any, text: str) -> Any:
    space: dict[str, Any] = {"t": library}
    exec("from collections.abc import Sequence\nfrom typing import Optional, Union\n" + text, space)
    return space["f"]


def test_inferred_schemas_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for text in FUNCTIONS:
        for mutated in ((), "unknown", ("x",) if "x:" in text else ("xs",)):
            if mutated == ("xs",):
                continue
            mine = infer_schema(function(tracecomp, text), mutates_args=mutated, op_name="a::b")
            assert mine == torch.library.infer_schema(function(torch, text), mutates_args=mutated, op_name="a::b")


def test_functions_without_a_schema_are_value_errors() -> None:
    torch = pytest.importorskip("torch")
    for text in BAD:
        for library in (torch, tracecomp):
            with pytest.raises(ValueError, match=r"infer_schema\(func\)"):
                library.library.infer_schema(function(library, text), mutates_args=("y",))
    with pytest.raises(ValueError, match="'namespace::name'"):
        custom_op("name", function(tracecomp, FUNCTIONS[0]), mutates_args=())


def test_custom_operators_have_schemas() -> None:
    twice = custom_op("schemas::twice", function(tracecomp, FUNCTIONS[0]), mutates_args=("x",))
    schema = twice._opoverload._schema
    assert str(schema) == (
        'schemas::twice(Tensor(a0!) x, SymInt n=3, *, str s="a", float scale=0.5, bool on=True) -> Tensor'
    )
    assert schema.is_mutable and [a.name for a in schema.arguments] == ["x", "n", "s", "scale", "on"]
    assert [a.default_value for a in schema.arguments] == [None, 3, "a", 0.5, True]
    Library("schemas", "DEF").define("other(Tensor x, int[2] size=0) -> (Tensor a, Tensor b)")
    other = ops.schemas.other.default._schema
    assert [r.name for r in other.returns] == ["a", "b"] and other.arguments[1].default_value == [0, 0]


def test_a_text_without_the_form_of_a_schema_is_refused() -> None:
    for text in ("name", "a::b(Tensor x", "a::b(Tensor x) Tensor"):
        with pytest.raises(RuntimeError, match="schema"):
            assert FunctionSchema(text).arguments
