"""A language model of transformers writes text: a model folder, loaded, compiled and decoded token by token.

python examples/language_model.py [FOLDER] [--prompt "The quick"] [--tokens 40]

Without a FOLDER, a small Llama with a byte-level tokenizer first learns one sentence and is saved to a new folder. The
example then needs no network. It needs `pip install transformers`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tracecomp

tracecomp.as_torch()

import torch  # noqa: E402  transformers imports this name
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps."
STEPS = 60


def make(folder: str) -> None:
    """Write a model folder: a Llama that has learned ``TEXT``, and a tokenizer with a token for each byte."""
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    by_byte = Tokenizer(models.BPE(vocab=letters, merges=[]))
    by_byte.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    by_byte.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=by_byte)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(letters), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    @torch.compile
    def step() -> Any:
        optimizer.zero_grad()
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(STEPS):
        loss = step()
    print(f"learned the sentence in {STEPS} steps: loss {loss.item():.3f}")
    model.save_pretrained(folder)


def timed(write: Callable[[], str], tokens: int) -> str:
    """The text, and what a token took."""
    begin = time.perf_counter()
    text = write()
    return f"{text}   [{1e3 * (time.perf_counter() - begin) / tokens:.1f} ms a token]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="a folder with config.json, weights and a tokenizer")
    parser.add_argument("--prompt", default="The quick")
    parser.add_argument("--tokens", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or made
        if options.folder is None:
            make(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        given = tokenizer(options.prompt, return_tensors="pt")

        def write() -> str:
            found = model.generate(
                input_ids=given["input_ids"], max_new_tokens=options.tokens, do_sample=False, pad_token_id=0
            )
            return str(tokenizer.decode(found[0]))

        print("eager:         ", timed(write, options.tokens))
        model.forward = torch.compile(model.forward)
        for request in ("first request: ", "second request:", "third request: "):
            print(request, timed(write, options.tokens))
        print(f"recordings: {model.forward.recordings}")


if __name__ == "__main__":
    main()
