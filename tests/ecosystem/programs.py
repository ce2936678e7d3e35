"""The programs: for each library what its own quick start does, on made-up data."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from typing import Any

from tests.ecosystem.documents import DOCUMENTS
from tests.ecosystem.kit import Kit

Program = Callable[[Kit], None]
PROGRAMS: dict[str, list[Program]] = {library: list(programs) for library, programs in DOCUMENTS.items()}


def program(library: str) -> Callable[[Program], Program]:
    """A program of ``library`` (the name that is imported)."""

    def add(fn: Program) -> Program:
        PROGRAMS.setdefault(library, []).append(fn)
        return fn

    return add


@program("einops")
def einops_rearranges(kit: Kit) -> None:
    from einops import rearrange, reduce, repeat
    from einops.layers.torch import Rearrange

    nn = kit.torch.nn
    model = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, 8))
    kit.forward_backward(kit.fill(model), kit.normal(2, 3, 8, 8))
    x = kit.normal(2, 3, 4)
    kit.keep(a=rearrange(x, "a b c -> c (a b)"), b=reduce(x, "a b c -> b", "mean"), c=repeat(x, "a b c -> a b c 2"))


@program("safetensors")
def safetensors_writes_and_reads(kit: Kit) -> None:
    from safetensors.torch import load_file, load_model, save_file, save_model

    with tempfile.TemporaryDirectory() as folder:
        save_file({"x": kit.normal(3, 4), "h": kit.normal(5).half()}, f"{folder}/a.safetensors")
        found = load_file(f"{folder}/a.safetensors")
        kit.keep(x=found["x"], h=found["h"].float())
        model = kit.fill(kit.torch.nn.Linear(3, 2))
        save_model(model, f"{folder}/m.safetensors")
        other = kit.torch.nn.Linear(3, 2)
        load_model(other, f"{folder}/m.safetensors")
        kit.forward_backward(other, kit.normal(4, 3))


@program("timm")
def timm_vit(kit: Kit) -> None:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=5, depth=2)
    kit.forward_backward(kit.fill(model).eval(), kit.normal(2, 3, 32, 32))


@program("timm")
def timm_resnet_trains(kit: Kit) -> None:
    import timm

    model = kit.fill(timm.create_model("resnet10t", num_classes=5))
    kit.forward_backward(model, kit.normal(2, 3, 64, 64))


@program("timm")
def timm_convnext(kit: Kit) -> None:
    import timm

    kit.forward_backward(kit.fill(timm.create_model("convnext_atto", num_classes=4)).eval(), kit.normal(1, 3, 64, 64))


@program("torchvision")
def torchvision_resnet(kit: Kit) -> None:
    import torchvision

    kit.forward_backward(kit.fill(torchvision.models.resnet18(num_classes=4)), kit.normal(2, 3, 64, 64))


@program("torchvision")
def torchvision_transforms(kit: Kit) -> None:
    import numpy as np
    from PIL import Image
    from torchvision import transforms
    from torchvision.transforms import v2

    image = Image.fromarray((np.arange(40 * 30 * 3) % 251).reshape(40, 30, 3).astype("uint8"))
    steps = [transforms.Resize((20, 16)), transforms.CenterCrop(12), transforms.ToTensor()]
    kit.keep(v1=transforms.Compose([*steps, transforms.Normalize([0.5] * 3, [0.2] * 3)])(image))
    x = kit.normal(3, 20, 16)
    kit.keep(v2=v2.Compose([v2.Resize((10, 8), antialias=True), v2.Normalize([0.1] * 3, [2.0] * 3)])(x))


@program("torchvision")
def torchvision_vit_and_mobilenet(kit: Kit) -> None:
    from torchvision.models import mobilenet_v3_small
    from torchvision.models.vision_transformer import VisionTransformer

    vit = VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=3)
    kit.forward_backward(kit.fill(vit).eval(), kit.normal(2, 3, 32, 32))
    kit.forward_backward(kit.fill(mobilenet_v3_small(num_classes=3)).eval(), kit.normal(1, 3, 64, 64))


def _small(config: Any, **more: Any) -> Any:
    return config(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, **more
    )  # fmt: skip


@program("torchvision")
def torchvision_features(kit: Kit) -> None:
    from torchvision.models import resnet18
    from torchvision.models.feature_extraction import create_feature_extractor

    model = create_feature_extractor(kit.fill(resnet18(num_classes=3)).eval(), {"layer1": "low", "layer3": "high"})
    found = kit.call(model, kit.normal(1, 3, 64, 64))
    kit.keep(low=found["low"], high=found["high"])


@program("transformers")
def transformers_bert(kit: Kit) -> None:
    from transformers import BertConfig, BertModel

    model = kit.fill(BertModel(_small(BertConfig))).eval()
    kit.forward_backward(model, kit.ints(50, 2, 9), pick=lambda y: y.last_hidden_state)


@program("transformers")
def transformers_llama(kit: Kit) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = kit.fill(LlamaForCausalLM(_small(LlamaConfig))).eval()
    ids = kit.ints(50, 2, 7)
    kit.forward_backward(model, ids, pick=lambda y: y.logits, use_cache=False)


@program("transformers")
def transformers_generates(kit: Kit) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = kit.fill(GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=32))).eval()
    ids = kit.ints(50, 1, 5)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    kit.keep(tokens=model.generate(ids, **options), beams=model.generate(ids, num_beams=3, **options))


@program("transformers")
def transformers_saves_and_loads(kit: Kit) -> None:
    from transformers import BertConfig, BertModel

    with tempfile.TemporaryDirectory() as folder:
        kit.fill(BertModel(_small(BertConfig))).save_pretrained(folder)
        model = BertModel.from_pretrained(folder, low_cpu_mem_usage=True).eval()
    kit.forward_backward(model, kit.ints(50, 2, 9), pick=lambda y: y.last_hidden_state)


@program("diffusers")
def diffusers_unet(kit: Kit) -> None:
    from diffusers import UNet2DModel

    model = UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 16),
                        norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                        up_block_types=("AttnUpBlock2D", "UpBlock2D"))  # fmt: skip
    kit.forward_backward(
        kit.fill(model).eval(), kit.normal(1, 3, 8, 8), kit.torch.tensor([7]), pick=lambda y: y.sample
    )  # fmt: skip


@program("diffusers")
def diffusers_scheduler(kit: Kit) -> None:
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler()
    scheduler.set_timesteps(4)
    x = kit.normal(1, 3, 8, 8)
    for t in scheduler.timesteps:
        x = scheduler.step(x * 0.1, t, x).prev_sample
    kit.keep(x=x)


@program("peft")
def peft_lora(kit: Kit) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertModel

    model = get_peft_model(BertModel(_small(BertConfig)), LoraConfig(r=4, target_modules=["query", "value"]))
    kit.forward_backward(kit.fill(model).eval(), kit.ints(50, 2, 6), pick=lambda y: y.last_hidden_state)


@program("accelerate")
def accelerate_trains(kit: Kit) -> None:
    from accelerate import Accelerator

    torch = kit.torch
    accelerator = Accelerator(cpu=True)
    model = kit.fill(torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    pairs = list(zip(kit.normal(8, 4), kit.normal(8, 1, name="y"), strict=True))
    data = torch.utils.data.DataLoader(pairs, batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for x, y in data:
        optimizer.zero_grad()
        loss = kit.call(lambda x, y: torch.nn.functional.mse_loss(model(x), y), x, y)
        accelerator.backward(loss)
        optimizer.step()
        kit.keep(loss=loss)
    kit.keep(weight=accelerator.unwrap_model(model).weight)


def _lightning(kit: Kit, lightning: Any) -> None:
    torch = kit.torch

    class Fit(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = kit.fill(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            x, y = batch
            loss = torch.nn.functional.mse_loss(self.net(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    model = Fit()
    if kit.compiled:
        model.net.compile()
    pairs = torch.utils.data.TensorDataset(kit.normal(8, 4), kit.normal(8, 1))
    data = torch.utils.data.DataLoader(pairs, batch_size=4)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
            default_root_dir=folder, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(model, data)
    kit.keep(weight=model.net[0].weight, loss=trainer.callback_metrics["loss"])


@program("lightning")
def lightning_fits(kit: Kit) -> None:
    import lightning

    _lightning(kit, lightning)


@program("pytorch_lightning")
def pytorch_lightning_fits(kit: Kit) -> None:
    import pytorch_lightning

    _lightning(kit, pytorch_lightning)


@program("torchmetrics")
def torchmetrics_measures(kit: Kit) -> None:
    from torchmetrics import AUROC, Accuracy, F1Score, MeanSquaredError, MetricCollection
    from torchmetrics.image import StructuralSimilarityIndexMeasure

    logits, target = kit.normal(20, 5), kit.ints(5, 20)
    metrics = MetricCollection([Accuracy("multiclass", num_classes=5), F1Score("multiclass", num_classes=5)])
    for i in range(0, 20, 5):
        metrics.update(logits[i : i + 5], target[i : i + 5])
    kit.keep(**{k.lower(): v for k, v in metrics.compute().items()})
    kit.keep(auroc=AUROC("multiclass", num_classes=5)(logits.softmax(-1), target))
    kit.keep(mse=MeanSquaredError()(logits, logits * 1.1))
    a = kit.normal(1, 1, 16, 16).sigmoid()
    kit.keep(ssim=StructuralSimilarityIndexMeasure(data_range=1.0)(a, a * 0.9))


@program("torchdiffeq")
def torchdiffeq_solves(kit: Kit) -> None:
    from torchdiffeq import odeint, odeint_adjoint

    torch = kit.torch

    class Field(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = kit.fill(torch.nn.Linear(2, 2))

        def forward(self, t: Any, y: Any) -> Any:
            return torch.tanh(self.net(y)) - y

    field, y0, t = Field(), kit.normal(3, 2), torch.linspace(0.0, 1.0, 4)
    kit.keep(rk4=kit.call(lambda y: odeint(field, y, t, method="rk4"), y0), dopri5=odeint(field, y0, t))
    odeint_adjoint(field, y0, t)[-1].sum().backward()
    kit.keep(gradient=field.net.weight.grad)


@program("captum")
def captum_attributes(kit: Kit) -> None:
    from captum.attr import DeepLift, IntegratedGradients, Saliency

    nn = kit.torch.nn
    model = kit.fill(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))).eval()
    x = kit.normal(2, 4)
    forward = (lambda y: kit.call(model, y)) if kit.compiled else model
    kit.keep(integrated=IntegratedGradients(forward).attribute(x, target=1, n_steps=16))
    kit.keep(saliency=Saliency(forward).attribute(x.clone().requires_grad_(), target=0))
    kit.keep(deeplift=DeepLift(model).attribute(x, target=1))


@program("torchinfo")
def torchinfo_summarizes(kit: Kit) -> None:
    from torchinfo import summary

    nn = kit.torch.nn
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    found = summary(model, (1, 3, 8, 8), verbose=0)
    kit.keep(params=found.total_params, operations=found.total_mult_adds)


@program("gpytorch")
def gpytorch_fits(kit: Kit) -> None:
    import gpytorch

    torch = kit.torch

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 12)
    y = torch.sin(x * 6)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(x, y, likelihood)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = -kit.call(lambda: mll(model(x), y))
        loss.backward()
        optimizer.step()
    model.eval(), likelihood.eval()
    with torch.no_grad():
        found = likelihood(model(torch.linspace(0, 1, 5)))
    kit.keep(loss=loss, mean=found.mean, variance=found.variance)


@program("linear_operator")
def linear_operator_solves(kit: Kit) -> None:
    from linear_operator import to_linear_operator
    from linear_operator.operators import DiagLinearOperator

    x = kit.normal(6, 6)
    operator = to_linear_operator(x @ x.mT) + DiagLinearOperator(kit.torch.ones(6))
    kit.keep(solved=operator.solve(kit.normal(6, 2, name="b")), det=operator.logdet(), product=operator @ kit.normal(6))


@program("kornia")
def kornia_filters(kit: Kit) -> None:
    import kornia

    x = kit.normal(1, 3, 16, 16).sigmoid()
    kit.keep(blur=kit.call(lambda x: kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)), x))
    kit.keep(gray=kornia.color.rgb_to_grayscale(x), sobel=kornia.filters.sobel(x), hsv=kornia.color.rgb_to_hsv(x))
    turn = kit.torch.tensor([30.0])
    kit.keep(rotated=kornia.geometry.transform.rotate(x, turn))


@program("skorch")
def skorch_fits(kit: Kit) -> None:
    from skorch import NeuralNetRegressor

    nn = kit.torch.nn
    net = NeuralNetRegressor(
        kit.fill(nn.Linear(4, 1)), max_epochs=3, lr=0.1, train_split=None, verbose=0, compile=kit.compiled,
        iterator_train__shuffle=False,
    )  # fmt: skip
    x, y = kit.normal(16, 4).numpy(), kit.normal(16, 1, name="y").numpy()
    net.fit(x, y)
    kit.keep(prediction=net.predict(x))


@program("ignite")
def ignite_trains(kit: Kit) -> None:
    from ignite.engine import create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import MeanSquaredError

    torch = kit.torch
    model = kit.fill(torch.nn.Linear(4, 1))
    called = torch.compile(model) if kit.compiled else model
    data = [(kit.normal(4, 4, name=f"x{i}"), kit.normal(4, 1, name=f"y{i}")) for i in range(3)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = create_supervised_trainer(called, optimizer, torch.nn.functional.mse_loss)
    trainer.run(data, max_epochs=2)
    evaluator = create_supervised_evaluator(called, metrics={"mse": MeanSquaredError()})
    evaluator.run(data)
    kit.keep(mse=evaluator.state.metrics["mse"], weight=model.weight)


@program("pyro")
def pyro_infers(kit: Kit) -> None:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO

    torch = kit.torch
    data = kit.normal(20) + 1.5

    def model(data: Any) -> None:
        loc = pyro.sample("loc", dist.Delta(pyro.param("m", torch.tensor(0.0))))
        scale = pyro.param("s", torch.tensor(1.0), constraint=dist.constraints.positive)
        with pyro.plate("data", len(data)):
            pyro.sample("obs", dist.Normal(loc, scale), obs=data)

    def guide(data: Any) -> None:
        pyro.sample("loc", dist.Delta(pyro.param("m", torch.tensor(0.0))))

    pyro.clear_param_store()
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    kit.keep(losses=[svi.step(data) for _ in range(5)], m=pyro.param("m"), s=pyro.param("s"))


@program("botorch")
def botorch_models(kit: Kit) -> None:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    torch = kit.torch
    x = torch.linspace(0, 1, 8, dtype=torch.float64).unsqueeze(-1)
    model = SingleTaskGP(x, torch.sin(6 * x))
    found = model.posterior(torch.tensor([[0.33], [0.8]], dtype=torch.float64))
    gain = LogExpectedImprovement(model, best_f=0.5)(torch.tensor([[[0.4]]], dtype=torch.float64))
    kit.keep(mean=found.mean, variance=found.variance, gain=gain)


@program("e3nn")
def e3nn_products(kit: Kit) -> None:
    from e3nn import o3

    kit.keep(harmonics=o3.spherical_harmonics([0, 1, 2], kit.normal(5, 3), normalize=True))
    layer = kit.fill(o3.Linear("4x0e + 2x1o", "3x0e + 1x1o"))
    kit.forward_backward(layer, kit.normal(5, 10))


@program("sentence_transformers")
def sentence_transformers_pools(kit: Kit) -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    pooled = Pooling(8)({"token_embeddings": kit.normal(2, 5, 8), "attention_mask": kit.torch.ones(2, 5).long()})
    kit.keep(pooled=pooled["sentence_embedding"])


@program("open_clip")
def open_clip_encodes(kit: Kit) -> None:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    model = CLIP(
        16, CLIPVisionCfg(layers=2, width=32, head_width=16, image_size=32, patch_size=8),
        CLIPTextCfg(context_length=12, vocab_size=50, width=32, heads=2, layers=2),
    )  # fmt: skip
    kit.fill(model).eval()
    image, text = kit.normal(2, 3, 32, 32), kit.ints(50, 2, 12)
    kit.keep(image=kit.call(model.encode_image, image), text=kit.call(model.encode_text, text))


@program("segmentation_models_pytorch")
def segmentation_unet(kit: Kit) -> None:
    import segmentation_models_pytorch as smp

    model = kit.fill(smp.Unet("resnet18", encoder_weights=None, classes=2)).eval()
    kit.forward_backward(model, kit.normal(1, 3, 64, 64))
    kit.keep(dice=smp.losses.DiceLoss("binary")(kit.normal(1, 1, 8, 8), kit.ints(2, 1, 1, 8, 8).float()))


@program("pytorch_optimizer")
def pytorch_optimizer_steps(kit: Kit) -> None:
    import pytorch_optimizer as po

    torch = kit.torch
    for name in ("Lion", "AdaBelief", "AdamP", "RAdam", "Adan", "Lamb", "ScheduleFreeAdamW"):
        weight = torch.nn.Parameter(kit.normal(4, 3))
        optimizer = getattr(po, name)([weight], lr=1e-2)
        if hasattr(optimizer, "train"):
            optimizer.train()
        for _ in range(3):
            optimizer.zero_grad()
            ((weight @ kit.normal(3, 6, name="d") - 1) ** 2).sum().backward()
            optimizer.step()
        kit.keep(**{name: weight})


@program("tensordict")
def tensordict_holds(kit: Kit) -> None:
    from tensordict import TensorDict

    data = TensorDict({"a": kit.normal(3, 4), "b": {"c": kit.normal(3)}}, batch_size=[3])
    both = kit.torch.stack([data, data * 2])
    kit.keep(a=both["a"], c=both["b", "c"], view=data.reshape(3, 1)["a"], part=data[1:]["a"])


@program("x_transformers")
def x_transformers_decodes(kit: Kit) -> None:
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=Decoder(dim=32, depth=2, heads=2))
    kit.forward_backward(kit.fill(model).eval(), kit.ints(50, 2, 12))


@program("stable_baselines3")
def stable_baselines_policies(kit: Kit) -> None:
    import gymnasium as gym
    from stable_baselines3 import PPO

    agent = PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=16, batch_size=8, n_epochs=1, device="cpu", seed=0)
    kit.fill(agent.policy)
    observations = kit.normal(3, 4)
    chosen, _ = agent.predict(observations.numpy(), deterministic=True)
    kit.keep(values=agent.policy.predict_values(observations), chosen=chosen)
    agent.learn(32)


@program("torch_geometric")
def geometric_convolutions(kit: Kit) -> None:
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

    edges = kit.torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    for layer in (GCNConv(4, 5), GATConv(4, 3, heads=2), SAGEConv(4, 5)):
        kit.forward_backward(kit.fill(layer), kit.normal(4, 4), edges)
        kit.keep(**{type(layer).__name__: kit.results["output"]})
    kit.keep(pooled=global_mean_pool(kit.normal(4, 4), kit.torch.tensor([0, 0, 1, 1])))


@program("tensorboard")
def tensorboard_writes(kit: Kit) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            for i in range(3):
                writer.add_scalar("loss", kit.torch.tensor(1.0 / (i + 1)), i)
            writer.add_histogram("weights", kit.normal(20), 0)
            writer.add_text("note", "words")
        read = EventAccumulator(folder).Reload()
        kit.keep(loss=[e.value for e in read.Scalars("loss")], steps=[e.step for e in read.Scalars("loss")])
        kit.keep(count=read.Histograms("weights")[0].histogram_value.num)


@program("pytorch_metric_learning")
def metric_learning_losses(kit: Kit) -> None:
    from pytorch_metric_learning import losses, miners

    x, labels = kit.normal(12, 6).requires_grad_(), kit.ints(3, 12)
    pairs = miners.MultiSimilarityMiner()(x, labels)
    loss = losses.TripletMarginLoss()(x, labels) + losses.NTXentLoss()(x, labels, pairs)
    loss.backward()
    kit.keep(loss=loss, gradient=x.grad)


@program("torch_optimizer")
def torch_optimizer_steps(kit: Kit) -> None:
    import torch_optimizer

    weight = kit.torch.nn.Parameter(kit.normal(4, 3))
    for name in ("DiffGrad", "AdaBound", "Yogi", "Lamb"):
        optimizer = getattr(torch_optimizer, name)([weight], lr=1e-2)
        for _ in range(3):
            optimizer.zero_grad()
            ((weight - 1) ** 2).sum().backward()
            optimizer.step()
        kit.keep(**{name: weight})


@program("entmax")
def entmax_is_sparse(kit: Kit) -> None:
    from entmax import entmax15, sparsemax

    x = kit.normal(3, 6).requires_grad_()
    y = entmax15(x, dim=-1)
    (y**2).sum().backward()
    kit.keep(entmax=y, sparsemax=sparsemax(x.detach(), dim=-1), gradient=x.grad)


@program("vit_pytorch")
def vit_pytorch_classifies(kit: Kit) -> None:
    from vit_pytorch import ViT

    model = ViT(image_size=32, patch_size=8, num_classes=4, dim=32, depth=2, heads=2, mlp_dim=48)
    kit.forward_backward(kit.fill(model).eval(), kit.normal(2, 3, 32, 32))


@program("rotary_embedding_torch")
def rotary_rotates(kit: Kit) -> None:
    from rotary_embedding_torch import RotaryEmbedding

    kit.keep(y=RotaryEmbedding(dim=8).rotate_queries_or_keys(kit.normal(1, 2, 6, 8)))


@program("local_attention")
def local_attention_attends(kit: Kit) -> None:
    from local_attention import LocalAttention

    q = kit.normal(1, 2, 16, 8)
    kit.keep(y=LocalAttention(dim=8, window_size=4, causal=True, autopad=True)(q, q * 0.5, q + 1))


@program("torchsde")
def torchsde_integrates(kit: Kit) -> None:
    import torchsde

    torch = kit.torch

    class Still(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t: Any, y: Any) -> Any:
            return -y

        def g(self, t: Any, y: Any) -> Any:
            return torch.zeros_like(y)

    kit.keep(y=torchsde.sdeint(Still(), kit.normal(2, 3), torch.linspace(0, 1, 3), dt=0.1, method="euler"))


@program("torchcde")
def torchcde_interpolates(kit: Kit) -> None:
    import torchcde

    x = kit.normal(2, 6, 3)
    path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))
    kit.keep(value=path.evaluate(kit.torch.tensor(2.5)), slope=path.derivative(kit.torch.tensor(1.5)))


@program("lion_pytorch")
def lion_steps(kit: Kit) -> None:
    from lion_pytorch import Lion

    weight = kit.torch.nn.Parameter(kit.normal(4, 3))
    optimizer = Lion([weight], lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        (weight**2).sum().backward()
        optimizer.step()
    kit.keep(weight=weight)


@program("ema_pytorch")
def ema_averages(kit: Kit) -> None:
    from ema_pytorch import EMA

    model = kit.fill(kit.torch.nn.Linear(3, 2))
    ema = EMA(model, beta=0.9, update_after_step=0, update_every=1)
    for _ in range(3):
        with kit.torch.no_grad():
            model.weight.mul_(1.5)
        ema.update()
    kit.keep(y=ema(kit.normal(2, 3)))


@program("torch_ema")
def torch_ema_averages(kit: Kit) -> None:
    from torch_ema import ExponentialMovingAverage

    model = kit.fill(kit.torch.nn.Linear(3, 2))
    ema = ExponentialMovingAverage(model.parameters(), decay=0.9)
    with kit.torch.no_grad():
        model.weight.mul_(1.5)
    ema.update()
    with ema.average_parameters():
        kit.keep(y=model(kit.normal(2, 3)))


@program("pytorch_msssim")
def msssim_compares(kit: Kit) -> None:
    from pytorch_msssim import ssim

    x = kit.normal(1, 3, 24, 24).sigmoid()
    kit.keep(ssim=kit.call(lambda x: ssim(x, x * 0.8, data_range=1.0), x))


@program("lpips")
def lpips_compares(kit: Kit) -> None:
    import lpips

    metric = kit.fill(lpips.LPIPS(pretrained=False, net="alex", verbose=False, pnet_rand=True)).eval()
    x = kit.normal(1, 3, 64, 64)
    kit.keep(distance=kit.call(metric, x, x * 0.5))


@program("nflows")
def nflows_transforms(kit: Kit) -> None:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform

    flow = kit.fill(Flow(MaskedAffineAutoregressiveTransform(features=2, hidden_features=4), StandardNormal([2])))
    kit.keep(density=flow.log_prob(kit.normal(5, 2)))


@program("torchviz")
def torchviz_draws(kit: Kit) -> None:
    from torchviz import make_dot

    model = kit.fill(kit.torch.nn.Linear(3, 2))
    text = make_dot(model(kit.normal(1, 3)).sum(), params=dict(model.named_parameters())).source
    kit.keep(named=[name in text for name in ("weight", "bias")])


@program("torchsummary")
def torchsummary_prints(kit: Kit) -> None:
    from contextlib import redirect_stdout

    from torchsummary import summary

    text = io.StringIO()
    nn = kit.torch.nn
    with redirect_stdout(text):
        summary(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), (3, 8, 8), device="cpu")
    kit.keep(found=["Total params: 112" in text.getvalue()])


@program("torchsnooper")
def torchsnooper_tells(kit: Kit) -> None:
    import torchsnooper

    text = io.StringIO()

    @torchsnooper.snoop(text)
    def f(x: Any) -> Any:
        y = x + 1
        return y

    f(kit.torch.ones(2, 3))
    kit.keep(told=["tensor<(2, 3), float32, cpu>" in text.getvalue()])


@program("monai")
def monai_unet(kit: Kit) -> None:
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,))
    kit.forward_backward(kit.fill(model).eval(), kit.normal(1, 1, 16, 16))


@program("tensorboardX")
def tensorboardx_writes(kit: Kit) -> None:
    from tensorboardX import SummaryWriter

    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        writer.add_scalar("loss", kit.torch.tensor(0.5), 0)
        writer.add_histogram("x", kit.normal(10), 0)
    kit.keep(done=[1])


@program("optree")
def optree_maps(kit: Kit) -> None:
    import optree

    kit.keep(y=optree.tree_map(lambda x: x * 2, {"a": kit.normal(2)})["a"])
