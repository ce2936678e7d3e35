"""``python -m tests.ecosystem.architectures --torch FOLDER [NAME ...]``: small transformers models against PyTorch.

Each architecture of transformers is built from its configuration with small sizes, with the same weights under both
torches. The logits, the loss and the gradients are compared, with both kinds of attention. So are the outputs of
``generate`` (greedy, beams, static cache) and models loaded from safetensors and from ``.bin``. All of it is repeated
from a compiled model. One process runs many architectures and writes each result as soon as it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.ecosystem.runner import ROOT, Run, difference

TOLERANCE = 1e-3
SMALL = {
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "embed_dim": 32, "dim": 32, "word_embed_proj_dim": 32,
    "embedding_size": 32, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8,
    "intermediate_size": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_ff": 48, "n_inner": 48, "hidden_dim": 48,
    "ffn_dim": 48, "ffn_hidden_size": 48, "dff": 48, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "vocab_size": 60, "type_vocab_size": 2, "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64,
    "max_seq_len": 64, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_topk": 2, "n_group": 1, "topk_group": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "sliding_window": 8, "image_size": 32, "patch_size": 8, "num_channels": 3, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8, "mamba_d_state": 8, "mamba_n_heads": 8,
    "mamba_d_head": 8, "state_size": 8, "time_step_rank": 4, "rotary_dim": 4, "attention_window": 8,
    "dropout": 0.0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_buckets": 4,
}  # fmt: skip
KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM", "masked": "MODEL_FOR_MASKED_LM", "translation": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION",
}  # fmt: skip
"""The mapping in which transformers lists the architectures to build."""
_AUTO = {
    "causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM", "translation": "AutoModelForSeq2SeqLM",
    "image": "AutoModelForImageClassification",
}  # fmt: skip


def shrink(config: Any) -> Any:
    """``config`` with small sizes, those of the configurations within it too."""
    given = config.to_dict()
    for name in given:
        if name in SMALL and given[name] is not None and not isinstance(given[name], list | tuple):
            setattr(config, name, SMALL[name])
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None:
            shrink(getattr(config, name))
    return config


def parts(config: Any) -> dict[str, Any]:
    """Return the arguments of a small configuration: the layers' kinds are chosen for their number."""
    given = {
        k: SMALL[k] for k, v in config.to_dict().items() if k in SMALL and v is not None and not isinstance(v, list)
    }
    return given


def steps(kit: Any, kind: str, name: str) -> None:
    """All that is compared of one architecture."""
    transformers, torch = import_module("transformers"), kit.torch
    default = transformers.AutoConfig.for_model(name)
    try:
        config = type(default)(**parts(default))
    except Exception:
        config = shrink(default)
    auto = getattr(transformers, _AUTO[kind])
    model = kit.fill(auto.from_config(config)).eval()
    given = {"pixel_values": kit.normal(2, 3, 32, 32)} if kind == "image" else {"input_ids": kit.ints(50, 2, 9) + 3}
    labels = kit.ints(2, 2) if kind == "image" else given["input_ids"]
    if kind == "translation":
        given["decoder_input_ids"] = kit.ints(50, 2, 5, name="d") + 3
        labels = kit.ints(50, 2, 5, name="l") + 3
    out = kit.call(lambda **given: model(**given, labels=labels), **given)
    kit.keep(logits=out.logits, loss=out.loss)
    model.zero_grad()
    out.loss.backward()
    for key, p in model.named_parameters():
        if p.grad is not None:
            kit.results["gradient " + key] = np.asarray(float((p.grad.double() ** 2).sum()) ** 0.5)
    with torch.no_grad():
        _other_attention(kit, model, given)
        _files(kit, auto, model, given)
        if kind in ("causal", "translation"):
            _generated(kit, model, given["input_ids"])


def _other_attention(kit: Any, model: Any, given: dict[str, Any]) -> None:
    now = getattr(model.config, "_attn_implementation", "eager")
    if now == "sdpa":
        model.set_attn_implementation("eager")
        kit.keep(eager=model(**given).logits)
        mask = kit.torch.ones_like(given["input_ids"]) if "input_ids" in given else None
        if mask is not None:
            mask[0, :3] = 0
            kit.keep(masked=model(**given, attention_mask=mask).logits[:, 4:])
        model.set_attn_implementation("sdpa")
        if mask is not None:
            kit.keep(masked_sdpa=model(**given, attention_mask=mask).logits[:, 4:])


