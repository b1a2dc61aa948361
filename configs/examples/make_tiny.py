"""Make the tiny model and data set of the examples; run it with .venv-axolotl/bin/python.

Writes configs/examples/tiny/: `model/`, a Llama of 2 layers with a vocabulary of 512, and
`data.jsonl`, 400 different rows in alpaca form. Needs no network; the bytes are always the same.
Both are made of rules a model of this size can learn, so the loss really falls within 40 steps.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent / "tiny"
STAMP = "made-by-version"
VERSION = "1"
ROWS = 400
VOCABULARY = 512
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]

COLOURS = {"red": "warm", "orange": "warm", "yellow": "warm", "blue": "cold", "green": "cold"}
ANIMALS = {"cat": "mews", "dog": "barks", "cow": "moos", "duck": "quacks", "horse": "neighs"}
NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jill"]
PLACES = ["house", "garden", "street", "market", "forest", "harbour", "school", "field"]


def main() -> int:
    """Make the folder if it is not there; it appears under its name only when it is complete."""
    stamp = TARGET / STAMP
    if stamp.is_file() and stamp.read_text() == VERSION:
        return 0
    os.environ["HF_HUB_OFFLINE"] = "1"
    fresh = TARGET.with_name(f".tiny.{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    rows = make_rows(random.Random(0))
    (fresh / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_model(fresh / "model", [" ".join(row.values()) for row in rows])
    (fresh / STAMP).write_text(VERSION)
    shutil.rmtree(TARGET, ignore_errors=True)
    fresh.rename(TARGET)
    print(f"made {TARGET}")
    return 0


def make_rows(chance: random.Random) -> list[dict[str, str]]:
    """Return ROWS different rows {instruction, input, output}."""
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < ROWS:
        row = _row(chance)
        rows[json.dumps(row)] = row
    return list(rows.values())


def write_model(folder: Path, texts: list[str]) -> None:
    """Train the tokenizer on `texts` and save it with a freshly initialised model."""
    import torch
    from tokenizers import ByteLevelBPETokenizer  # type: ignore[import-not-found,unused-ignore]
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, VOCABULARY, 2, show_progress=False, special_tokens=SPECIAL)
    unknown, begin, end, pad = SPECIAL
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        unk_token=unknown,
        bos_token=begin,
        eos_token=end,
        pad_token=pad,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=176,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=512,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=3,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _row(chance: random.Random) -> dict[str, str]:
    name, place = chance.choice(NAMES), chance.choice(PLACES)
    colour, animal = chance.choice(list(COLOURS)), chance.choice(list(ANIMALS))
    if chance.random() < 0.5:
        return {
            "instruction": f"What does {name} hear in the {place}?",
            "input": f"There is a {colour} {animal} in the {place}.",
            "output": f"{name} hears the {colour} {animal}. The {animal} {ANIMALS[animal]}.",
        }
    return {
        "instruction": f"Which colour does {name} see in the {place}?",
        "input": f"The {animal} in the {place} is {colour}.",
        "output": f"{name} sees {colour}. It is a {COLOURS[colour]} colour.",
    }


if __name__ == "__main__":
    sys.exit(main())
