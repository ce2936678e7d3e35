"""Examples of tutorials: trainers like Keras, audio, augmentation, monitors and job launchers."""

from __future__ import annotations

import tempfile
from typing import Any

from tests.ecosystem.kit import Kit


def keras_like_trainers_fit(kit: Kit) -> None:
    """torch4keras: compile and fit, with a custom metric and callbacks."""
    from torch4keras.callbacks import Callback
    from torch4keras.model import BaseModel

    torch, epochs = kit.torch, []

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    class Counting(Callback):
        def on_epoch_end(self, global_step: int, epoch: int, logs: Any = None) -> None:
            epochs.append(float(logs["loss"]))

    model = kit.fill(Model())
    x = kit.normal(16, 4)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long()), 4)
    model.compile(
        loss=torch.nn.CrossEntropyLoss(), optimizer=torch.optim.Adam(model.parameters(), 0.01), metrics=["acc"]
    )
    model.fit(data, epochs=2, callbacks=[Counting()], verbose=0)
    kit.keep(losses=epochs, weight=model.layer.weight)


def torchkeras_fits(kit: Kit) -> None:
    """torchkeras: a model with metrics is trained, validated and saved by name."""
    from torchkeras import KerasModel
    from torchkeras.metrics import Accuracy

    torch = kit.torch
    x = kit.normal(16, 4)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x[:, :1] > 0).float()), 4)
    net = kit.fill(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)))
    model = KerasModel(
        net, loss_fn=torch.nn.BCEWithLogitsLoss(), optimizer=torch.optim.Adam(net.parameters(), 0.01),
        metrics_dict={"acc": Accuracy()},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        table = model.fit(data, data, epochs=2, ckpt_path=f"{folder}/best", plot=False, cpu=True)
    kit.keep(weight=net[0].weight, train=table["train_loss"], val=table["val_loss"], accuracy=table["val_acc"])


def rec4torch_recommends(kit: Kit) -> None:
    from rec4torch.inputs import DenseFeat, SparseFeat
    from rec4torch.models import DeepFM

    torch = kit.torch
    features = [SparseFeat("user", 5, 4), SparseFeat("item", 6, 4), DenseFeat("age", 1)]
    model = kit.fill(DeepFM(features, features)).eval()
    rows = torch.cat([kit.ints(5, 20, 1), kit.ints(6, 20, 1, name="j"), kit.ints(9, 20, 1, name="k")], 1).float()
    kit.forward_backward(model, rows)


def bert4torch_encodes(kit: Kit) -> None:
    from bert4torch.models import BERT

    torch = kit.torch
    model = BERT(
        vocab_size=30, hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=32,
        hidden_act="gelu", max_position_embeddings=20, type_vocab_size=2, with_pool=True,
    )  # fmt: skip
    kit.fill(model).eval()
    tokens = [kit.ints(29, 2, 8) + 1, torch.zeros(2, 8, dtype=torch.long)]
    hidden, pooled = model(tokens)
    (hidden * kit.normal(2, 8, 16)).sum().backward()
    kit.keep(hidden=hidden, pooled=pooled, gradient=model.embeddings.word_embeddings.weight.grad)


def torchaudio_transforms(kit: Kit) -> None:
    """Spectrograms and filters; torchaudio's own compiled filters are tracecomp's."""
    from torchaudio import functional as f
    from torchaudio import transforms as t

    x = kit.normal(2, 1600) * 0.1
    mel = t.MelSpectrogram(16000, n_fft=128, n_mels=10)
    kit.keep(mel=mel(x), decibels=t.AmplitudeToDB()(mel(x)), half=f.resample(x, 16000, 8000))
    wave = x.clone().requires_grad_()
    f.lowpass_biquad(wave, 16000, 500.0).square().sum().backward()
    kit.keep(filtered=f.highpass_biquad(x, 16000, 900.0), gradient=wave.grad, driven=f.overdrive(x))


def albumentations_augments(kit: Kit) -> None:
    import albumentations as a
    from albumentations.pytorch import ToTensorV2

    image = kit.ints(256, 12, 10, 3).to(kit.torch.uint8).numpy()
    steps = a.Compose([a.Resize(8, 8), a.HorizontalFlip(p=1.0), a.Normalize(), ToTensorV2()])
    kit.keep(image=steps(image=image)["image"])


def neptune_watches_offline(kit: Kit) -> None:
    import contextlib
    import io
    import os
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        import neptune

        os.environ["NEPTUNE_PROJECT"] = "some/project"
        run = neptune.init_run(mode="offline", capture_hardware_metrics=False, git_ref=False)
        loss = (kit.normal(4) ** 2).mean()
        run["lr"] = 0.1
        run["train/loss"].append(loss.item())
        run.stop()
        kit.keep(loss=loss, kept=[Path(".neptune/offline").is_dir()])


def torchx_describes_jobs(kit: Kit) -> None:
    from torchx.components.dist import ddp

    (role,) = ddp("--lr", "0.1", script="main.py", j="1x2").roles
    assert "main.py" in " ".join(role.args)
    kit.keep(replicas=role.num_replicas)


TOOLKITS = {
    "torch4keras": [keras_like_trainers_fit],
    "torchkeras": [torchkeras_fits],
    "rec4torch": [rec4torch_recommends],
    "bert4torch": [bert4torch_encodes],
    "torchaudio": [torchaudio_transforms],
    "albumentations": [albumentations_augments],
    "neptune": [neptune_watches_offline],
    "torchx": [torchx_describes_jobs],
}
"""Library -> programs."""
