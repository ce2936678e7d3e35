"""A character-level GPT learns the text of Python's own help topics, then writes some.

python examples/char_gpt.py [--steps 200]
"""

from __future__ import annotations

import argparse
import time
from pydoc_data.topics import topics

import tracecomp as torch
from tracecomp import nn
from tracecomp.nn import functional as F

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 2, 16

TEXT = "\n".join(topics[name] for name in sorted(topics))[:200_000]
LETTERS = sorted(set(TEXT))
CODE = {letter: i for i, letter in enumerate(LETTERS)}


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each after a layer norm and with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, _ = x.shape
        q, k, v = (
            part.view(n, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, 2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.letters(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(hidden)))


def train(compiled: bool, steps: int) -> tuple[GPT, list[float]]:
    torch.manual_seed(0)
    data = torch.tensor([CODE[letter] for letter in TEXT])
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    if compiled:
        step = torch.compile(step)
    picks = torch.Generator().manual_seed(1)
    losses = []
    start = time.perf_counter()
    for i in range(steps):
        at = torch.randint(0, len(data) - CONTEXT - 1, (BATCH, 1), generator=picks) + torch.arange(CONTEXT)
        losses.append(step(data[at], data[at + 1]).item())
        if (i + 1) % 50 == 0:
            print(f"step {i + 1}: loss {losses[-1]:.4f}")
    way = f"compiled, {len(step.graphs)} graph" if compiled else "eager"
    print(f"{way}: {time.perf_counter() - start:.1f} s\n")
    return model, losses


def write(model: GPT, length: int = 200) -> str:
    """Text that the model finds likely, letter by letter."""
    model.eval()
    letters = torch.tensor([[CODE["\n"]]])
    with torch.no_grad():
        for _ in range(length):
            logits = model(letters[:, -CONTEXT:])[:, -1]
            letters = torch.cat([letters, torch.multinomial(logits.softmax(-1), 1)], 1)
    return "".join(LETTERS[i] for i in letters[0].tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    (_, eager), (model, compiled) = train(False, steps), train(True, steps)
    apart = max(abs(a - b) for a, b in zip(eager[:50], compiled[:50], strict=True))
    print(f"greatest difference of the first 50 losses: {apart:.1e}")
    print(write(model))
