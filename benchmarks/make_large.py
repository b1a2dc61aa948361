"""Make a model that takes long to load: the tiny example's tokenizer, 1.1 billion random weights.

Run by the trainer's Python: `make_large.py FOLDER`. The folder appears when it is complete.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENIZER = Path(__file__).resolve().parents[1] / "configs/examples/tiny/model"


def main(folder: Path) -> None:
    """Write it, unless it is there."""
    if folder.exists():
        return
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=512,
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=22,
            num_attention_heads=32,
            num_key_value_heads=32,
            max_position_embeddings=512,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=3,
        )
    )
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    model.save_pretrained(fresh)
    for file in TOKENIZER.glob("*token*"):
        shutil.copy2(file, fresh)
    fresh.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
