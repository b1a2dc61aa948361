"""One rank of a training on the CPU, with our plugin in transformers' own Trainer.

    torchrun --nproc-per-node 2 tests/e2e/ranks_worker.py RUN_DIR FAULT

axolotl itself does not load its model with several ranks on a CPU. Each rank leaves a file
`rank-R.json` in the run directory: {"step", "error": name or null}. With `--record` rows have
numbers, and each rank appends to `rows-R.jsonl`: {"attempt", "step", "rows": [number, …]}. With
`--evaluate N` N rows are evaluated every 10 steps, and rank 0 asks for each alone
(tests/faults/each_alone.py).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import IntervalStrategy

from pod.plugin import RunnerPlugin
from tests.faults.each_alone import Asking

FAULT_STEP = 15


def main(words: list[str]) -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--evaluate", type=int, default=0)
    arguments = parser.parse_args(words)
    # Without this a checkpoint of several CPU ranks is not loaded: "cpu:0" is no known place.
    torch.serialization.register_package(
        5, lambda _: None, lambda stored, place: stored if str(place).startswith("cpu:") else None
    )
    trainer = make_trainer(
        arguments.run_dir,
        arguments.steps,
        per_device_train_batch_size=arguments.micro,
        gradient_accumulation_steps=arguments.accumulation,
    )
    if arguments.record:
        record_rows(trainer, arguments.run_dir)
    if arguments.evaluate:
        evaluate(trainer, arguments.run_dir, arguments.evaluate)
    cfg = Settings(output_dir=trainer.args.output_dir)
    plugin = RunnerPlugin()
    marker = arguments.run_dir / "fault"
    if not marker.exists():
        FAULTS[arguments.fault](trainer)
    plugin.post_trainer_create(cfg, trainer)
    error: str | None = None
    try:
        trainer.train(resume_from_checkpoint=str(arguments.resume) if arguments.resume else None)
        trainer.save_model()
        plugin.post_train_unload(cfg)
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        marker.touch()
        left = {"step": trainer.state.global_step, "error": error}
        (arguments.run_dir / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(left))


class Settings(dict[str, Any]):
    """axolotl's settings, where what is not set is None."""

    __getattr__ = dict.get


def make_trainer(run_dir: Path, steps: int, **batch: int) -> Trainer:
    """A Llama of 2 layers and rows that count up."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        )
    )
    counting = [[(start * 7 + place) % 64 for place in range(16)] for start in range(400)]
    rows = [{"input_ids": row, "labels": row} for row in counting]
    arguments = TrainingArguments(
        output_dir=str(run_dir / "out"),
        max_steps=steps,
        **batch,
        learning_rate=5e-3,
        logging_steps=1,
        save_steps=5,
        save_total_limit=20,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    return Trainer(model=model, args=arguments, train_dataset=rows)


def record_rows(trainer: Trainer, run_dir: Path) -> None:
    """Write down which rows reach the model; their number is in their first two tokens."""
    rows = [
        [number // 20, number % 20, *row["input_ids"][2:]]
        for number, row in enumerate(trainer.train_dataset)
    ]
    trainer.train_dataset = [{"input_ids": row, "labels": row} for row in rows]
    attempt = json.loads((run_dir / "attempt.json").read_text())["attempt"]
    train = trainer.training_step

    def recording_step(model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        numbers = [20 * int(row[0]) + int(row[1]) for row in inputs["input_ids"]]
        line = {"attempt": attempt, "step": trainer.state.global_step + 1, "rows": numbers}
        with (run_dir / f"rows-{os.environ['RANK']}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return train(model, inputs, *args, **kwargs)

    trainer.training_step = recording_step


def evaluate(trainer: Trainer, run_dir: Path, count: int) -> None:
    """Evaluate rows that are harder the later they come; the last ones are noise."""
    chance = random.Random(1)
    rows = [
        [
            chance.randrange(64) if chance.random() < row / count else (row + i) % 64
            for i in range(16)
        ]
        for row in range(count)
    ]
    trainer.eval_dataset = [{"input_ids": row, "labels": row} for row in rows]
    trainer.args.eval_strategy = IntervalStrategy.STEPS
    trainer.args.eval_steps = trainer.state.eval_steps = 10
    trainer.args.per_device_eval_batch_size = 2
    if trainer.args.process_index == 0:
        trainer.add_callback(Asking(trainer, run_dir / "alone.jsonl"))


# ---------------------------------------------------------------- what may go wrong


def no_fault(trainer: Trainer) -> None:
    """Nothing."""


def ruin_all(trainer: Trainer) -> None:
    """Every rank's weights are ruined alike."""
    trainer.add_callback(AfterStep(lambda: ruin(trainer)))


