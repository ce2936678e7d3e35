"""Small configurations of known architectures, built with whatever ``torch`` is: tracecomp, or PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

Axes = Mapping[str, Mapping[int, str]]


@dataclass
class Architecture:
    """A model in evaluation mode, its arguments by name, and which of their sizes are dynamic."""

    model: Any
    arguments: Mapping[str, Any]
    axes: Axes


def _picture(name: str, size: int = 64, pick: str = "", **options: Any) -> Architecture:
    torch = import_module("torch")
    made = getattr(import_module("torchvision.models" + (".segmentation" if pick else "")), name)
    options = {"num_classes": 10, **options}
    model = made(weights=None, **({"weights_backbone": None} if pick else {}), **options)
    if pick:
        model = _wrapped(model, lambda m, x: m(x)[pick])
    return Architecture(model, {"image": torch.rand(2, 3, size, size)}, {"image": {0: "batch"}})


def _vit(size: int = 32) -> Architecture:
    torch = import_module("torch")
    made = import_module("torchvision.models").VisionTransformer
    model = made(size, 8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10)
    return Architecture(model, {"image": torch.rand(2, 3, size, size)}, {"image": {0: "batch"}})


def _swin() -> Architecture:
    torch = import_module("torch")
    made = import_module("torchvision.models").SwinTransformer
    model = made([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=10)
    return Architecture(model, {"image": torch.rand(2, 3, 32, 32)}, {"image": {0: "batch"}})


def _wrapped(model: Any, call: Callable[..., Any]) -> Any:
    """A module that gives what ``call(model, ...)`` gives: exporters take tensors, not dicts."""
    base: Any = import_module("torch").nn.Module

    class Wrapped(base):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, *args: Any) -> Any:
            return call(self.inner, *args)

    return Wrapped()


_SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99,
    "max_position_embeddings": 64, "attn_implementation": "eager",
}  # fmt: skip
_KEYS = {"num_key_value_heads": 2, "use_cache": False}


def _text(kind: str, head: str, **options: Any) -> Architecture:
    """A model of one sequence of words. None is the padding: its row is not trained, which no file says."""
    torch, library = import_module("torch"), import_module("transformers")
    config = getattr(library, f"{kind}Config")(**{k: v for k, v in options.items() if v is not None})
    model = _wrapped(getattr(library, kind + head)(config), lambda m, ids: m(input_ids=ids).logits)
    ids = torch.arange(2 * 7).reshape(2, 7) * 5 % 97 + 2
    return Architecture(model, {"ids": ids}, {"ids": {0: "batch", 1: "time"}})


def _answering(first: str) -> Callable[..., Any]:
    """A call of a model of two sequences."""
    return lambda model, given, answer: model(**{first: given, "decoder_input_ids": answer}, use_cache=False).logits


def _t5() -> Architecture:
    torch, library = import_module("torch"), import_module("transformers")
    config = library.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, use_cache=False
    )
    model = _wrapped(library.T5ForConditionalGeneration(config), _answering("input_ids"))
    ids = torch.arange(2 * 7).reshape(2, 7) * 5 % 97 + 2
    given = {"ids": ids, "answer": ids[:, :5]}
    return Architecture(model, given, {"ids": {0: "batch", 1: "time"}, "answer": {0: "batch", 1: "answers"}})


def _whisper() -> Architecture:
    torch, library = import_module("torch"), import_module("transformers")
    config = library.WhisperConfig(
        vocab_size=99, num_mel_bins=8, d_model=32, encoder_layers=2, encoder_attention_heads=4, decoder_layers=2,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=16,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    model = _wrapped(library.WhisperForConditionalGeneration(config), _answering("input_features"))
    given = {"sound": torch.rand(2, 8, 32), "ids": torch.arange(2 * 5).reshape(2, 5) * 5 % 97 + 2}
    return Architecture(model, given, {"sound": {0: "batch"}, "ids": {0: "batch", 1: "time"}})


def _hf_vit() -> Architecture:
    torch, library = import_module("torch"), import_module("transformers")
    small = {k: v for k, v in _SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
    config = library.ViTConfig(image_size=32, patch_size=8, num_labels=10, **small)
    model = _wrapped(library.ViTForImageClassification(config), lambda m, x: m(pixel_values=x).logits)
    return Architecture(model, {"image": torch.rand(2, 3, 32, 32)}, {"image": {0: "batch"}})


_BERT = _SMALL
_LLAMA = _SMALL | _KEYS
_GPT2: dict[str, Any] = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "n_positions": 64, "use_cache": False,
    "attn_implementation": "eager",
}  # fmt: skip
_DISTILBERT: dict[str, Any] = {
    "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99, "max_position_embeddings": 64,
    "attn_implementation": "eager",
}  # fmt: skip

ARCHITECTURES: dict[str, Callable[[], Architecture]] = {
    "torchvision resnet18": partial(_picture, "resnet18"),
    "torchvision mobilenet_v3_small": partial(_picture, "mobilenet_v3_small"),
    "torchvision efficientnet_b0": partial(_picture, "efficientnet_b0"),
    "torchvision densenet121": partial(_picture, "densenet121"),
    "torchvision convnext_tiny": partial(_picture, "convnext_tiny"),
    "torchvision vit": _vit,
    "torchvision swin": _swin,
    "torchvision shufflenet_v2_x0_5": partial(_picture, "shufflenet_v2_x0_5"),
    "torchvision squeezenet1_1": partial(_picture, "squeezenet1_1"),
    "torchvision regnet_y_400mf": partial(_picture, "regnet_y_400mf"),
    "torchvision mnasnet0_5": partial(_picture, "mnasnet0_5"),
    "torchvision googlenet": partial(_picture, "googlenet", aux_logits=False, init_weights=False),
    "torchvision lraspp": partial(_picture, "lraspp_mobilenet_v3_large", pick="out"),
    "torchvision deeplabv3": partial(_picture, "deeplabv3_mobilenet_v3_large", pick="out"),
    "transformers bert": partial(_text, "Bert", "ForSequenceClassification", **_BERT),
    "transformers distilbert": partial(_text, "DistilBert", "ForSequenceClassification", **_DISTILBERT),
    "transformers roberta": partial(_text, "Roberta", "ForMaskedLM", **_BERT),
    "transformers electra": partial(_text, "Electra", "ForTokenClassification", **_BERT, embedding_size=32),
    "transformers gpt2": partial(_text, "GPT2", "LMHeadModel", **_GPT2),
    "transformers llama": partial(_text, "Llama", "ForCausalLM", **_LLAMA),
    "transformers mistral": partial(_text, "Mistral", "ForCausalLM", **_LLAMA),
    "transformers qwen2": partial(_text, "Qwen2", "ForCausalLM", **_LLAMA),
    "transformers gemma": partial(_text, "Gemma", "ForCausalLM", **_LLAMA, head_dim=8),
    "transformers t5": _t5,
    "transformers whisper": _whisper,
    "transformers vit": _hf_vit,
}


def build(name: str) -> Architecture:
    """The architecture, with the weights that the seed 0 gives; no two are equal, as exporters would make them one."""
    torch = import_module("torch")
    torch.manual_seed(0)
    found = ARCHITECTURES[name]()
    found.model.eval()
    with torch.no_grad():
        for p in found.model.parameters():
            p.add_(torch.randn(p.shape) * 0.01)
    return found
