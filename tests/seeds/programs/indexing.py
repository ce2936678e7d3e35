"""Indexing, shaping, joining, scattering."""

import tracecomp as torch
from tests.seeds.harness import normal, program


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


@program("002:2539-2576")
def slices(run):
    def cut(a):
        return [
            a[0], a[0, 0], a[1, 2, 2, 4], a[:2], a[:2, :1, :, :], a[:2, 1:, :, :], a[:2, -2:, :, :],
            a[:, :, 0:28:2, 0:28:2], a[:, :, ::2, ::2], a[...], a[0, ...], a[:, 1, ...], a[..., :2],
        ]  # fmt: skip

    return run(cut, tensor(4, 3, 28, 28))


@program("002:2561-2567, 003:299-316")
def picking(run):
    def pick(a):
        return [
            a.index_select(0, torch.tensor([0, 2])), a.index_select(1, torch.tensor([0, 2])),
            a.index_select(2, torch.arange(8)), torch.narrow(a, 0, 0, 2), a.select(dim=1, index=0),
            torch.take_along_dim(a, a.argmax(dim=3, keepdim=True), dim=3),
            torch.take_along_dim(a, a.argsort(dim=2), dim=2), torch.gather(a, 1, a.argsort(dim=1)),
        ]  # fmt: skip

    a = torch.tensor([[3, 7, 2], [2, 8, 3]])
    taken = run(torch.take, a, torch.tensor([0, 1, 5]))
    assert taken.tolist() == [3, 7, 3]
    return run(pick, tensor(4, 3, 12, 12)), taken


@program("002:2578-2586, 002:2336")
def masks(run):
    a = tensor(3, 4)

    def select(a):
        mask = a.ge(0.5)
        return mask, torch.masked_select(a, mask), a[a > 0.3]

    def assign(a):
        b = a.clone()
        b[b > 0] = 7
        return b

    return run(select, a), run(assign, a)


@program("003:304, 002:2929-2936")
def nonzero(run):
    def positions(t):
        return torch.nonzero(t), torch.nonzero(t == 0), torch.nonzero(t).size(0), torch.nonzero(t == 0).size(0)

    diagonal = torch.tensor([[0.6, 0, 0, 0], [0, 0.4, 0, 0], [0, 0, 1.2, 0], [0, 0, 0, -0.4]])
    return run(positions, torch.tensor([1, 1, 1, 0, 1])), run(positions, diagonal)


@program("002:2282-2286, 002:2603-2604")
def assignment(run):
    def assign():
        a = torch.ones(4, 4)
        a[:, 1] = 0
        a[0, 1] = 100
        return a

    return run(assign)


@program("002:1404, 002:2675-2683")
def fancy_indexing(run):
    def pick(x, y):
        return x[range(x.size(0)), y], x[torch.tensor([2, 0, 1])], x[:, torch.arange(x.size(1) - 1, -1, -1).long()]

    x, y = tensor(3, 5), torch.tensor([0, 4, 2])
    shuffled = x[torch.randperm(x.size(0))]
    assert torch.equal(shuffled.sum(0).sort()[0].sum(), shuffled.sum(0).sort()[0].sum())
    try:
        x[::-1]
    except ValueError as error:
        return run(pick, x, y), str(error)
    raise AssertionError("negative steps are refused")


@program("000:129-151, 002:2633-2684")
def view_and_reshape(run):
    def shape(x, tt):
        t = x.transpose(0, 1)
        return [
            x.view(5, 3, 4), x.reshape(5, 3, 4), x.view(-1, 12), t.reshape(12, 5), torch.reshape(x, (6, 10)),
            tt.view(3, 2), tt.view(-1), tt.view(2, -1),
        ]  # fmt: skip

    x = tensor(3, 4, 5)
    tt = torch.tensor([-0.3623, -0.6115, 0.7283, 0.4699, 2.3261, 0.1599])
    try:
        x.transpose(0, 1).view(12, 5)
    except RuntimeError:
        pass
    else:
        raise AssertionError("view needs compatible strides")
    resized = torch.arange(6).resize_(2, 2)
    return run(shape, x, tt), resized


@program("002:2686-2826")
def squeeze_and_unsqueeze(run):
    x = torch.Tensor([1, 2, 3, 4])

    def change(x, m):
        up = [torch.unsqueeze(x, d) for d in (0, 1, -1, -2)]
        return up, torch.squeeze(m), [torch.squeeze(m, d) for d in (0, 1, 2, 3)]

    errors = []
    for dim in (-3, 2):
        try:
            torch.unsqueeze(x, dim)
        except IndexError as error:
            errors.append(str(error).splitlines()[0])
    a = torch.Tensor([1, 2, 3, 4])
    assert a.unsqueeze_(1) is a and a.shape == (4, 1)
    return run(change, x, torch.zeros(2, 1, 2, 1, 2)), errors, a, str(torch.zeros(2, 1, 1))