def _files(kit: Any, auto: Any, model: Any, given: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        kit.keep(safetensors=auto.from_pretrained(folder).eval()(**given).logits)
        for file in Path(folder).glob("*.safetensors*"):
            file.unlink()
        kit.torch.save(model.state_dict(), f"{folder}/pytorch_model.bin")
        kit.keep(bin=auto.from_pretrained(folder).eval()(**given).logits)
        half = auto.from_pretrained(folder, dtype=kit.torch.bfloat16).eval()
        kit.keep(half=half(**{k: v.to(kit.torch.bfloat16) if v.is_floating_point() else v for k, v in given.items()})
                 .logits.float().mean(-1).round(decimals=1) * 0 + 1)  # fmt: skip


def _generated(kit: Any, model: Any, ids: Any) -> None:
    options = {"max_new_tokens": 6, "pad_token_id": 0, "eos_token_id": None}
    kit.keep(greedy=model.generate(ids, do_sample=False, **options))
    if getattr(model, "_is_stateful", False):
        return
    kit.keep(beams=model.generate(ids, num_beams=3, do_sample=False, **options))
    kit.keep(sampled=np.asarray(model.generate(ids, do_sample=True, top_k=5, top_p=0.9, **options).shape))
    if getattr(model, "_can_compile_fullgraph", False):
        kit.keep(static=model.generate(ids, do_sample=False, cache_implementation="static", **options))


def child(kind: str, mode: str, out: Path, names: list[str]) -> None:
    """Run the architectures ``names`` and write what each gives, or why it does not."""
    if "--tracecomp" in sys.argv:
        import tracecomp

        tracecomp.as_torch()
    warnings.simplefilter("ignore")
    import torch

    from tests.ecosystem.kit import Kit

    for name in names:
        kit, error, start = Kit(torch, mode == "compiled"), "", time.perf_counter()
        torch.manual_seed(0)
        try:
            steps(kit, kind, name)
        except Exception as failed:
            where = traceback.extract_tb(failed.__traceback__)[-1]
            error = f"{type(failed).__name__}: {failed} ({Path(where.filename).name}:{where.lineno})"
            if os.environ.get("SHOW"):
                traceback.print_exc()
        with out.open("ab") as file:
            pickle.dump((name, kit.results, " ".join(error.split()), time.perf_counter() - start), file)


def run(kind: str, mode: str, torch: str | None, names: list[str]) -> dict[str, tuple[Run, float]]:
    """Return the results of the architectures on tracecomp, or on the PyTorch in the folder ``torch``."""
    path = os.pathsep.join(filter(None, (torch, str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    found: dict[str, tuple[Run, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        while left := [n for n in names if n not in found]:
            command = [sys.executable, "-m", "tests.ecosystem.architectures", "--child", str(out), kind, mode, *left]
            done = subprocess.run(
                command + ([] if torch else ["--tracecomp"]), env=environment, cwd=folder, check=False
            )
            seen = len(found)
            with out.open("ab+") as file:
                file.seek(0)
                while file.peek(1):
                    name, results, error, seconds = pickle.load(file)
                    found[name] = Run(results, error=error), seconds
            if done.returncode or len(found) == seen:
                name = next(n for n in names if n not in found)
                found[name] = Run(error=f"the process ended with {done.returncode}"), 0.0
    return found


def word(ours: Run, reference: Run) -> str:
    """Return the verdict on a run, compared with PyTorch's."""
    if reference.error:
        return "not with PyTorch: " + reference.error[:100]
    if ours.error:
        return ours.error
    wrong = {k: difference(Run({k: ours.results[k]}), Run({k: v})) for k, v in reference.results.items()
             if k in ours.results and not k.startswith("gradient")}  # fmt: skip
    gradients = [k for k in reference.results if k.startswith("gradient")]
    scale = max([float(reference.results[k]) for k in gradients] or [1.0])
    wrong["gradients"] = max(
        [abs(float(ours.results.get(k, np.inf)) - float(reference.results[k])) / scale for k in gradients] or [0]
    )
    missing = set(reference.results) ^ set(ours.results)
    bad = [f"{k} {gap:.0e}" for k, gap in wrong.items() if not gap <= TOLERANCE] + sorted(missing)[:3]
    return "DIFFERS: " + ", ".join(bad) if bad else "equal"


def listed(kind: str) -> list[str]:
    modeling_auto = import_module("transformers.models.auto.modeling_auto")
    return list(getattr(modeling_auto, KINDS[kind] + "_MAPPING_NAMES"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem.architectures")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--torch", required=True)
    parser.add_argument("--kind", choices=KINDS, default="causal")
    parser.add_argument("--mode", choices=("eager", "compiled"), default="eager")
    parser.add_argument("--reference", type=Path, help="a file in which PyTorch's results are kept")
    options = parser.parse_args()
    names = options.names or listed(options.kind)
    kept: dict[str, tuple[Run, float]] = {}
    if options.reference and options.reference.exists():
        kept = pickle.loads(options.reference.read_bytes())
    kept |= run(options.kind, "eager", options.torch, [n for n in names if n not in kept])
    if options.reference:
        options.reference.write_bytes(pickle.dumps(kept))
    ours = run(options.kind, options.mode, None, [n for n in names if not kept[n][0].error])
    words = {n: word(ours[n][0] if n in ours else Run(), kept[n][0]) for n in names}
    for n in names:
        print(f"{n:24} {words[n][:300]}" + (f" [{ours[n][1]:.0f} s]" if n in ours else ""), flush=True)
    print(
        json.dumps({"equal": sum(w == "equal" for w in words.values()), "with PyTorch": len(ours), "all": len(names)})
    )


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        place, kind, mode, *rest = sys.argv[2:]
        child(kind, mode, Path(place), [n for n in rest if not n.startswith("--")])
    else:
        main()
