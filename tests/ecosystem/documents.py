"""Examples of tutorials with libraries around PyTorch: Lightning before 2.0, Sacred, OpenCV, torchvision."""

from __future__ import annotations

import tempfile
import warnings
from typing import Any

import numpy as np

from tests.ecosystem.kit import Kit
from tests.ecosystem.toolkits import TOOLKITS


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
    with tempfile.TemporaryDirectory() as folder:
        writer = cv2.VideoWriter(f"{folder}/film.avi", cv2.VideoWriter.fourcc(*"MJPG"), 5.0, (32, 16))
        for shade in (0, 100, 200):
            writer.write(np.full((16, 32, 3), shade, np.uint8))
        writer.release()
        film = cv2.VideoCapture(f"{folder}/film.avi")
        sizes = [film.get(p) for p in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_COUNT)]
        frames = [kit.torch.from_numpy(film.read()[1]).float().mean() for _ in range(3)]
        film.release()
    kit.keep(sizes=sizes, frames=kit.torch.stack(frames).round(decimals=-1))
    gray = cv2.cvtColor(image.to(kit.torch.uint8).numpy(), cv2.COLOR_BGR2GRAY)
    kit.keep(gray=kit.torch.from_numpy(gray).float() / 255)


def torchvision_reads_data_sets(kit: Kit) -> None:
    """The files of MNIST, and pictures in folders, as after a download."""
    from pathlib import Path

    from PIL import Image
    from torchvision import datasets, transforms

    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for part, name, data in (("t10k", "images-idx3", images), ("t10k", "labels-idx1", np.array([3, 7], np.uint8))):
            head = np.array([0x800 + data.ndim, *data.shape], ">i4").tobytes()
            for stem in (part, "train"):
                (raw / f"{stem}-{name}-ubyte").write_bytes(head + data.tobytes())
        mnist = datasets.MNIST(folder, train=True, transform=transforms.ToTensor())
        (Path(folder) / "pictures" / "cat").mkdir(parents=True)
        Image.fromarray(images[0]).save(Path(folder) / "pictures" / "cat" / "a.png")
        pictures = datasets.ImageFolder(f"{folder}/pictures", transforms.ToTensor())
        kit.keep(image=mnist[1][0], labels=[label for _, label in mnist], picture=pictures[0][0])


def torchvision_tells_boxes_apart(kit: Kit) -> None:
    from torchvision import ops
    from torchvision.transforms import functional as f

    corners = kit.normal(12, 2, name="corners").abs() * 10
    boxes = kit.torch.cat([corners, corners + kit.normal(12, 2, name="sizes").abs() * 10 + 1], 1)
    kit.keep(kept=ops.nms(boxes, kit.normal(12), 0.3), iou=ops.box_iou(boxes, boxes))
    kit.keep(aligned=ops.roi_align(kit.normal(1, 2, 20, 20), [boxes[:3]], 4, sampling_ratio=2))
    kit.keep(focal=ops.sigmoid_focal_loss(kit.normal(6), kit.ints(2, 6).float(), reduction="mean"))
    kit.keep(image=f.to_tensor(f.to_pil_image(kit.normal(3, 8, 8).clamp(0, 1))))


def lightning_logs_stops_and_saves(kit: Kit) -> None:
    """A data module, logged values by hook, early stopping, and hyperparameters that a checkpoint restores."""
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import Callback, EarlyStopping, ModelCheckpoint

    if int(pl.__version__.partition(".")[0]) > 1:
        return
    torch, hooks = kit.torch, []
    x = kit.normal(8, 4)

    class Data(pl.LightningDataModule):
        def setup(self, stage: str | None = None) -> None:
            self.set = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(self.set, 4)

        val_dataloader = test_dataloader = train_dataloader

    class System(pl.LightningModule):
        def __init__(self, width: int = 1, lr: float = 0.01) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(4, self.hparams.width)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
            self.log("train", loss, on_step=True, on_epoch=True, sync_dist=True)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val", self.layer(batch[0]).sum() * 0 + 1.0)
            self.log_dict({"largest": batch[0].max()}, reduce_fx="max")

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("tested", (self.layer(batch[0]) ** 2).mean() + torch.zeros((), device=self.device))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)]

    class Counting(Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            hooks.append(float(trainer.optimizers[0].param_groups[0]["lr"]))

    with tempfile.TemporaryDirectory() as folder:
        saving = ModelCheckpoint(folder, monitor="val")
        stopping = EarlyStopping("val", patience=2)
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_epochs=9, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, logger=False,
            callbacks=[Counting(), stopping, saving],
        )  # fmt: skip
        model = kit.fill(System(lr=0.05))
        trainer.fit(model, Data())
        (tested,) = trainer.test(model, Data(), verbose=False)
        again = System.load_from_checkpoint(saving.best_model_path)
    metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
    kit.keep(rates=hooks, results=list(tested.values()), weight=again.layer.weight, lr=again.hparams.lr, **metrics)