@program("000:99-127, 002:2852-2874, 003:301-320")
def reordering(run):
    def reorder(x):
        return [
            x.permute(2, 0, 1), x.transpose(0, 2), torch.transpose(x, 0, 2), torch.movedim(x, 1, 0),
            torch.moveaxis(x, 0, 2), torch.swapaxes(x, 0, 1), torch.swapdims(x, 1, 2), x[0].t(), x[0].T,
            torch.flatten(x, 1),
        ]  # fmt: skip

    x = torch.ones(10, 10)
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous()
    assert x.transpose(0, 1).contiguous().is_contiguous()
    sizes = tensor(2, 3, 4, 5).transpose(3, 0).transpose(2, 1).transpose(3, 2).shape
    return run(reorder, tensor(3, 4, 5)), sizes


@program("002:2945-2951, 003:319")
def expansion(run):
    def grow(t, y):
        return torch.reshape(t, (64, 12, 1, 1)).expand(64, 12, 7, 7), torch.tile(y, (2, 2)), y.repeat(3, 1, 2)

    return run(grow, tensor(64, 12), tensor(2, 3))


@program("003:288-324, 002:2907-2919")
def joining_and_splitting(run):
    def join(a, b):
        return [
            torch.cat([a, a, a], dim=1), torch.concat((a, b)), torch.stack([a, b], dim=0), torch.hstack((a, b)),
            torch.vstack((a, b)), torch.dstack((a, b)), torch.column_stack((a, b)), torch.vstack((a, b)),
            torch.chunk(a, 3, dim=1), torch.split(a, [1, 3]), torch.split(a, 2), torch.tensor_split(a, (1, 3)),
            torch.hsplit(a, [2, 3]), torch.vsplit(a, 2), torch.dsplit(torch.stack([a, b], 2), 2), torch.unbind(a),
            torch.where(a > 0, a, b), torch.conj(a),
        ]  # fmt: skip

    return run(join, tensor(4, 6), tensor(4, 6, seed=1))


@program("003:343-391")
def scatter_worked_cases(run):
    def scatter():
        src = torch.arange(1, 11).reshape((2, 5))
        index = torch.tensor([[0, 1, 2, 0]])
        one = torch.zeros(3, 5, dtype=src.dtype).scatter_(0, index, src)
        index = torch.tensor([[0, 2, 4], [1, 2, 3]])
        two = torch.zeros(3, 5, dtype=src.dtype).scatter_(1, index, src)
        label = torch.arange(3).view(-1, 1)
        return one, two, torch.zeros(3, 3).scatter_(1, label, 1)

    one, two, three = run(scatter)
    assert one.tolist() == [[1, 0, 0, 4, 0], [0, 2, 0, 0, 0], [0, 0, 3, 0, 0]]
    assert two.tolist() == [[1, 0, 2, 0, 3], [0, 6, 7, 8, 0], [0, 0, 0, 0, 0]]
    assert torch.equal(three, torch.eye(3))
    return one, two, three


@program("002:2920-2926, 003:308-309, 002:4069")
def one_hot_and_scatter_add(run):
    def encode(tensor):
        one_hot = torch.zeros(tensor.size(0), 4).long()
        one_hot.scatter_(dim=1, index=torch.unsqueeze(tensor, dim=1), src=torch.ones(tensor.size(0), 4).long())
        added = torch.zeros(4).scatter_add(0, tensor, torch.ones(4) * 0.5)
        times = torch.full((4,), 2.0).scatter_(0, tensor, 3.0, reduce="multiply")
        return one_hot, added, times

    return run(encode, torch.tensor([0, 2, 1, 2]))


@program("002:2628-2630, 002:2405-2410, 002:2601-2629")
def four_additions(run):
    x, y = tensor(5, 3), tensor(5, 3, seed=1)

    def add(x, y):
        result = torch.Tensor(5, 3)
        torch.add(x, y, out=result)
        z = y.clone()
        z.add_(x)
        return x + y, torch.add(x, y), result, z

    before = y.clone()
    in_place = run.compile(lambda a, b: a.add_(b))
    for _ in range(3):
        in_place(y, x)
    assert torch.allclose(y, before + 3 * x)
    return run(add, x, y), y


@program("002:2405-2410")
def underscore_operations(run):
    def change(x, m):
        x = x.clone()
        out = [x.acos_().clone(), x.ceil_().clone(), x.clamp_(0.2, 0.9).clone(), x.addcmul_(m, m, value=0.5).clone()]
        b = torch.ones(3, 3)
        return [*out, b.addbmm_(m.expand(2, 3, 3), m.expand(2, 3, 3)), x.mul_(2).sqrt_().neg_(), b.copy_(x)]

    return run(change, tensor(3, 3).clamp(-1, 1), tensor(3, 3, seed=2))
