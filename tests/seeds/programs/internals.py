"""Examples of the documents about memory, kernels, extensions and TorchScript."""

import ctypes
import io
from pathlib import Path

import numpy as np
import pytest

import tracecomp as torch
from tests.seeds.harness import normal, program, settle
from tracecomp import nn


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


@program("002:2029, 002:4598, 003:93")
def sparse_tensors(run):
    indices = torch.tensor([[0, 1, 1], [2, 0, 2]])
    sparse = torch.sparse_coo_tensor(indices, torch.tensor([3.0, 4.0, 5.0]), (2, 3))
    dense = tensor(3, 2)
    assert sparse.layout is torch.sparse_coo and dense.layout is torch.strided
    assert sparse.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
    whole = sparse.coalesce()
    assert whole.indices().tolist() == indices.tolist() and whole.values().tolist() == [3, 4, 5]
    assert torch.allclose(torch.sparse.mm(sparse, dense), sparse.to_dense() @ dense)
    return run(lambda a, b: a @ b, sparse.to_dense(), dense), (sparse + sparse).to_dense()


@program("002:2344-2351, 002:3703, 002:4540-4610", compiles=False)
def head_and_storage(run):
    a = torch.arange(12.0).reshape(3, 4)
    row, column = a[1, :], a[:, 0]
    assert a.size() == (3, 4) and a.dim() == 2 and a.numel() == torch.numel(a) == 12 and a.storage_offset() == 0
    assert (row.size(), row.stride(), row.storage_offset()) == ((4,), (1,), 4)
    assert (column.size(), column.stride(), column.storage_offset()) == ((3,), (4,), 0)
    assert a.storage().data_ptr() == row.storage().data_ptr() == a.untyped_storage().data_ptr()
    assert list(a.storage()) == [float(x) for x in range(12)] and len(row.storage()) == 12
    row[0] = 40.0
    assert a[1, 0] == column[1] == 40 and not column.is_contiguous() and column.contiguous().stride() == (1,)
    return a, torch.as_strided(a, (2, 2), (4, 2), 1)


@program("002:2501-2508", compiles=False)
def arrays_and_back(run):
    for kind in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"):
        array = np.array([[1, 0, 1]], kind)
        assert torch.from_numpy(array).numpy().dtype == array.dtype
    array = np.arange(6.0)[::-1]
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(array)
    return torch.from_numpy(array.copy()).float(), torch.from_numpy(np.arange(6)[::2])


@program("003:325")
def choosing(run):
    x, y = tensor(3, 2), torch.ones(3, 2)
    return run(lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, 1.0, -1.0), torch.where(x > 0)[0]), x, y)


@program("002:1866")
def lazy_layers(run):
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    assert "in_features=0" in repr(model)
    model(torch.zeros(1, 5))
    settle(model)
    assert type(model[0]) is nn.Linear and model[0].weight.shape == (3, 5) and model[2].in_features == 3
    return run(model, tensor(4, 5))


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        if bool(x.sum() > 0):
            return torch.relu(self.linear(x))
        return self.linear(x) * 2


@program("002:1096, 002:1106")
def scripts_and_traces(run):
    model = settle(Gate())
    found = []
    for made in (torch.jit.script(model), torch.jit.trace(settle(nn.Linear(3, 2)), torch.ones(1, 3))):
        file = io.BytesIO()
        torch.jit.save(made, file)
        file.seek(0)
        loaded = torch.jit.load(file)
        found += [loaded(x) for x in (torch.ones(2, 3), -torch.ones(2, 3))]
    return found, run(lambda x: torch.relu(model.linear(x)), torch.ones(2, 3))


@program("002:1187-1231, 003:29", compiles=False)
def files_for_onnx(run):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    how = {"dynamo": False} if torch.__name__ == "torch" else {}  # PyTorch's other exporter needs onnxscript
    model, x = (
        settle(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))).eval(),
        tensor(2, 1, 4, 4),
    )
    torch.onnx.export(model, x, "model.onnx", input_names=["image"], output_names=["score"], **how)
    onnx.checker.check_model(onnx.load("model.onnx"))
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["image"]
    (found,) = session.run(["score"], {"image": x.numpy()})
    np.testing.assert_allclose(found, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    return model(x)


@program("002:3910", compiles=False)
def shares_of_the_data(run):
    data = torch.utils.data.TensorDataset(torch.arange(10))
    samplers = [torch.utils.data.DistributedSampler(data, num_replicas=3, rank=r, shuffle=False) for r in range(3)]
    shares = [[int(x) for (batch,) in torch.utils.data.DataLoader(data, 2, sampler=s) for x in batch] for s in samplers]
    assert [len(s) for s in shares] == [4, 4, 4] and {x for s in shares for x in s} == set(range(10))
    shuffled = torch.utils.data.DistributedSampler(data, num_replicas=3, rank=0, shuffle=True)
    before = list(shuffled)
    shuffled.set_epoch(1)
    assert list(shuffled) != before
    return shares


@program("002:4584-4590, 002:4638-4643", compiles=False)
def two_dispatches(run):
    dense, ints = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int64)
    sparse, shape_only = dense.to_sparse(), torch.ones(2, 2, device="meta")
    kinds = [(dense @ dense).dtype, (ints @ ints).dtype, (sparse @ dense).layout, (shape_only @ shape_only).device.type]
    assert kinds == [torch.float32, torch.int64, torch.strided, "meta"]
    with pytest.raises(RuntimeError):
        dense @ ints  # no kernel for two types
    return dense @ dense, ints @ ints