def sacred_configures_and_parses(kit: Kit) -> None:
    """Config scopes and files, hooks, prefixes, priorities, command lines, nested ingredients and their commands."""
    import json
    from pathlib import Path

    import pytest
    from sacred import Experiment, Ingredient
    from sacred.utils import MissingConfigError, NamedConfigNotFoundError, apply_backspaces_and_linefeeds

    inner = Ingredient("inner")
    inner.add_config(depth=3)
    outer = Ingredient("outer", ingredients=[inner])
    outer.add_config(normalize=True)

    @outer.command
    def stats(normalize: bool) -> int:
        return 10 + normalize

    experiment = Experiment("config", ingredients=[outer], save_git_info=False)
    experiment.captured_out_filter = apply_backspaces_and_linefeeds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conf.json"
        path.write_text(json.dumps({"foo": 42}))
        experiment.add_config(str(path))
    experiment.add_config(b="x", net={"channels": 4, "path": "/tmp"})

    @experiment.config
    def scope() -> None:
        a = 10  # the first number
        if a > 8:
            half = a / 2  # noqa: F841

    @experiment.config_hook
    def hook(config: Any, command_name: str, logger: Any) -> Any:
        return {"hooked": config["a"] + 1}

    @experiment.capture
    def named(a: int, b: str, foo: int = 0, bar: int = 7) -> list[Any]:
        return [a, b, foo, bar]

    @experiment.capture(prefix="net")
    def net(channels: int, path: str) -> list[Any]:
        return [channels, path]

    @experiment.capture
    def missing(nowhere: int) -> None:
        return None

    @experiment.main
    def run(_config: Any, _rnd: Any, _log: Any, _seed: int, hooked: int, outer: Any) -> Any:
        with pytest.raises(MissingConfigError):
            missing()
        with pytest.raises(Exception, match="read-only"):
            _config["a"] = 0
        model = kit.fill(kit.torch.nn.Linear(_config["net"]["channels"], 2))
        y = float(model(kit.normal(3, _config["net"]["channels"])).sum())
        return [named(), named(1, bar=2), net(), hooked, outer["normalize"], y]

    def line(text: str) -> Any:
        return experiment.run_commandline(["prog", *text.split("|")])

    found = line("with|a=3|b=baz|net.channels=5|outer.normalize=False")
    named_first, named_second, read, hooked, normalize, y = found.result
    assert named_first == [3, "baz", 42, 7] and named_second == [1, "baz", 42, 2] and read == [5, "/tmp"]
    assert hooked == 4 and normalize is False
    values = {"a=1": 1, "b=1": 1, "b='1'": "1", "b=[1,2]": [1, 2], 'b=("x",2)': ["x", 2], 'b={"c":1}': {"c": 1},
              "b=hello world": "hello world", "b=(hello,world)": "(hello,world)"}  # fmt: skip
    for text, value in values.items():
        parsed = line(f"print_config|with|{text}").config[text[0]]
        assert list(parsed) == value if isinstance(value, list) else parsed == value, (text, parsed)
    assert line("print_config").config["half"] == 5 and "half" not in found.config
    assert line("outer.stats").result == 11
    with pytest.raises(NamedConfigNotFoundError):
        experiment.run(
            config_updates={"outer": {"unknown": 1}, "seed": 1},
            options={"--enforce_clean": False},
            named_configs=["none"],
        )
    kit.keep(y=y)


DOCUMENTS = {
    "pytorch_lightning": [
        lightning_trains_with_several_optimizers, lightning_cuts_time_into_pieces, lightning_logs_stops_and_saves,
    ],
    "sacred": [sacred_seeds_and_injects, sacred_configures_and_parses],
    "cv2": [opencv_exchanges_images],
    "torchvision": [torchvision_tells_boxes_apart, torchvision_reads_data_sets],
    **TOOLKITS,
}  # fmt: skip
"""Library -> programs."""
