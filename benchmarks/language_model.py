"""``python -m benchmarks.language_model FOLDER``: one request of a language model in tracecomp and in PyTorch.

A Llama of 106 million random parameters is saved in float32 and bfloat16. FOLDER contains PyTorch; transformers must be
installed. Each engine runs in a separate process, in turns, and the best turn counts. ``--load`` loads a model of
1 GB, and measures the memory and the time until its first token. The programs are in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np

SIZES: dict[str, object] = {
    "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 12, "tie_word_embeddings": True, "max_position_embeddings": 4096,
}  # fmt: skip
LARGE = SIZES | {
    "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 17, "num_attention_heads": 16,
    "num_key_value_heads": 16,
}  # fmt: skip
"""The sizes of a model whose file has 1 GB."""
PROMPT, PREFILL, LONG = 16, 512, 2000
"""Tokens of prompts."""
FEW = 24
"""Tokens that follow the longest prompt."""
ENGINES = ("tracecomp", "PyTorch eager", "torch.compile")
ROOT = Path(__file__).resolve().parent.parent


def save(folder: str, sizes: dict[str, object], dtypes: list[str]) -> None:
    """Save a model in each of the dtypes."""
    import_module("tracecomp").as_torch()
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    for dtype in dtypes:
        model.to(getattr(torch, dtype)).save_pretrained(f"{folder}/{dtype}")


class Clock:
    """A streamer of transformers that notes the time of every token: processor time, if there is one thread."""

    def __init__(self, threads: int) -> None:
        self.now = time.process_time if threads == 1 else time.perf_counter
        self.times = [self.now()]

    def put(self, value: object) -> None:
        self.times.append(self.now())

    def end(self) -> None:
        """Nothing is left to write."""


def read_bandwidth() -> float:
    """Bytes that one product of vectors reads per second, with the threads of this process."""
    x = np.ones(1 << 25, np.float32)
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        np.dot(x, x)
        best = min(best, time.perf_counter() - begin)
    return x.nbytes / best


def peak_bytes() -> int:
    """The most memory that this process has had."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def load(engine: str, folder: str, threads: int) -> dict[str, float]:
    """Measure the memory and the time from the start of loading to the first token, in this process."""
    if engine == "tracecomp":
        import_module("tracecomp").as_torch()
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.set_num_threads(threads)
    auto = transformers.AutoModelForCausalLM
    before, begin = peak_bytes(), time.perf_counter()
    model = auto.from_pretrained(folder, dtype="auto").eval()
    loaded = time.perf_counter()
    if engine != "PyTorch eager":
        model.forward = torch.compile(model.forward)
    with torch.no_grad():
        model.generate(torch.arange(PROMPT)[None] + 5, max_new_tokens=1, do_sample=False, pad_token_id=0)
    return {"load": loaded - begin, "first": time.perf_counter() - loaded, "bytes": peak_bytes() - before}


