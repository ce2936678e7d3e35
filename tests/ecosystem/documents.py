"""Examples of tutorials with libraries around PyTorch: Lightning before 2.0, Sacred, OpenCV, torchvision."""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

from tests.ecosystem.kit import Kit


def _lightning_trainer(pl: Any, **options: Any) -> Any:
    warnings.simplefilter("ignore")
    return pl.Trainer(
        max_epochs=2, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
        enable_checkpointing=False, **options,
    )  # fmt: skip


def lightning_trains_with_several_optimizers(kit: Kit) -> None:
    """``optimizer_idx``, frequencies, schedulers by step, ``*_epoch_end``, as before version 2.0."""
    import pytorch_lightning as pl

    if int(pl.__version__.partition(".")[0]) > 1:
        return
    torch, seen = kit.torch, []

    class System(pl.LightningModule):
        def __init__(self, width: int = 3) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.generator, self.critic = torch.nn.Linear(4, width), torch.nn.Linear(width, 1)

        def forward(self, x: Any) -> Any:
            return self.critic(torch.tanh(self.generator(x)))

        def training_step(self, batch: Any, batch_idx: int, optimizer_idx: int) -> Any:
            if batch_idx == 2:
                return None  # skips the batch
            loss = self(batch[0]).mean() * (1 - 2 * optimizer_idx) + (self(batch[0]) ** 2).mean()
            self.log_dict({f"loss{optimizer_idx}": loss}, on_step=True, on_epoch=True, prog_bar=True)
            return {"loss": loss, "n": batch_idx}

        def training_epoch_end(self, outputs: Any) -> None:
            seen.append(sum(float(o["n"]) for part in outputs for o in part))

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch[0]).sum()

        def validation_epoch_end(self, outputs: Any) -> None:
            self.log("val", torch.stack(outputs).sum())

        def configure_optimizers(self) -> Any:
            generator = torch.optim.Adam(self.generator.parameters(), lr=0.01)
            critic = torch.optim.SGD(self.critic.parameters(), lr=0.02)
            schedule = torch.optim.lr_scheduler.ExponentialLR(generator, 0.9)
            return (
                {"optimizer": critic, "frequency": 2},
                {"optimizer": generator, "frequency": 1, "lr_scheduler": {"scheduler": schedule, "interval": "step"}},
            )

    model = kit.fill(System())
    data = torch.utils.data.TensorDataset(kit.normal(10, 4))
    loader = torch.utils.data.DataLoader(data, 2)
    trainer = _lightning_trainer(pl)
    trainer.fit(model, loader, loader)
    metrics = {name: value for name, value in trainer.callback_metrics.items() if name.startswith(("loss", "val"))}
    kit.keep(seen=seen, weight=model.generator.weight, critic=model.critic.weight, width=model.hparams.width, **metrics)
    model.freeze()
    kit.keep(frozen=[p.requires_grad for p in model.parameters()])


def lightning_cuts_time_into_pieces(kit: Kit) -> None:
    """``truncated_bptt_steps`` and ``hiddens``, as before version 2.0."""
    import pytorch_lightning as pl

    if int(pl.__version__.partition(".")[0]) > 1:
        return
    torch = kit.torch

    class Recurrent(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(3, 4, batch_first=True)
            self.truncated_bptt_steps = 2

        def training_step(self, batch: Any, batch_idx: int, hiddens: Any) -> Any:
            out, hiddens = self.lstm(batch[0], hiddens)
            return {"loss": (out**2).mean(), "hiddens": hiddens}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = kit.fill(Recurrent())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(kit.normal(4, 6, 3)), 2)
    trainer = _lightning_trainer(pl)
    trainer.fit(model, loader)
    kit.keep(weights=model.lstm.weight_hh_l0, steps=trainer.global_step)


def sacred_seeds_and_injects(kit: Kit) -> None:
    """A seed that reaches the tensors, config scopes, captured arguments, an ingredient and the observer's files."""
    import json
    from pathlib import Path

    from sacred import Experiment, Ingredient
    from sacred.observers import FileStorageObserver

    data = Ingredient("data")
    data.add_config(scale=2.0)

    @data.capture
    def load(scale: float) -> Any:
        return kit.normal(4, 3) * scale

    experiment = Experiment("fit", ingredients=[data], save_git_info=False)
    experiment.add_config(lr=0.1, steps=3, optimizer="sgd")

    @experiment.capture
    def make(parameters: Any, lr: float, optimizer: str) -> Any:
        return {"sgd": kit.torch.optim.SGD, "adam": kit.torch.optim.Adam}[optimizer](parameters, lr)

    @experiment.main
    def run(steps: int, _run: Any, _seed: int) -> float:
        model = kit.fill(kit.torch.nn.Linear(3, 1))
        optimizer, x = make(model.parameters()), load()
        for step in range(steps):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            _run.log_scalar("loss", float(loss), step)
        drawn.append(kit.torch.rand(3).tolist())
        return float(loss)

    drawn: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        experiment.observers.append(FileStorageObserver(folder))
        result = experiment.run(config_updates={"lr": 0.2, "seed": 5, "data": {"scale": 1.0}}).result
        again = experiment.run(config_updates={"lr": 0.2, "seed": 5, "data": {"scale": 1.0}}).result
        metrics = json.loads((Path(folder) / "1" / "metrics.json").read_text())
    kit.keep(result=result, again=again, losses=metrics["loss"]["values"], repeated=[drawn[0] == drawn[1]])


def opencv_exchanges_images(kit: Kit) -> None:
    import cv2

    image = kit.ints(256, 9, 7, 3)
    gray = cv2.cvtColor(image.to(kit.torch.uint8).numpy(), cv2.COLOR_BGR2GRAY)
    kit.keep(gray=kit.torch.from_numpy(gray).float() / 255)


def torchvision_tells_boxes_apart(kit: Kit) -> None:
    from torchvision import ops
    from torchvision.transforms import functional as f

    corners = kit.normal(12, 2, name="corners").abs() * 10
    boxes = kit.torch.cat([corners, corners + kit.normal(12, 2, name="sizes").abs() * 10 + 1], 1)
    kit.keep(kept=ops.nms(boxes, kit.normal(12), 0.3), iou=ops.box_iou(boxes, boxes))
    kit.keep(aligned=ops.roi_align(kit.normal(1, 2, 20, 20), [boxes[:3]], 4, sampling_ratio=2))
    kit.keep(focal=ops.sigmoid_focal_loss(kit.normal(6), kit.ints(2, 6).float(), reduction="mean"))
    kit.keep(image=f.to_tensor(f.to_pil_image(kit.normal(3, 8, 8).clamp(0, 1))))


DOCUMENTS = {
    "pytorch_lightning": [lightning_trains_with_several_optimizers, lightning_cuts_time_into_pieces],
    "sacred": [sacred_seeds_and_injects],
    "cv2": [opencv_exchanges_images],
    "torchvision": [torchvision_tells_boxes_apart],
}
"""Library -> programs."""
