"""Products, comparisons, einsum, frames."""

import tracecomp as torch
from tests.seeds.harness import integers, normal, program


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


@program("002:2981-3045")
def matrix_products(run):
    shapes = [
        ((4,), (4,)), ((3, 4), (4, 5)), ((4,), (4, 5)), ((4, 5), (5,)), ((10, 3, 4), (4,)), ((10, 3, 4), (10, 4, 5)),
        ((6,), (2, 6, 3)), ((10, 3, 4), (4, 2)), ((2, 5, 3), (1, 3, 4)), ((2, 1, 3, 4), (5, 4, 2)),
    ]  # fmt: skip
    pairs = [(tensor(*a), tensor(*b, seed=1)) for a, b in shapes]

    def multiply(pairs):
        found = [torch.matmul(a, b) for a, b in pairs]
        found.append(torch.dot(torch.tensor([2, 3]), torch.tensor([2, 1])))
        found.append(torch.mm(pairs[1][0], pairs[1][1]))
        found.append(torch.bmm(pairs[5][0], pairs[5][1]))
        return found

    refused = []
    for fn, a, b in (
        (torch.mm, pairs[5][0], pairs[5][1]), (torch.bmm, pairs[1][0], pairs[1][1]),
        (torch.mm, pairs[1][0], pairs[1][0]), (torch.mul, tensor(3), tensor(4)), (torch.dot, tensor(3), tensor(4)),
    ):  # fmt: skip
        try:
            fn(a, b)
        except RuntimeError:
            refused.append(fn.__name__)
    assert refused == ["mm", "bmm", "mm", "mul", "dot"]
    return run(multiply, pairs)


@program("002:3039-3078, 002:2957-2968, 002:3098-3113")
def products_and_results(run):
    x, y = torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 1], [4, 3]])

    def multiply(x, y, a, b):
        z1, z2 = x * y, x.mul(y)
        z3 = torch.zeros(2, 2, dtype=torch.float32)
        torch.mul(x, y, out=z3)
        return z1, z2, z3, x @ y, x.matmul(y.T), x.sum(), torch.mul(a, 100), torch.mul(a, b), a @ b

    agg = x.sum().item()
    assert agg == 10 and type(agg) is int
    w = tensor(2, 3, 4)
    return run(multiply, x, y, tensor(4, 1), tensor(1, 4)), run(lambda w: torch.bmm(w, w.transpose(1, 2)), w)


@program("002:3116-3121, 002:2938-2943")
def pairwise_distance(run):
    def distances(a, b):
        dist = torch.sqrt(torch.sum((a[:, None, :] - b) ** 2, dim=2))
        grads = torch.autograd.grad(dist.sum(), [a, b])
        return dist.detach(), grads

    a, b = tensor(5, 3).requires_grad_(), tensor(4, 3, seed=1).requires_grad_()
    dist, grads = run(distances, a, b)
    assert torch.allclose(dist, torch.cdist(a, b).detach(), atol=1e-5)
    assert torch.equal(a, a.clone()) and not torch.equal(a, b)
    return dist, grads


@program("002:3123-3129")
def triangles(run):
    return run(lambda: (torch.triu(torch.ones(4, 4)), torch.tril(torch.ones(4, 4)), torch.tril(torch.ones(3, 4), -1)))


@program("004:80-138")
def einsum_rules(run):
    a, b = torch.from_numpy(integers(10, 2, 3)), torch.from_numpy(integers(10, 3, 5, seed=1))

    def contract(a, b):
        return [
            torch.einsum("ik,kj->ikj", a, b), torch.einsum("ik,kj->ij", a, b), torch.einsum("ik,kj->ji", a, b),
            torch.einsum("ik,kj", a, b), torch.einsum("...i->...", a), torch.einsum("ii->i", torch.eye(3)),
        ]  # fmt: skip

    found = run(contract, a, b)
    assert torch.equal(found[1], found[3]) and torch.equal(found[0].sum(1), found[1])
    return found


