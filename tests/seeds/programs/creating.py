"""Tensors made from data, by rule, and at random; types, printing, numpy."""

import numpy as np

import tracecomp as torch
from tests.seeds.harness import normal, program


@program("002:342-346", compiles=False, torch=False)
def installation_check(run):
    x = torch.rand(5, 3)
    text = str(x)
    assert text.startswith("tensor([[0.") and text.count("\n") == 4
    assert isinstance(torch.__version__, str)


@program("003:79-86, 002:2112-2137")
def from_data(run):
    list_ = [[1.0, -1.0], [1.0, -1.0]]
    arr = np.array([[1, 2, 3], [4, 5, 6]])

    def make():
        x_data = torch.tensor(list_)
        x_ones = torch.ones_like(x_data)
        x = torch.tensor([5.5, 3])
        long = torch.zeros(5, 3, dtype=torch.long)
        return x_data, torch.tensor(arr), x_ones, x.new_ones(5, 3, dtype=torch.double), long

    made = run(make)
    assert made[1].dtype == torch.int64
    assert torch.Tensor(5, 3).shape == (5, 3)
    shape = (2, 3)
    assert torch.rand_like(made[0], dtype=torch.float).dtype == torch.float32
    assert torch.randn_like(made[0], dtype=torch.float).shape == (2, 2)
    assert torch.rand(shape).shape == torch.rand(2, 3).shape == torch.ones(shape).shape
    return made


@program("003:96-117", compiles=False)
def out_returns_the_same_object(run):
    o_t = torch.tensor([1])
    t = torch.zeros((3, 3), out=o_t)
    assert id(t) == id(o_t)
    return t, str(t)


@program("003:118-175")
def rules(run):
    def make():
        x = torch.empty(2, 3)
        return {
            "zeros": torch.zeros_like(x), "ones": torch.ones(2, 2), "full": torch.full((2, 3), 3.5),
            "full_like": torch.full_like(x, 7), "arange": torch.arange(1, 2.51, 0.5),
            "linspace": torch.linspace(3, 10, steps=5), "three": torch.linspace(1, 5, steps=3),
            "logspace": torch.logspace(start=0.1, end=1.0, steps=5),
            "base": torch.logspace(start=2, end=2, steps=1, base=2),
            "eye": torch.eye(3), "rectangular": torch.eye(3, 4),
        }  # fmt: skip

    return run(make)


@program("003:177-192", compiles=False)
def unset_memory(run):
    x = torch.empty(5, 3)
    strided = torch.empty_strided((2, 3), (1, 2), pin_memory=False)
    return x.shape, torch.empty_like(x).shape, strided.shape, strided.stride()


@program("003:205-222")
def normal_in_four_forms(run):
    mean = torch.arange(1, 11.0)
    std = torch.arange(1, 0, -0.1)

    def draw():
        return (
            torch.normal(mean=mean, std=std), torch.normal(mean, std=0.5), torch.normal(mean=0.0, std=std),
            torch.normal(1.0, 2.0, size=(4, 5)),
        )  # fmt: skip

    drawn = run.compile(draw)
    one, two = drawn(), drawn()
    assert not torch.equal(one[0], two[0])
    drawn()
    return [tuple(x.shape) for x in one], mean, std


@program("003:224-284, 002:1328")
def samplers(run):
    def draw():
        p = torch.empty(3, 3).uniform_(0, 1)
        return {
            "integers": torch.randint(3, 10, (2, 2)), "like": torch.randint_like(torch.zeros(2, 3), 0, 5),
            "randn": torch.randn_like(torch.zeros(2, 3)), "perm": torch.randperm(10), "p": p, "b": torch.bernoulli(p),
            "normal_": torch.empty(4).normal_(), "random_": torch.empty(3, dtype=torch.long).random_(5),
        }  # fmt: skip

    drawn = run.compile(draw)
    for _ in range(3):
        found = drawn()
        assert bool(((found["integers"] >= 3) & (found["integers"] < 10)).all())
        assert sorted(found["perm"].tolist()) == list(range(10))
        assert bool(((found["b"] == 0) | (found["b"] == 1)).all())
        assert bool((found["random_"] < 5).all())
    return {name: (tuple(x.shape), str(x.dtype)) for name, x in found.items()}


