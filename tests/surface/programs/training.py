"""A program as users write it: type checkers accept it in strict mode, and it runs."""

from __future__ import annotations

import io

import tracecomp as torch
from tracecomp import Tensor, nn
from tracecomp.distributions import Categorical, Normal
from tracecomp.nn import functional as F
from tracecomp.optim.lr_scheduler import CosineAnnealingLR
from tracecomp.utils.data import DataLoader, Dataset, TensorDataset


class Block(nn.Module):
    def __init__(self, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        result: Tensor = x + self.scale * self.dropout(self.down(hidden))
        return result


class Classifier(nn.Module):
    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, kernel_size=3, padding=1)
        self.embed = nn.Linear(4 * inputs, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv(images.unsqueeze(1)))
        x = F.max_pool2d(x, 1).flatten(1)
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


def batches(count: int) -> DataLoader[tuple[Tensor, ...]]:
    images = torch.rand(count, 4, 4)
    labels = torch.randint(0, 3, (count,))
    data: Dataset[tuple[Tensor, ...]] = TensorDataset(images, labels)
    return DataLoader(data, batch_size=8, shuffle=True)


def train(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], epochs: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    scheduler = CosineAnnealingLR(optimizer, T_max=epochs)
    losses = []
    for _ in range(epochs):
        total = torch.tensor(0.0)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        scheduler.step()
        losses.append(float(total / len(loader)))
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> float:
    model.eval()
    right = sum(int((model(images).argmax(dim=-1) == labels).sum().item()) for images, labels in loader)
    return right / len(loader)


def tensors() -> tuple[Tensor, ...]:
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    x[0, 1:3] = 7.0
    x[x > 9] = 0.0
    values, indices = x.max(dim=1)
    top = torch.topk(x, k=2)
    products = torch.einsum("ij,kj->ik", x, x)
    q, r = torch.linalg.qr(products + 10 * torch.eye(3))
    spectrum = torch.fft.rfft(x, n=8)
    mixed = torch.where(x > 1, x, -x).mean(0, keepdim=True).to(torch.float64)
    both = torch.cat([x, x[None, 0, ::2].expand(3, 2)], dim=1)
    first, *_ = both.split(2, dim=1)
    low, high = torch.aminmax(x)
    x.add_(1.0).clamp_(min=0.0, max=5.0)
    return (
        values, indices, top.values, products, q, r, spectrum.abs(), mixed, first, low + high,
        x.sum((0, 1)), x.std(), x.softmax(-1), x.transpose(0, 1).contiguous().view(-1), ~(x == 2), 1 / (1 + x), x @ x.T,
    )  # fmt: skip


def sampled() -> Tensor:
    normal = Normal(torch.zeros(3), torch.ones(3))
    drawn = normal.rsample((5,))
    choice = Categorical(logits=torch.randn(3)).sample()
    return normal.log_prob(drawn).sum() + choice


@torch.inference_mode()
def best(logits: Tensor) -> int:
    return int(logits.argmax())


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    copy = Classifier(16, 16, 3)
    copy.load_state_dict(torch.load(file))
    return copy


def main() -> None:
    torch.manual_seed(0)
    loader = batches(16)
    model = Classifier(16, 16, 3)
    losses = train(model, loader, epochs=2)
    copy = saved(model)
    step = torch.compile(lambda x: torch.softmax(copy(x), dim=-1).sum())
    print(losses, accuracy(model, loader), float(step(torch.rand(2, 4, 4))), best(torch.eye(3)))
    print(len(tensors()), sampled().shape)


if __name__ == "__main__":
    main()
