"""``torch.export``: graphs have the bits of the module at every size they are for, and refuse the others."""

from __future__ import annotations

import importlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp._dynamo.exc import UserError, UserErrorType
from tracecomp.export import (
    AdditionalInputs,
    Dim,
    ExportedProgram,
    ShapesCollection,
    dims,
    draft_export,
    export,
    files,
    load,
    register_dataclass,
    save,
)
from tracecomp.export.graph_signature import InputKind, OutputKind
from tracecomp.library import ops
from tracecomp.nn import functional as F
from tracecomp_runtime.container import ProgramError


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))

    def forward(self, x: Any) -> Any:
        return self.layers(x).softmax(-1)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return F.adaptive_avg_pool2d(F.max_pool2d(self.norm(self.conv(x)).relu(), 2), 1).flatten(1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(20, 8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, ids: Any) -> Any:
        b, t = ids.shape
        q, k, v = (z.view(b, t, 2, 4).transpose(1, 2) for z in self.qkv(self.embed(ids)).split(8, dim=-1))
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(found.transpose(1, 2).reshape(b, t, 8)) / t


class Counting(nn.Module):
    """State of all kinds, and arguments and results of all kinds."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("hidden", torch.ones(4), persistent=False)
        self.scale = torch.full((4,), 2.0)

    def forward(self, x: Any, *, times: int = 2) -> Any:
        self.count.add_(1)
        return {"a": self.layer(x).relu() * times + self.count + self.scale * self.hidden, "b": (x, times)}


def _ids(b: int, t: int) -> Any:
    return torch.randint(0, 20, (b, t))


BATCH, LENGTH = dims("batch", "length")
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Any], Any]] = {
    "mlp": (Mlp, lambda b, t: torch.randn(b, 6), {0: BATCH}),
    "images": (lambda: Images().eval(), lambda b, t: torch.randn(b, 3, 8, 8), {0: BATCH}),
    "attention": (Attention, _ids, {0: BATCH, 1: LENGTH}),
}
SIZES = [(5, 7), (1, 1), (2, 3), (4, 4), (8, 16), (3, 1), (1, 9)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_program_has_the_bits_of_the_module_at_every_size_in_memory_loaded_and_decomposed(name: str) -> None:
    make, example, shapes = MODELS[name]
    model = make()
    program = export(model, (example(5, 7),), dynamic_shapes=(shapes,))
    ways = [program.module(), _reloaded(program).module(), program.run_decompositions().module()]
    for b, t in SIZES:
        x = example(b, t)
        want = model(x).detach().numpy()
        assert [np.array_equal(way(x).detach().numpy(), want) for way in ways] == [True] * 3, (b, t)


def _reloaded(program: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    save(program, file)
    return load(io.BytesIO(file.getvalue()))


@pytest.mark.slow
def test_the_signature_tells_what_inputs_and_outputs_are() -> None:
    program = export(Counting(), (torch.ones(5, 3),), {"times": 3}, dynamic_shapes={"x": {0: BATCH}, "times": None})
    signature = program.graph_signature
    assert [str(s) for s in signature.input_specs] == [
        "p_layer_weight: PARAMETER target='layer.weight'", "p_layer_bias: PARAMETER target='layer.bias'",
        "b_count: BUFFER target='count' persistent=True", "b_hidden: BUFFER target='hidden' persistent=False",
        "c_scale: CONSTANT_TENSOR target='scale'", "x: USER_INPUT", "times: USER_INPUT",
    ]  # fmt: skip
    assert signature.user_inputs == ("x", 3) and list(signature.user_outputs)[1:] == ["x", 3]
    assert sorted(program.state_dict) == ["count", "layer.bias", "layer.weight"]
    assert sorted(program.constants) == ["hidden", "scale"]
    assert [n for n, _ in program.named_parameters()] == ["layer.weight", "layer.bias"]
    found = program.run_decompositions().graph_signature
    assert [s.kind for s in found.output_specs] == [OutputKind.BUFFER_MUTATION] + [OutputKind.USER_OUTPUT] * 3
    assert list(found.buffers_to_mutate.values()) == ["count"]


def test_signatures_and_ranges_are_those_of_torch() -> None:
    real = pytest.importorskip("torch")

    def described(lib: Any) -> Any:
        class Model(lib.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = lib.nn.Linear(3, 4)
                self.register_buffer("shift", lib.ones(4))
                self.k = lib.ones(4)

            def forward(self, x: Any, pair: Any, n: int) -> Any:
                return {"y": self.layer(x).relu() * n + self.shift + self.k, "z": [pair[0][1:] + pair[1], x]}

        d = lib.export.Dim("d", min=2, max=9)
        b = lib.export.Dim("b", min=2, max=50)
        shapes = {"x": {0: b}, "pair": ({0: d + 1}, {0: d}), "n": None}
        given = (lib.ones(5, 3), (lib.ones(5), lib.ones(4)), 3)
        program = lib.export.export(Model(), given, dynamic_shapes=shapes)
        specs = [(s.kind.name, s.arg.name, s.target, s.persistent) for s in program.graph_signature.input_specs]
        ranges = sorted((int(r.lower), int(r.upper)) for r in program.range_constraints.values())
        outs = [s.kind.name for s in program.graph_signature.output_specs]
        module = program.module()
        y = module(lib.ones(7, 3), (lib.ones(8), lib.ones(7)), 3)
        errors = []
        for bad in [
            (lib.ones(7, 4), (lib.ones(8), lib.ones(7)), 3),
            (lib.ones(51, 3), (lib.ones(8), lib.ones(7)), 3),
            (lib.ones(7, 3), (lib.ones(8), lib.ones(7)), 4),
        ]:
            with pytest.raises(AssertionError) as caught:
                module(*bad)
            errors.append(str(caught.value))
        return specs, ranges, outs, [tuple(t.shape) for t in (y["y"], *y["z"])], errors

    importlib.import_module("torch.export")  # the installed one has it only after this import
    assert described(torch) == described(real)


def test_a_program_trains_as_the_module_does_and_detaches_what_runs_without_grad() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                weights = self.b(x).sigmoid()
            return self.a(x) * weights + self.b(x).detach()

    model, x = Model(), torch.randn(4, 3)
    module = export(model, (x,)).module()
    model(x).square().sum().backward()
    want = [p.grad for p in model.parameters()]
    model.zero_grad()
    module(x).square().sum().backward()
    for p, grad in zip(model.parameters(), want, strict=True):
        assert (p.grad is None) == (grad is None)
        if grad is not None:
            assert np.array_equal(p.grad.numpy(), grad.numpy())


def test_sizes_that_the_program_needs_are_refused_with_the_line_and_given_way_to() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.shape[0] == 5 else x - 1

    class Bounded(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.shape[0] < 50 else x - 1

    for dim in (Dim("b"), Dim.DYNAMIC):
        with pytest.raises(UserError, match=r"constant \(5\), at .*test_export.py") as caught:
            export(Fixed(), (torch.ones(5),), dynamic_shapes=({0: dim},))
        assert caught.value.error_type is UserErrorType.CONSTRAINT_VIOLATION
    given_way = export(Fixed(), (torch.ones(5),), dynamic_shapes=({0: Dim.AUTO},))
    assert given_way.range_constraints == {}
    with pytest.raises(AssertionError, match=r"x.size\(\)\[0\] == 5"):
        given_way.module()(torch.ones(6))
    with pytest.raises(UserError, match="not all values of b"):
        export(Bounded(), (torch.ones(5),), dynamic_shapes=({0: Dim("b")},))
    module = export(Bounded(), (torch.ones(5),), dynamic_shapes=({0: Dim.DYNAMIC},)).module()
    assert module(torch.ones(49)).sum().item() == 98
    with pytest.raises(AssertionError, match=r"x.size\(\)\[0\] <= 49"):
        module(torch.ones(50))
    with pytest.warns(UserWarning, match="constant"):
        draft_export(Fixed(), (torch.ones(5),), dynamic_shapes=({0: Dim("b")},))


def test_a_value_for_which_the_program_is_another_one_is_left_out() -> None:
    class Special(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            if x.shape[0] == 7:
                return x * 3
            return x * 2 if x.shape[0] == y.shape[0] else x * 5

    auto = ({0: Dim.AUTO}, {0: Dim.AUTO})
    module = export(Special(), (torch.ones(5), torch.ones(4)), dynamic_shapes=auto).module()
    assert module(torch.ones(6), torch.ones(3))[0].item() == 5
    with pytest.raises(AssertionError, match=r"x.size\(\)\[0\] != 7"):
        module(torch.ones(7), torch.ones(3))
    with pytest.raises(AssertionError, match="!= 0"):
        module(torch.ones(6), torch.ones(6))


def test_equal_sizes_of_the_example_are_one_size_only_where_the_program_says_so() -> None:
    class Apart(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x.sum() + y.sum()

    class Together(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    a, b = dims("a", "b")
    given = (torch.ones(4), torch.ones(4))
    assert export(Apart(), given, dynamic_shapes=({0: a}, {0: b})).module()(torch.ones(2), torch.ones(3)).item() == 5
    with pytest.raises(UserError, match=r"violated \(a and b\)"):
        export(Together(), given, dynamic_shapes=({0: a}, {0: b}))
    module = export(Together(), given, dynamic_shapes=({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})).module()
    with pytest.raises(AssertionError, match="== 0"):
        module(torch.ones(2), torch.ones(3))


def test_what_no_graph_holds_is_refused_with_the_line() -> None:
    class Branch(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    class Keeps(nn.Module):
        def forward(self, x: Any) -> Any:
            self.seen = x + 1
            return x

    with pytest.raises(UserError, match=r"data-dependent .*test_export.py:\d+") as caught:
        export(Branch(), (torch.ones(3),))
    assert caught.value.error_type is UserErrorType.DYNAMIC_CONTROL_FLOW
    with pytest.raises(UserError, match="keeps a tensor"):
        export(Keeps(), (torch.ones(3),))


def test_nonsense_is_refused() -> None:
    model, x = Mlp(), torch.ones(4, 6)
    with pytest.raises(ValueError, match=r"instance of `torch\.nn\.Module`"):
        export(lambda x: x, (x,))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="tuple of example"):
        export(model, x)  # type: ignore[arg-type]
    for shapes in ({"y": None}, (None, None), ({2: BATCH},), ({0: "batch"},), 3, ([BATCH],), ({0: 5},)):
        with pytest.raises(UserError):
            export(model, (x,), dynamic_shapes=shapes)
    program = export(model, (x,))
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x)
    with pytest.raises(ValueError, match="input tree spec"):
        program.module()(x, x)
    with pytest.raises(TypeError):
        save(program.module(), io.BytesIO())  # type: ignore[arg-type]
    for make in (lambda: Dim("a b"), lambda: Dim("a", min=3, max=2)):
        with pytest.raises(AssertionError):
            make()
    for derive in (lambda: BATCH * 0, lambda: BATCH + 0.5, lambda: 3 - BATCH):
        with pytest.raises(NotImplementedError):
            derive()


@pytest.mark.slow
def test_collections_of_shapes_and_dataclasses_among_arguments() -> None:
    @dataclass
    class Pair:
        a: Any
        b: Any

    class Model(nn.Module):
        def forward(self, pair: Any, more: Any) -> Any:
            return pair.a + 1, more["x"] * 2

    register_dataclass(Pair)
    pair, more = Pair(torch.ones(4), 3), {"x": torch.ones(5)}
    shapes = ShapesCollection()
    shapes[more["x"]] = {0: Dim("n")}
    program = export(Model(), (pair, more), dynamic_shapes=shapes)
    assert program.graph_signature.user_inputs == ("pair_a", 3, "more_x")
    assert program.module()(pair, {"x": torch.ones(9)})[1].shape == (9,)
    others = AdditionalInputs()
    others.add((torch.ones(3, 6),))
    assert export(Mlp(), (torch.ones(4, 6),), dynamic_shapes=others).module()(torch.ones(8, 6)).shape == (8, 4)


def test_exporting_leaves_buffers_and_random_numbers_alone() -> None:
    model = Counting()
    state = torch.get_rng_state()
    program = export(nn.Sequential(nn.Dropout(0.5)), (torch.ones(100),))
    export(model, (torch.ones(5, 3),))
    assert torch.equal(torch.get_rng_state(), state) and not model.count.any()
    torch.manual_seed(3)
    want = F.dropout(torch.ones(100), 0.5)
    torch.manual_seed(3)
    assert torch.equal(program.module()(torch.ones(100)), want)


@pytest.mark.slow
def test_damaged_and_hostile_files_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "p.pt2"
    save(export(Counting(), (torch.ones(5, 3),), dynamic_shapes=({0: BATCH},)), file, extra_files={"note": "hi"})
    extra = {"note": ""}
    load(file, extra_files=extra)
    assert extra == {"note": "hi"}
    data, draw, refused = file.read_bytes(), random.Random(0), 0
    for _ in range(150):
        broken = bytearray(data)
        for _ in range(draw.randrange(1, 4)):
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        file.write_bytes(broken[: draw.randrange(len(broken))] if draw.random() < 0.3 else broken)
        try:
            load(file)  # bits between the sections change nothing
        except ProgramError:
            refused += 1
    assert refused > 100


HOSTILE: list[Callable[[Any], None]] = [
    lambda h: h["nodes"][-2].__setitem__(2, "aten.save.default"),
    lambda h: h["nodes"][-2].__setitem__(2, "operator.attrgetter"),
    lambda h: h["nodes"][-2].__setitem__(2, "prims.all_reduce.default"),
    lambda h: h["nodes"][-2].__setitem__(2, "aten.__class__.default"),
    lambda h: h["nodes"][0].__setitem__(0, "x=__import__('os')"),
    lambda h: h["nodes"][0].__setitem__(2, "x=__import__('os')"),
    lambda h: h["nodes"][-2].__setitem__(1, "call_method"),
    lambda h: h["nodes"][-2].__setitem__(1, "get_attr"),
    lambda h: h["names"].append("more"),
    lambda h: h["sizes"][0][0]["places"][0].__setitem__(1, 7),
    lambda h: h.__setitem__("in_spec", json.dumps([1, {"type": "os.system", "context": "0", "children_spec": []}])),
]


@pytest.mark.sampled(11)
@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_headers_are_refused(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.pt2"
    described = files._described

    def changed(program: Any, arrays: Any) -> Any:
        header = json.loads(json.dumps(described(program, arrays)))
        HOSTILE[number](header)
        return header

    monkeypatch.setattr(files, "_described", changed)
    save(export(Counting(), (torch.ones(5, 3),), dynamic_shapes=({0: BATCH},)), file)
    with pytest.raises(ProgramError, match="damaged"):
        load(file)


def test_a_primitive_refuses_operands_that_do_not_fit() -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        ops.prims.windows.default(torch.ones(4), sizes=(1000,), strides=(1,), dilations=(1,))


@pytest.mark.slow
def test_programs_compile() -> None:
    model = Mlp()
    module = export(model, (torch.randn(5, 6),), dynamic_shapes=({0: BATCH},)).module()
    step = torch.compile(module)
    for n in (5, 3, 8, 5):
        x = torch.randn(n, 6)
        assert np.array_equal(step(x).detach().numpy(), torch.compile(model)(x).detach().numpy())


def test_programs_compile_without_gradients() -> None:
    """Operators are read from a module that resolves their names late, which is not a change of the program's."""
    compiled = torch.compile(export(nn.Linear(3, 2), (torch.ones(4, 3),)).module(), fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            assert compiled(torch.ones(4, 3)).shape == (4, 2)


def test_graphs_have_no_more_inputs_than_they_say() -> None:
    program = export(Counting(), (torch.ones(5, 3),))
    program.validate()
    flat = [*program.state_dict.values()]
    kinds = [s.kind for s in program.graph_signature.input_specs]
    assert kinds.count(InputKind.PARAMETER) + kinds.count(InputKind.BUFFER) == len(flat) + 1
    assert [n.op for n in program.graph.nodes][: len(kinds)] == ["placeholder"] * len(kinds)