@program("002:2139-2150, 002:3080-3090")
def generators(run):
    t = torch.rand(size=[3, 3], dtype=torch.float32)
    assert t.shape == (3, 3)
    streams = [torch.Generator(), torch.Generator()]
    for gen in streams:
        gen.manual_seed(2947587447)
    draw = run.compile(lambda: torch.rand(size=(4, 3), generator=streams[0]))
    first = draw()
    assert torch.equal(first, torch.rand(size=(4, 3), generator=streams[1]))
    assert not torch.equal(draw(), first)
    draw()
    try:
        torch.rand_like(torch.zeros(2, dtype=torch.int64))
    except (RuntimeError, NotImplementedError) as error:
        return str(error)
    raise AssertionError("integers are refused")


@program("003:397-404, 002:1945-1956")
def seeds(run):
    np.random.seed(0)
    torch.manual_seed(42)
    torch.cuda.manual_seed_all(0)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    draw = run.compile(lambda: torch.rand(5))
    first = draw()
    assert torch.initial_seed() == 42
    state = torch.get_rng_state()
    second = draw()
    torch.set_rng_state(state)
    assert torch.equal(draw(), second)
    torch.manual_seed(42)
    assert torch.equal(draw(), first)
    assert isinstance(torch.seed(), int)


@program("002:2026-2069", compiles=False)
def storage_is_shared(run):
    a = torch.arange(5)
    b = a[2:]
    assert a.storage().data_ptr() == b.storage().data_ptr()
    b[1] = 0
    assert b.storage_offset() == 2
    return a, b, str(a), str(b), a.storage().tolist(), len(b.storage())


@program("002:2071-2093, 002:2353-2368", compiles=False)
def strides(run):
    t = torch.arange(12).reshape(3, 4)
    t2 = t.transpose(0, 1)
    assert t.data_ptr() == t2.data_ptr()
    b = torch.arange(6).view(3, 2)
    return t.stride(), t2.stride(), t.is_contiguous(), t2.is_contiguous(), t.flatten(), t2, b.stride(), str(b)


@program("002:2170-2215, 002:2303-2323", compiles=False)
def attributes_and_types(run):
    t = torch.tensor(normal(3, 4))
    made = [t, t.new_tensor([1, 2, 3]), t.new_empty((3, 4)), t.new_zeros((2, 3))]
    kinds = [torch.Tensor([1, 2]), torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), torch.tensor(np.zeros(2))]
    x = torch.tensor([1.0], requires_grad=True)
    return (
        [(x.type(), str(x.device), x.size()) for x in made], [(x.type(), str(x)) for x in kinds],
        x.data, str(x.dtype), tuple(x.shape), x.grad, x.grad_fn, x.is_leaf, x.requires_grad,
    )  # fmt: skip


@program("002:2229-2236", compiles=False)
def empty_tensors(run):
    try:
        torch.tensor()
    except TypeError:
        pass
    else:
        raise AssertionError("torch.tensor() needs data")
    return torch.Tensor(), torch.tensor(()), str(torch.Tensor()), tuple(torch.empty([]).shape)


@program("002:2250-2280")
def numpy_bridge(run):
    a = np.ones(5)
    b = torch.from_numpy(a)
    np.add(a, 1, out=a)
    text = str(b)
    t = torch.ones(5)
    n = t.numpy()
    t.add_(1)
    assert n.tolist() == [2.0] * 5
    assert run(lambda x: x * 2, b).tolist() == [4.0] * 5
    flipped = np.arange(6.0)[::-1]
    return text, str(b[:3]), n, torch.from_numpy(flipped.copy()).float(), np.add(t, 1), np.mean(t.numpy())


