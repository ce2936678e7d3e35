"""``bench`` on the folder of a language model: tokens per second, time to the first token, memory."""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tracecomp.base.config import override
from tracecomp.base.errors import TracecompError
from tracecomp.compiler import compile
from tracecomp.functional.creation.sequences import arange
from tracecomp.runtime.threads import set_num_threads
from tracecomp.torch_compat.activate import as_torch

PROMPT, TOKENS = 128, 32
"""Tokens of the prompt, and tokens generated in each measurement."""
TURNS = 3
"""Measurements of each side; the fastest counts, after two in which the compiled model records and compiles."""


@dataclass(frozen=True)
class Generation:
    """Times in seconds and memory in bytes of generating one sequence.

    ``first`` is the time until the first token of a prompt, ``token`` that of each further one. ``peak`` is the largest
    memory of the process.
    """

    parameters: int
    weights: int
    load: float
    first: float
    token: float
    eager_first: float
    eager_token: float
    peak: int

    def __str__(self) -> str:
        return (
            f"{self.parameters / 1e6:.1f} million parameters, {self.weights / 1e6:.1f} MB, "
            f"imported and loaded in {self.load:.2f} s\n"
            f"compiled: {1 / self.token:.1f} tokens/s, {self.weights / self.token / 1e9:.1f} GB/s of weights, "
            f"first token after {self.first:.3f} s\n"
            f"eager: {1 / self.eager_token:.1f} tokens/s, first token after {self.eager_first:.3f} s\n"
            f"peak memory {self.peak / 1e6:.0f} MB"
        )


def run_bench(options: argparse.Namespace) -> int:
    """Print the figures of the model in a folder."""
    if options.shape or options.inputs:
        raise TracecompError("bench: a model folder takes no operands. Leave out --shape and --inputs")
    if options.threads:
        set_num_threads(options.threads)
    found = measured(options.target)
    print(json.dumps(asdict(found)) if options.json else found)
    return 0


def measured(folder: str) -> Generation:
    """Load the model with ``transformers``, and generate from a prompt, eagerly and compiled."""
    with as_torch():
        return _measured(folder)


def _measured(folder: str) -> Generation:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise TracecompError(f"bench: a model folder needs transformers ({error}). Install it with pip") from None
    start = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    load = time.perf_counter() - start
    parameters = list(model.parameters())
    prompt = (arange(PROMPT) % model.config.vocab_size).reshape(1, PROMPT)
    eager = _times(model, prompt, TURNS)
    model.forward = compile(model.forward)
    with override(wait=True):
        _times(model, prompt, 2)  # records, and compiles for growing sizes
    compiled = _times(model, prompt, TURNS)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    counts = sum(p.numel() for p in parameters), sum(p.nbytes for p in parameters)
    return Generation(*counts, load, *compiled, *eager, peak)


def _times(model: Any, prompt: Any, turns: int) -> tuple[float, float]:
    """The least seconds until the first token, and of each further one."""

    def generate(count: int) -> Callable[[], object]:
        return lambda: model.generate(prompt, min_new_tokens=count, max_new_tokens=count, do_sample=False)

    first = min(_seconds(generate(1)) for _ in range(turns))
    whole = min(_seconds(generate(TOKENS)) for _ in range(turns))
    return first, max(whole - first, 1e-9) / (TOKENS - 1)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
