"""Names of inputs, outputs and dynamic sizes of an export: names that do not fit the model raise an error."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.export import Dim

pytest.importorskip("onnx")
export: Any = importlib.import_module("tracecomp.onnx").export


class Two(nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        return x + 1, y * 2


def exported(**options: Any) -> tuple[list[str], list[list[Any]], list[str]]:
    """The names of the inputs, their shapes and the names of the outputs."""
    graph = export(Two(), (torch.ones(3, 2), torch.ones(3, 2)), check=False, **options).model_proto.graph
    shapes = [[d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in graph.input]
    return [i.name for i in graph.input], shapes, [o.name for o in graph.output]


def test_names_are_taken_as_far_as_they_go() -> None:
    assert exported(input_names=["a"], output_names=["b"])[::2] == (["a", "y"], ["b", "output1"])


@pytest.mark.parametrize("kind", ["input", "output"])
def test_more_names_than_there_are_or_one_name_twice_is_an_error(kind: str) -> None:
    with pytest.raises(RuntimeError, match=rf"number of {kind} names provided \(3\) exceeded number of {kind}s \(2\)"):
        exported(**{f"{kind}_names": ["a", "b", "c"]})
    with pytest.raises(ValueError, match=f"{kind}_names must differ"):
        exported(**{f"{kind}_names": ["a", "a"]})
    with pytest.raises(ValueError, match="both called 'a'"):
        exported(input_names=["a"], output_names=["a"])


@pytest.mark.parametrize("key", ["image", "X", "x"])
def test_an_axis_of_a_name_that_no_tensor_has_is_warned_of(key: str) -> None:
    with pytest.warns(UserWarning, match=f"Provided key {key} for dynamic axes is not a valid input/output name"):
        assert exported(input_names=["a", "b"], dynamic_axes={key: {0: "n"}})[1] == [[3, 2], [3, 2]]


def test_axes_of_inputs_and_outputs_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, shapes, _ = exported(output_names=["o"], dynamic_axes={"x": [0], "o": {0: "n"}, "output1": {0: "n"}})
    assert shapes == [["x_0", 2], [3, 2]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"dynamic_shapes": {"z": {0: "n"}}}, "dynamic_shapes has 'z'; the inputs are x, y"),
        ({"dynamic_shapes": ({0: "n"},)}, "dynamic_shapes has 1 entries for 2 inputs"),
        ({"dynamic_shapes": ({0: "n"}, None, None)}, "dynamic_shapes has 3 entries for 2 inputs"),
        ({"dynamic_shapes": {"x": (Dim("n"), 3)}}, "dimension 1 of input 'x' is 3; it is 2"),
        ({"dynamic_shapes": {"x": (4.5, None)}}, "must be a Dim or a name, got 4.5"),
        ({"dynamic_axes": [["n"]]}, "dynamic_axes has 1 entries for 2 inputs"),
        ({"dynamic_axes": 7}, "dynamic_axes must be a dict, tuple or list, got int"),
        ({"dynamic_axes": {"x": "n"}}, "must be a dict or list"),
        ({"dynamic_axes": {"x": {"0": "n"}}}, "must be integers, got '0'"),
        ({"dynamic_axes": {"x": {2: "n"}}}, "input 'x' has no dimension 2"),
        ({"dynamic_axes": {"x": {0: "n", -2: "m"}}}, "two names for dimension 0 of input 'x': 'n' and 'm'"),
    ],
)
def test_axes_and_shapes_that_do_not_fit_the_inputs_are_errors(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        exported(**options)


def test_a_hint_leaves_a_size_open_or_fixed() -> None:
    assert exported(dynamic_shapes={"x": (Dim.AUTO, Dim.STATIC), "y": {0: Dim.DYNAMIC(max=7)}})[1] == [
        ["x_0", 2], ["y_0", 2],
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["0.weight", "constant0", "v0", "v1"])
def test_a_name_that_the_exporter_would_take_is_the_models(name: str) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    x = torch.linspace(-1.0, 1.0, 6).reshape(3, 2)

    def more(x: Any) -> Any:
        return model(x).cumsum(0) * 2.5

    load = importlib.import_module("tracecomp.onnx").load
    for names in ({"input_names": [name]}, {"output_names": [name]}):
        program = export(more, (x,), check=False, **names)
        graph = program.model_proto.graph
        assert name in (graph.input[0].name, graph.output[0].name)
        assert torch.allclose(load(program)(x), more(x))