@program("002:2282-2300", compiles=False)
def items(run):
    a = torch.zeros((3, 2))
    a[0, 1] = 100
    x = torch.tensor([[0.5, 2.1489]])
    return str(a), a[0], a[:, 0], a[..., -1], x[0, 1].item(), str(x[0, 1])


@program("002:2379-2468")
def typed_constructors(run):
    a = torch.FloatTensor([[1, 2, 3], [4, 5, 6]])
    assert a[1][2] == 6.0
    a[0][1] = 8
    zeros = torch.IntTensor(2, 4).zero_()
    kinds = [torch.Tensor, torch.DoubleTensor, torch.ShortTensor, torch.IntTensor, torch.LongTensor]
    made = [kind([[1, 2], [3, 4], [5, 6]]) for kind in kinds]
    short, long = torch.ShortTensor([[1, 2], [3, 4]]), torch.LongTensor([[5, 6], [7, 8]])
    joined = run(lambda a, b: torch.cat([a, b], 0), short, long)
    return a, zeros, [(str(x), x.type()) for x in made], joined


@program("002:2429-2436, 002:2471-2499")
def conversions(run):
    torch.set_default_tensor_type(torch.FloatTensor)
    tensor = torch.tensor(normal(3, 4) * 10)

    def convert(x):
        return [
            x.float(), x.char(), x.abs().byte(), x.long(), x.half(), x.int(), x.double(), x.short(), x.bool(),
            x.type(torch.float64), x.to(torch.int32), x.type_as(torch.IntTensor(3)), x.cpu(),
            x.int() + x.long(), x.int() + x, x.int() * 2.5, x.double() + x,
        ]  # fmt: skip

    assert isinstance(tensor.type(torch.FloatTensor), torch.FloatTensor)
    return run(convert, tensor)


@program("002:1958-2007, 002:351-364, 002:1934-1943", compiles=False, torch=False)
def devices(run):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.cuda.device_count() == 0 and f"Using {device} device" == "Using cpu device"
    a = torch.Tensor([[2, 3], [4, 8], [7, 9]]).to(device)
    assert a.device == device and torch.ones_like(a, device=device).device.type == "cpu"
    torch.cuda.empty_cache()
    assert torch.version.cuda is None and torch.backends.cudnn.version() is None
    for ask in (torch.cuda.current_device, lambda: torch.cuda.get_device_name(0), a.cuda):
        try:
            ask()
        except AssertionError as error:
            assert "CUDA" in str(error)
        else:
            raise AssertionError("there is no GPU")


@program("002:2510-2527")
def images(run):
    tensor = torch.rand(3, 8, 6)

    def to_bytes(tensor):
        return torch.clamp(tensor * 255, min=0, max=255).byte().permute(1, 2, 0)

    image = run(to_bytes, tensor).cpu().numpy()
    assert image.shape == (8, 6, 3) and image.dtype == np.uint8
    back = run(lambda x: x.permute(2, 0, 1).float() / 255, torch.from_numpy(np.asarray(image)))
    assert float((back - tensor).abs().max()) <= 1 / 255
    assert isinstance(torch.rand(1).item(), float)


@program("003:342-391, 002:2260-2300", compiles=False)
def printed_forms(run):
    x = torch.ones(2, 2, requires_grad=True)
    big = torch.arange(2000.0)
    return [
        str(t)
        for t in (
            torch.arange(1, 11).reshape(2, 5), torch.tensor([1.5, 1000.25]), torch.tensor([1e-8, 1.0]),
            torch.tensor([True, False]), torch.zeros(2, 0), x, x + 2, torch.tensor(normal(2, 3, 2)), big,
            torch.tensor([float("nan"), float("inf"), -1.0]), torch.zeros(2, dtype=torch.float64), x.size(),
            torch.tensor(3), torch.tensor([1, 2], dtype=torch.int32),
        )
    ]  # fmt: skip