def ruin_last(trainer: Trainer) -> None:
    """Only the last rank's weights are ruined; nobody copies weights between ranks."""
    if is_last(trainer):  # in the mean of 4 ranks it must still be seen
        trainer.add_callback(AfterStep(lambda: ruin(trainer, noise=40)))


def nan_weights_last(trainer: Trainer) -> None:
    """Only the last rank's weights become NaN."""

    def poison() -> None:
        with torch.no_grad():
            next(trainer.model.parameters()).fill_(torch.nan)

    if is_last(trainer):
        trainer.add_callback(AfterStep(poison))


def nan_gradients_last(trainer: Trainer) -> None:
    """The last rank's gradients become NaN after the ranks have added theirs up."""
    if is_last(trainer):
        clip = trainer.accelerator.clip_grad_norm_

        def clip_broken(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            parameters = list(parameters)
            if trainer.state.global_step + 1 == FAULT_STEP:
                parameters[0].grad.fill_(torch.nan)
            return clip(parameters, *args, **kwargs)

        trainer.accelerator.clip_grad_norm_ = clip_broken


def odd_norm_last(trainer: Trainer) -> None:
    """The last rank alone logs an infinite gradient norm once; its weights are well."""
    if is_last(trainer):
        clip = trainer.accelerator.clip_grad_norm_

        def clip_odd(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            at_fault = trainer.state.global_step + 1 == FAULT_STEP
            return torch.full_like(norm, torch.inf) if at_fault else norm

        trainer.accelerator.clip_grad_norm_ = clip_odd


def error_first(trainer: Trainer) -> None:
    """Rank 0 fails."""
    if trainer.args.process_index == 0:
        trainer.add_callback(AfterStep(fail))


def error_last(trainer: Trainer) -> None:
    """The last rank fails."""
    if is_last(trainer):
        trainer.add_callback(AfterStep(fail))


def out_of_memory_last(trainer: Trainer) -> None:
    """The last rank has no memory left."""

    def run_out() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    if is_last(trainer):
        trainer.add_callback(AfterStep(run_out))


def killed_last(trainer: Trainer) -> None:
    """The system kills the last rank."""
    if is_last(trainer):
        trainer.add_callback(AfterStep(lambda: os.kill(os.getpid(), 9)))


FAULTS = {
    fault.__name__: fault
    for fault in (
        no_fault,
        ruin_all,
        ruin_last,
        nan_weights_last,
        nan_gradients_last,
        odd_norm_last,
        error_first,
        error_last,
        out_of_memory_last,
        killed_last,
    )
}


class AfterStep(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """Does something after step FAULT_STEP."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Strike."""
        if state.global_step == FAULT_STEP:
            self.act()


def is_last(trainer: Trainer) -> bool:
    """Whether this is the rank with the highest number."""
    return bool(trainer.args.process_index == trainer.args.world_size - 1)


def ruin(trainer: Trainer, noise: float = 6.0) -> None:
    """Add noise to all matrices, in standard deviations of each."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in trainer.model.parameters():
            if weight.dim() == 2:
                weight += noise * weight.std() * torch.randn(weight.shape, generator=generator)


def fail() -> None:
    """An error that only this rank has."""
    raise RuntimeError("this rank alone")


if __name__ == "__main__":
    main(sys.argv[1:])
