"""The estimate of memory against real trainings of tiny models on the CPU, by the same formula.

There tensors are counted instead of what a GPU's allocator says; CUDA's own memory and fragments
are no part of it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pod import trainer
from pod.rundir import RunDir
from runner.batch import Batch
from runner.estimates.hub import read_model
from runner.estimates.model import Model, model_of
from runner.estimates.training import Training, training_of
from runner.estimates.vram import GIB, vram
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import needs_axolotl
from tests.e2e.training import TrainServer, make_run

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

WITHIN = 0.10
PADDED = {"pad_to_sequence_len": True, "max_steps": 3, "save_steps": 3, "eval_steps": None,
          "val_set_size": 0, "optimizer": "adamw_torch_fused",
          "plugins": ["tests.faults.memory_meter.MemoryMeter"]}  # fmt: skip
# axolotl's own kernels for LoRA are for GPUs alone.
LORA = {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True,
        "lora_mlp_kernel": False, "lora_qkv_kernel": False, "lora_o_kernel": False}  # fmt: skip
# A layer is wide enough that what it keeps outweighs masks, tables of positions and the like.
WIDE = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    "changes",
    [{}, {"gradient_checkpointing": True}, LORA, {"gradient_accumulation_steps": 2}],
    ids=["full", "checkpointing", "lora", "accumulation"],
)
def test_a_training_of_axolotl_holds_what_is_estimated(
    train_server: TrainServer, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """The tiny model of the examples, in 32 bit, 8 rows of 256 tokens."""
    keys = {**PADDED, **changes}
    run_dir = make_run(tmp_path / "run", **keys)
    trained = train_server.train(run_dir).result()
    assert trained.code == 0, trained.log()[-2000:]
    measured = json.loads((run_dir.path / "memory.json").read_text())[-1]
    axolotl = {"sequence_len": 256, "micro_batch_size": 8, **keys}
    model = read_model("configs/examples/tiny/model", folders=[REPOSITORY], offline=True)
    _compare(model, training_of(axolotl), measured)


@pytest.fixture(scope="module")
def measured() -> list[dict[str, int]]:
    """All cases in one process: its imports take longer than they do."""
    needs_axolotl()
    axolotl_env = axolotl_environment()
    settings = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
                "ACCELERATE_USE_CPU": "1", "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
    environment = trainer.trainer_environment(
        settings, axolotl_env=axolotl_env, run_dir=RunDir(Path("none")), gpu=False
    )
    words = [
        str(axolotl_env / "bin" / "python"),
        "-m",
        "tests.e2e.memory_worker",
        json.dumps(CASES),
    ]
    done = subprocess.run(
        words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"param')]


def _case(words: int, method: str, checkpointing: str, *, eager: bool = False) -> dict[str, Any]:
    return {"config": {**WIDE, "vocab_size": words}, "method": method, "eager": eager,
            "checkpointing": checkpointing, "micro": 2, "sequence": 256}  # fmt: skip


CASES = [
    _case(16000, "full", "no"),
    _case(16000, "full", "yes"),
    _case(16000, "lora", "yes"),
    _case(256, "full", "no"),
    _case(256, "full", "yes"),
    _case(256, "lora", "no"),
    _case(256, "lora", "yes"),
    _case(256, "full", "no", eager=True),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_training_in_16_bit_holds_what_is_estimated(
    measured: list[dict[str, int]], number: int
) -> None:
    """With a large vocabulary the logits make the peak, with a small one the layers."""
    case = CASES[number]
    plan = Training(
        method=case["method"],
        batch=Batch(case["micro"]),
        sequence=case["sequence"],
        checkpointing=case["checkpointing"],
        attention="eager" if case["eager"] else "flash",  # without padding sdpa needs no mask
    )
    _compare(model_of("tiny", case["config"]), plan, measured[number])


def _compare(model: Model, plan: Training, measured: dict[str, int]) -> None:
    assert plan.trained(model) == measured["parameters"]
    estimated = vram(model, plan).allocated * GIB
    error = estimated / measured["peak"] - 1
    told = f"{estimated / 1e6:.1f} MB estimated, {measured['peak'] / 1e6:.1f} MB measured"
    print(f"{error:+.1%}: {told}")
    assert abs(error) <= WITHIN, f"{error:+.1%}: {told}"