def run(engine: str, folder: str, threads: int, tokens: int) -> dict[str, float]:
    """Measure one engine in this process."""
    if engine == "tracecomp":
        import_module("tracecomp").as_torch()
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.set_num_threads(threads)
    loading = Clock(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    if engine != "PyTorch eager":
        model.forward = torch.compile(model.forward)

    def request(length: int, count: int) -> list[float]:
        clock = Clock(threads)
        ids = (torch.arange(length) * 13 % 29000 + 5)[None]
        options = {"max_new_tokens": count, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        model.generate(ids, streamer=clock, **options)
        return clock.times

    with torch.no_grad():
        first = request(PROMPT, 1)[-1] - loading.times[0]
        request(PROMPT, tokens)
        steps = np.diff(request(PROMPT, tokens)[2:])
        request(LONG, 2 * FEW)  # twice, so that the programs of all lengths are made
        request(LONG, FEW)
        late = np.diff(request(LONG, FEW)[2:])
        request(PREFILL, 1)
        prefill = min(np.diff(request(PREFILL, 1)[-2:])[0] for _ in range(3))
    return {
        "first": first, "token": float(np.percentile(steps, 10)), "late": float(np.percentile(late, 10)),
        "prefill": float(prefill), "read": read_bandwidth(),
    }  # fmt: skip


def child(arguments: list[str], torch: str | None, threads: int) -> dict[str, float]:
    """The figures of a process with these arguments."""
    path = os.pathsep.join(filter(None, (torch, str(ROOT))))
    environment = {
        **os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads), "TRANSFORMERS_VERBOSITY": "error",
    }  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.language_model", *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(engine: str, dtype: str, threads: int, turns: list[dict[str, float]], size: int, bandwidth: float) -> str:
    """A line of the table: the best of the turns."""
    best = {key: min(turn[key] for turn in turns) for key in ("first", "token", "late", "prefill")}
    share = size / best["token"] / bandwidth
    return (
        f"| {engine} | {dtype} | {threads} | {1e3 * best['token']:.1f} | {share:.0%} | {1e3 * best['late']:.1f} | "
        f"{1e3 * best['prefill']:.0f} | {best['first']:.1f} |"
    )


def file_size(folder: Path) -> int:
    """The bytes of the weights in a folder."""
    return sum(f.stat().st_size for f in folder.glob("*.safetensors"))


def measure_requests(options: argparse.Namespace, folder: str) -> None:
    """Print a line for each engine, dtype and number of threads."""
    heads = ("ms a token", "of read bandwidth", f"after {LONG}, ms", f"prefill of {PREFILL}, ms", "first token, s")
    print("| engine | weights | threads |", " | ".join(heads), "|")
    print("|" + 8 * "---|")
    child(["--save", folder, "--dtypes", options.dtypes], None, 2)
    for dtype in options.dtypes.split(","):
        size = file_size(Path(folder, dtype))
        for threads in map(int, options.threads.split(",")):
            found: dict[str, list[dict[str, float]]] = {}
            for _ in range(options.turns):
                for engine in options.engines.split(","):
                    torch = None if engine == "tracecomp" else options.torch
                    given = ["--one", engine, f"{folder}/{dtype}", str(threads), "--tokens", str(options.tokens)]
                    found.setdefault(engine, []).append(child(given, torch, threads))
            bandwidth = max(turn["read"] for turns in found.values() for turn in turns)
            print(f"{bandwidth / 1e9:.1f} GB/s with {threads} threads", file=sys.stderr)
            for engine, turns in found.items():
                print(row(engine, dtype, threads, turns, size, bandwidth), flush=True)


def measure_loading(options: argparse.Namespace, folder: str) -> None:
    """Print a line for each engine."""
    print("| engine | file, GB | memory over file | load, s | first token after that, s |")
    print("|---|---|---|---|---|")
    child(["--save", folder, "--large", "--dtypes", "float32"], None, 2)
    size = file_size(Path(folder, "float32"))
    for engine in options.engines.split(","):
        torch = None if engine == "tracecomp" else options.torch
        given = ["--one", engine, f"{folder}/float32", "2", "--load"]
        turns = [child(given, torch, 2) for _ in range(1 + options.turns)][1:]
        best = {key: min(turn[key] for turn in turns) for key in turns[0]}
        print(
            f"| {engine} | {size / 1e9:.2f} | {best['bytes'] / size:.2f} | {best['load']:.2f} | {best['first']:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.language_model")
    parser.add_argument("torch", nargs="?", help="a folder with PyTorch")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--load", action="store_true", help="measure loading a model of 1 GB")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "FOLDER", "THREADS"), help="measure in this process")
    parser.add_argument("--save", help="save the model to this folder")
    parser.add_argument("--large", action="store_true", help="save the model of 1 GB")
    options = parser.parse_args()
    if options.save:
        save(options.save, LARGE if options.large else SIZES, options.dtypes.split(","))
        print("{}")
    elif options.one:
        engine, folder, threads = options.one
        found = load if options.load else partial(run, tokens=options.tokens)
        print(json.dumps(found(engine, folder, int(threads))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            (measure_loading if options.load else measure_requests)(options, folder)


if __name__ == "__main__":
    main()