@program("002:3165-3208")
def einsum_of_lists(run):
    a, v = torch.arange(6).reshape(2, 3), torch.arange(3)

    def contract(a, v, batch, A, l, r):  # noqa: E741
        return [
            torch.einsum("ij->ji", [a]), torch.einsum("ij->", [a]), torch.einsum("ij->j", [a]),
            torch.einsum("ij->i", [a]), torch.einsum("ik,k->i", [a, v]), torch.einsum("ik,kj->ij", [a, a.T]),
            torch.einsum("ij,ij->", [a, a]), torch.einsum("i,j->ij", [v, torch.arange(3, 7)]),
            torch.einsum("ijk,ikl->ijl", [batch, batch.transpose(1, 2)]), torch.einsum("bn,anm,bm->ba", l, A, r),
        ]  # fmt: skip

    A, left, right = tensor(3, 5, 4), tensor(2, 5, seed=1), tensor(2, 4, seed=2)
    found = run(contract, a, v, tensor(3, 2, 5), A, left, right)
    assert torch.allclose(found[-1], torch.nn.functional.bilinear(left, right, A), atol=1e-5)
    big = run(
        lambda x, y: torch.einsum("ijklno,ijlmno->ijkmno", [x, y]),
        tensor(2, 3, 2, 4, 2, 3), tensor(2, 3, 4, 5, 2, 3, seed=1),
    )  # fmt: skip
    return found, big


@program("002:3132-3160")
def einsum_gradients(run):
    def gradients(a, b):
        out = torch.einsum("ik,kj->ij", a, b)
        return torch.autograd.grad((out**2).sum(), [a, b])

    return run(gradients, tensor(2, 3).requires_grad_(), tensor(3, 4, seed=1).requires_grad_())


@program("002:3856-3881")
def frames_of_segments(run):
    def choose(num_frames, K, is_train):
        if is_train:
            if num_frames > K:
                frame_indices = torch.randint(high=num_frames // K, size=(K,), dtype=torch.long)
                frame_indices += num_frames // K * torch.arange(K)
            else:
                frame_indices = torch.randint(high=num_frames, size=(K - num_frames,), dtype=torch.long)
                frame_indices = torch.sort(torch.cat((torch.arange(num_frames), frame_indices)))[0]
        elif num_frames > K:
            frame_indices = num_frames / K // 2
            frame_indices += num_frames // K * torch.arange(K)
        else:
            frame_indices = torch.sort(torch.cat((torch.arange(num_frames), torch.arange(K - num_frames))))[0]
        assert frame_indices.size() == (K,)
        return [frame_indices[i] for i in range(K)]

    sampled = run.compile(choose)
    for num_frames in (20, 5):
        for _ in range(3):
            drawn = torch.stack(sampled(num_frames, 8, True))
            assert bool((drawn < num_frames).all()) and torch.equal(drawn, drawn.sort()[0])
    return run(choose, 20, 8, False), run(choose, 5, 8, False)


@program("002:2597")
def many_functions(run):
    def apply(x):
        return [
            x.abs(), x.exp(), x.sin(), x.sigmoid(), torch.clamp(x, -0.5, 0.5), x.round(), x.mean(), x.std(dim=0),
            x.var(), x.median(), x.max(dim=1), x.min(), x.norm(), x.cumsum(0), x.sort(dim=1), x.topk(2), x.prod(1),
            (x > 0).any(), (x > 0).all(dim=1), x.argmax(), x.argsort(1), torch.logsumexp(x, 1), x.kthvalue(2),
            torch.unique(x.round()), x.flip(0), x.roll(1, 0), torch.lerp(x, x * 2, 0.3), torch.histc(x, 4, -2, 2),
            torch.isnan(x), torch.fmod(x, 0.3), torch.remainder(x, 0.3), torch.linalg.norm(x, dim=1),
        ]  # fmt: skip

    return run(apply, tensor(4, 5))
