"""Started by test_vram_runs.py in axolotl's environment: trains tiny models of transformers in 16
bit on the CPU, as axolotl would on a GPU, and prints what each held at its peak, one JSON line a case.

The cases come as JSON on the command line: {config, method, checkpointing, eager, micro, sequence}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from tests.faults.live_bytes import LiveBytes


def measure(case: dict[str, Any]) -> dict[str, int]:
    """Two optimizer steps; the second has the optimizer's states from the start."""
    attention = "eager" if case["eager"] else "sdpa"
    config = LlamaConfig(**case["config"], use_cache=False, attn_implementation=attention)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    if case["method"] == "lora":
        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
        model.enable_input_require_grads()
    if case["checkpointing"] == "yes":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    model = Accelerator(mixed_precision="bf16", cpu=True).prepare_model(model)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, foreach=False)
    rows = torch.randint(0, config.vocab_size, (case["micro"], case["sequence"]))
    peak = 0
    for _ in range(2):
        states = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
        with LiveBytes([*model.parameters(), *states, rows]) as live:
            model(input_ids=rows, labels=rows)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        peak = live.peak
    return {"parameters": sum(each.numel() for each in trained), "peak": peak}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in json.loads(sys.argv[1]):
        print(json.dumps(measure(each)), flush=True)
