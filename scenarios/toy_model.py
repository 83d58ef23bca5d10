"""The rehearsal's model: a small Qwen3 with random weights and its own tokenizer, written to a folder.

Run as a program in the engine's interpreter (`python -m scenarios.toy_model DIR`), so that the harness itself
never imports torch. Nothing is downloaded.

The weights are normal with a standard deviation of 0.08 and the embeddings are untied: with the tiny weights of
vLLM's `--load-format dummy` every logit is equal, the answer would not depend on the KV cache at all, and
corrupted KV would pass every check.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

VOCABULARY_TOKENS = 1024
LAYERS = 8
KV_HEADS = 2
HEAD_DIM = 64
BYTES_PER_ELEMENT = 2  # bfloat16
MAX_CONTEXT_TOKENS = 16384
WEIGHT_STD = 0.08
SEED = 20260101
# Raised whenever what is written changes, so that an older folder is never taken for a newer one.
FORMAT = 1

# KV bytes per token = 2 (K and V) * layers * kv_heads * head_dim * bytes_per_element.
KV_BYTES_PER_TOKEN = 2 * LAYERS * KV_HEADS * HEAD_DIM * BYTES_PER_ELEMENT

_DONE = "kvgate-model.json"


def is_complete(folder: Path) -> bool:
    """Return whether `folder` holds a model that this version wrote whole."""
    try:
        stamp = json.loads((folder / _DONE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(stamp, dict) or stamp.get("format") != FORMAT:
        return False
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size for name, size in stamp["files"].items()
    )


def write(folder: Path) -> None:
    """Write config, tokenizer and weights to `folder`; the folder appears whole or not at all.

    Raises:
        ImportError: torch, transformers or tokenizers is missing (they come with the engine).
        OSError: the folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        _write_tokenizer(scratch)
        _write_weights(scratch)
        files = {p.name: p.stat().st_size for p in sorted(scratch.iterdir())}
        (scratch / _DONE).write_text(json.dumps({"format": FORMAT, "files": files}, indent=1), encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def fingerprint(folder: Path) -> dict[str, str]:
    """Return SHA-256 by file name of everything in `folder`: which model a run really served."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()}


def _write_tokenizer(folder: Path) -> None:
    import pydoc_data.topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_TOKENS,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Any text will do: Python brings this one along.
    tokenizer.train_from_iterator(pydoc_data.topics.topics.values(), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **dict.fromkeys(("eos_token", "pad_token"), "<|end|>")
    )
    wrapped.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    wrapped.save_pretrained(folder)


def _write_weights(folder: Path) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCABULARY_TOKENS,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=MAX_CONTEXT_TOKENS,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    generator = torch.Generator().manual_seed(SEED)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.copy_(torch.empty(weight.shape).normal_(0.0, WEIGHT_STD, generator=generator))
    model.save_pretrained(folder, safe_serialization=True)


def main(argv: list[str]) -> int:
    """Write the model to the folder named by the only argument, unless it is there already."""
    if len(argv) != 1:
        print("usage: python -m scenarios.toy_model DIR", file=sys.stderr)
        return 2
    folder = Path(argv[0])
    if not is_complete(folder):
        write(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