CALLS = []


class Metres(torch.Tensor):
    """A wrapper that notes which functions it took part in."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        CALLS.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


@program("002:4593-4607", compiles=False)
def a_wrapper_class(run):
    CALLS.clear()
    x = tensor(3).as_subclass(Metres).requires_grad_()
    y = torch.exp(x) * 2
    assert type(y) is Metres and {"exp", "mul"} <= set(CALLS), CALLS
    y.sum().backward()
    return x.grad.as_subclass(torch.Tensor), y.detach().as_subclass(torch.Tensor)


@program("002:4752-4771")
def an_operator_and_its_derivative(run):
    @torch.library.custom_op("documents::cube", mutates_args=())
    def cube(x: torch.Tensor) -> torch.Tensor:
        return x * x * x

    cube.register_fake(lambda x: torch.empty_like(x))
    cube.register_autograd(
        lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    x = tensor(4).requires_grad_()
    torch.ops.documents.cube(x).sum().backward()
    return x.grad, run(lambda x: x * x * x, x.detach())


@program("002:4780-4782, 002:4797")
def three_forms_over_any_strides(run):
    x, out = tensor(4, 6), torch.empty(0)
    assert torch.abs(x, out=out) is out and torch.equal(out, x.abs())
    changed = x.clone()
    assert changed.abs_() is changed and torch.equal(changed, out)
    strided, flipped = x[::2, ::3], x.t()[:2]
    assert torch.equal(torch.abs(strided), torch.abs(strided.contiguous()))
    promoted = torch.arange(4).reshape(4, 1) + torch.ones(6, dtype=torch.float16)
    assert promoted.shape == (4, 6) and promoted.dtype == torch.float16
    return run(lambda a, b: (a.abs(), a + b[:, :2], a * torch.arange(2)), strided, flipped)


@program("002:4758, 002:4790, 002:4798", compiles=False)
def threads_are_settable(run):
    before, x = torch.get_num_threads(), tensor(64, 64)
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert torch.get_num_threads() == threads
            results.append((x @ x).tanh().sum(0))
    finally:
        torch.set_num_threads(before)
    return results


@program("002:4444, 002:4453", compiles=False)
def memory_advice(run):
    linear = nn.Linear(300, 200)
    assert sum(p.numel() * p.element_size() for p in linear.parameters()) == (300 * 200 + 200) * 4
    x = torch.ones(4, requires_grad=True)
    inner = (x * 2).exp()
    del inner
    return x


@program("002:183-184", compiles=False)
def models_by_repository(run):
    Path("repository").mkdir(exist_ok=True)
    Path("repository/hubconf.py").write_text(
        f"from {torch.__name__} import nn\n\n\n"
        'def small(width=2):\n    "A small model."\n    return nn.Linear(3, width)\n'
    )
    return settle(torch.hub.load("repository", "small", source="local", width=4))(tensor(2, 3))


@program("002:2105, 002:2159-2167", compiles=False)
def dimensions_have_no_names(run):
    for make in (torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn):
        with pytest.raises(TypeError):
            make(2, 3, names=("N", "C"))  # PyTorch 2.13 does not have them either
    with pytest.raises(TypeError):
        torch.zeros(2, 3).sum("N")
    return tensor(2, 3).movedim(1, 0)


@program("002:4555, 002:4796-4804", compiles=False)
def elements_by_address(run):
    """An element's address is the start, and strides times indices, as in a C++ accessor."""
    base = tensor(4, 6)
    found = []
    for x in (base, base.t(), base[1:, ::2], base.double()):
        number = {4: ctypes.c_float, 8: ctypes.c_double}[x.element_size()]
        start, (rows, columns) = x.data_ptr(), x.stride()

        def element(i, j, start=start, rows=rows, columns=columns, number=number):
            return number.from_address(start + (i * rows + j * columns) * ctypes.sizeof(number))

        assert all(element(i, j).value == float(x[i, j]) for i in range(x.size(0)) for j in range(x.size(1)))
        element(1, 1).value = 0.5  # a write through the address is a write to the tensor
        found.append(x.clone())
    assert base.data_ptr() == base.t().data_ptr() and base[1:].data_ptr() - base.data_ptr() == 6 * 4
    return found
