"""einops by name: functions and layers."""

import pytest

import tracecomp as torch
from tests.seeds.harness import normal, program, settle
from tracecomp import nn

einops = pytest.importorskip("einops")
from einops import einsum, pack, rearrange, reduce, repeat, unpack  # noqa: E402
from einops.layers.tracecomp import EinMix, Rearrange, Reduce  # noqa: E402


def tensor(*shape, seed=0):
    return torch.from_numpy(normal(*shape, seed=seed))


class PatchEmbedding(nn.Module):
    def __init__(self, in_channels=3, patch_size=16, emb_size=768, img_size=224):
        self.patch_size = patch_size
        super().__init__()
        self.projection = nn.Sequential(
            nn.Conv2d(in_channels, emb_size, kernel_size=patch_size, stride=patch_size),
            Rearrange("b e (h) (w) -> b (h w) e"),
        )

    def forward(self, x):
        return self.projection(x)


@program("000:3-21")
def patch_embedding(run):
    net = settle(PatchEmbedding(3, 4, 12))
    x = tensor(2, 3, 16, 8)

    def gradients(x):
        return torch.autograd.grad((net(x) ** 2).sum(), list(net.parameters()))

    return run(lambda x: net(x).detach(), x), run(gradients, x), "Rearrange('b e (h) (w) -> b (h w) e')" in str(net)


@program("000:23-39")
def rearranging(run):
    image = tensor(1, 2, 3, 2)
    with pytest.raises(einops.EinopsError):
        rearrange(image, "b c h w -> b (c h w)", c=2, h=2, w=3)
    flat = run(lambda x: rearrange(x, "b c h w -> b (c h w)", c=2, h=3, w=2), image)
    return flat, run(lambda x: rearrange(x, "b h w c -> b (h w) c"), tensor(2, 3, 4, 5))


@program("000:41-61")
def repeating(run):
    a = tensor(2, 3, 4)
    with pytest.raises(einops.EinopsError):
        repeat(a, "b n e -> c n e", c=4)

    def grow(token, a):
        return (
            repeat(token, "() n e -> b n e", b=16), repeat(a, "b n e -> (r b) n e", r=16),
            repeat(a, "b n e -> b (r n) e", r=16),
        )  # fmt: skip

    return run(grow, tensor(1, 1, 8), a)


@program("000:63-91")
def reducing(run):
    def pool(x):
        y1 = reduce(x, "b c (h1 h2) (w1 w2) -> b c h1 w1", "max", h2=2, w2=2)
        return (
            y1, rearrange(y1, "b (c h2 w2) h1 w1 -> b c (h1 h2) (w1 w2)", h2=2, w2=2),
            reduce(x, "b c (h1 h2) (w1 w2) -> b c h1 w1", "max", h1=6, w1=4),
            reduce(x, "b c (h1 h2) (w1 w2) -> b c h1 w1", "mean", h1=6, w1=4),
            reduce(x, "b c h w -> b c", "mean"), reduce(x, "b c h w -> h w", "min"), reduce(x, "b c h w ->", "sum"),
        )  # fmt: skip

    layer = nn.Sequential(nn.Conv2d(8, 8, 3), Reduce("b c (h 2) (w 2) -> b c h w", "max"))
    settle(layer)
    time_first = run(lambda x: reduce(x, "t b c -> b c", "max"), tensor(20, 3, 6))
    return time_first, run(pool, tensor(3, 8, 12, 8)), run(lambda x: layer(x).detach(), tensor(2, 8, 10, 10))


@program("000:1-91")
def packing_and_einsum(run):
    mix = settle(EinMix("t (h c) -> t h d", weight_shape="h c d", bias_shape="h d", h=2, c=3, d=4))

    def together(x, y):
        packed, shapes = pack([x, y], "b *")
        return packed, unpack(packed, shapes, "b *"), einsum(x, x, "b i j, b k j -> b i k"), mix(y[:, :6]).detach()

    return run(together, tensor(4, 2, 3), tensor(4, 7, seed=1))
