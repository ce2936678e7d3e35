"""Small models of transformers with random weights, and inputs for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.ecosystem.architectures import parts, shrink

POSITIONS = 1024
"""Tokens for which a model has positions."""


class Kind(NamedTuple):
    """How a group of architectures is built, and the names in it."""

    auto: str
    generates: bool
    names: tuple[str, ...]


KINDS = {
    "text": Kind("AutoModelForCausalLM", True, (
        "apertus", "arcee", "biogpt", "bloom", "codegen", "cohere", "deepseek_v2", "deepseek_v3", "exaone4", "falcon",
        "falcon_mamba", "gemma", "gemma2", "gemma3_text", "glm", "glm4", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox",
        "gptj", "granite", "llama", "mamba", "mamba2", "mistral", "mixtral", "mpt", "nemotron", "olmo", "olmo2",
        "olmoe", "opt", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "recurrent_gemma", "smollm3",
        "stablelm", "starcoder2", "xglm", "xlnet",
    )),
    "sequences": Kind("AutoModelForSeq2SeqLM", True, ("bart", "marian", "mbart", "pegasus", "t5")),
    "speech": Kind("AutoModelForSpeechSeq2Seq", True, ("whisper",)),
    "pictures and text": Kind("AutoModelForImageTextToText", True, ("llava", "qwen2_vl")),
    "masked": Kind("AutoModelForMaskedLM", False, ("bert", "distilbert", "roberta")),
    "pictures": Kind("AutoModelForImageClassification", False, ("vit",)),
    "both": Kind("AutoModel", False, ("clip",)),
}  # fmt: skip
NAMES = tuple(sorted(name for kind in KINDS.values() for name in kind.names))
_LONG = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_target_positions")
"""Names of sizes that limit the number of tokens."""
_PART: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
_TEXT = {**_PART, "vocab_size": 60, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS}
_PICTURE = {**_PART, "image_size": 32, "patch_size": 8}
OWN: dict[str, dict[str, Any]] = {
    "clip": {"text_config": {**_TEXT, "eos_token_id": 2}, "vision_config": _PICTURE, "projection_dim": 16},
    "deepseek_v2": {"head_dim": 4, "num_key_value_heads": 4, "num_experts_per_tok": 2, "topk_method": "greedy"},
    "deepseek_v3": {"head_dim": 4, "num_key_value_heads": 4},  # of the rotated part
    **{name: {"sliding_window": POSITIONS} for name in ("gemma2", "gemma3_text", "exaone4")},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "llava": {
        "text_config": {**_TEXT, "model_type": "llama"},
        "vision_config": {**_PICTURE, "model_type": "clip_vision_model"}, "image_token_index": 59,
    },
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 16},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2, "partial_rotary_factor": 0.5},
    "qwen2_vl": {
        "text_config": {**_TEXT, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
        "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 8},
        "image_token_id": 59, "vision_start_token_id": 57, "vision_end_token_id": 58, "video_token_id": 56,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "lru_width": 32, "attention_window_size": POSITIONS},
    "whisper": {
        "num_mel_bins": 8, "max_source_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None,
    },
}  # fmt: skip
"""Arguments of configurations that differ from the common ones."""


def kind_of(name: str) -> str:
    """The group of an architecture."""
    return next(group for group, kind in KINDS.items() if name in kind.names)


def config_of(transformers: Any, name: str) -> Any:
    """A configuration with small sizes, whose random weights are so large that tokens differ clearly."""
    default = transformers.AutoConfig.for_model(name)
    held = default.to_dict()
    common = {**parts(default), **{key: POSITIONS for key in _LONG if key in held}}
    if "sliding_window" in held:
        common["sliding_window"] = None
    own = OWN.get(name, {})
    try:
        config = type(default)(**(own if "text_config" in own else {**common, **own}))
    except Exception:  # any of a configuration that checks its arguments
        config = shrink(default)
        for key, value in own.items():
            setattr(config, key, value)
    for spread in ("initializer_range", "init_std"):
        if hasattr(config, spread):
            setattr(config, spread, 0.2)
    return config


def built(transformers: Any, name: str) -> Any:
    """A small model with random weights."""
    auto = getattr(transformers, KINDS[kind_of(name)].auto)
    return auto.from_config(config_of(transformers, name)).eval()


def given_to(torch: Any, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a model, and what its forward pass gets in addition."""
    group = kind_of(name)
    ids = {"input_ids": (torch.arange(7) * 13 % 47 + 3)[None]}
    picture = torch.sin(torch.arange(3.0 * 32 * 32)).reshape(1, 3, 32, 32)
    start = {"decoder_input_ids": (torch.arange(4) * 11 % 47 + 3)[None]}
    if group == "sequences":
        return ids, start
    if group == "speech":
        return {"input_features": torch.sin(torch.arange(8.0 * 40)).reshape(1, 8, 40)}, start
    if group == "pictures":
        return {"pixel_values": picture}, {}
    if group == "both":
        return {**ids, "pixel_values": picture}, {}
    if name == "llava":
        places = torch.full((1, 16), 59)
        return {"input_ids": torch.cat((ids["input_ids"], places, ids["input_ids"]), 1), "pixel_values": picture}, {}
    if name == "qwen2_vl":
        row = torch.cat((ids["input_ids"], torch.tensor([[57, 59, 59, 59, 59, 58]]), ids["input_ids"]), 1)
        patches = torch.sin(torch.arange(16.0 * 3 * 2 * 64)).reshape(16, -1)
        grid = torch.tensor([[1, 4, 4]])
        kinds = {"mm_token_type_ids": (row == 59).long()}
        return {"input_ids": row, "pixel_values": patches, "image_grid_thw": grid, **kinds}, {}
    return ids, {}
