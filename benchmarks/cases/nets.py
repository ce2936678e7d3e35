"""The models, in torch's words; ``lib`` is torch or tracecomp."""

from __future__ import annotations

from itertools import pairwise
from typing import Any


def mlp(lib: Any, widths: tuple[int, ...]) -> Any:
    """Linear layers with relu between."""
    nn = lib.nn
    layers: list[Any] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet(lib: Any) -> Any:
    """LeNet-5 with relu and max pooling, for 28 x 28 grey images."""
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def resnet(lib: Any, widths: tuple[int, ...]) -> Any:
    """Two residual blocks per width, each width at half the side of the one before; 3 channels to 10 classes."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.skip = nn.Conv2d(before, after, 1, stride=stride, bias=False) if before != after else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = lib.relu(self.bn1(self.conv1(x)))
            return lib.relu(self.bn2(self.conv2(y)) + self.skip(x))

    blocks: list[Any] = []
    for k, (before, after) in enumerate(zip((widths[0], *widths), widths, strict=False)):
        blocks += [Block(before, after, 1 if k == 0 else 2), Block(after, after, 1)]
    return nn.Sequential(
        nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(), nn.Sequential(*blocks),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10),
    )  # fmt: skip


def separable(lib: Any, widths: tuple[int, ...]) -> Any:
    """Depthwise 3x3 and 1x1 convolutions in turn, as in MobileNet."""
    nn = lib.nn
    layers = [nn.Conv2d(3, widths[0], 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU6()]
    for before, after in pairwise(widths):
        layers += [
            nn.Conv2d(before, before, 3, stride=1 if before == after else 2, padding=1, groups=before, bias=False),
            nn.BatchNorm2d(before),
            nn.ReLU6(),
            nn.Conv2d(before, after, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU6(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def gpt(lib: Any, vocabulary: int, width: int, heads: int, layers: int, context: int) -> Any:
    """A decoder-only transformer with pre-norm blocks."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (p.view(b, t, heads, c // heads).transpose(1, 2) for p in self.qkv(self.ln1(x)).split(c, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.fc2(functional.gelu(self.fc1(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, index: Any) -> Any:
            x = self.tokens(index) + self.positions(lib.arange(index.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln(x))

    return GPT()


def lstm(lib: Any, vocabulary: int, width: int, layers: int) -> Any:
    """Embedding, LSTM over time, a linear layer at every step."""
    nn = lib.nn

    class Language(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)
            self.head = nn.Linear(width, vocabulary)

        def forward(self, index: Any) -> Any:
            return self.head(self.lstm(self.tokens(index))[0])

    return Language()
