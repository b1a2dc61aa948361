"""Evaluations sample by sample and the user's callbacks, with a tiny Llama and transformers' own
Trainer; run in the trainer's environment by test_trainer_side.py.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import wandb
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from pod import eval_log, eval_rows, eval_scores, user_callbacks
from pod.eval_log import EvalLog
from pod.eval_rows import EvalRow
from pod.eval_scores import Part, parts_of, sample_of
from pod.reporter import Reporter
from pod.rundir import RunDir
from tests.e2e.side_checks import check, run_checks

IGNORED = -100
Row = dict[str, list[int]]


def llama(**changes: Any) -> LlamaForCausalLM:
    """A Llama of 2 layers, with weights large enough to have opinions."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.3,
        **changes,
    )
    return LlamaForCausalLM(config).eval()


def samples(count: int, *, masked: bool = True) -> list[Row]:
    """Rows of 5 to 14 tokens, of which the first three have no label if `masked`."""
    chance = random.Random(1)
    rows = []
    for _ in range(count):
        ids = [chance.randrange(64) for _ in range(chance.randrange(5, 15))]
        rows.append({"input_ids": ids, "labels": [IGNORED] * 3 + ids[3:] if masked else ids})
    return rows


def padded(rows: list[Row]) -> dict[str, torch.Tensor]:
    """A batch of rows, padded to the right."""
    longest = max(len(row["input_ids"]) for row in rows)

    def filled(values: list[int], with_: int) -> list[int]:
        return values + [with_] * (longest - len(values))

    return {
        "input_ids": torch.tensor([filled(row["input_ids"], 0) for row in rows]),
        "labels": torch.tensor([filled(row["labels"], IGNORED) for row in rows]),
        "attention_mask": torch.tensor([filled([1] * len(row["labels"]), 0) for row in rows]),
    }


def packed(rows: list[Row], *, padding: int = 3) -> dict[str, torch.Tensor]:
    """The rows one after the other in a single one, as axolotl's packing lays them out."""

    def joined(values: list[list[int]], with_: int) -> torch.Tensor:
        return torch.tensor([[*chain(*values), *[with_] * padding]])

    return {
        "input_ids": joined([row["input_ids"] for row in rows], 0),
        "labels": joined([row["labels"] for row in rows], IGNORED),
        "position_ids": joined([list(range(len(row["labels"]))) for row in rows], 0),
        "numbers": joined([[n] * len(row["labels"]) for n, row in enumerate(rows, 1)], 0),
    }


@torch.no_grad()
def logits_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Those of a packed row; with a cache the samples in it would see each other."""
    given = {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"]}
    logits: torch.Tensor = model(**given, use_cache=False).logits
    return logits


@torch.no_grad()
def alone(model: Any, row: Row) -> float:
    """The loss that the model itself gives for the row and nothing else."""
    return float(
        model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss
    )


def near(found: list[float], wanted: list[float]) -> None:
    """Equal but for rounding."""
    assert len(found) == len(wanted), (found, wanted)
    for one, other in zip(found, wanted, strict=True):
        assert math.isclose(one, other, rel_tol=1e-5), (found, wanted)


# ------------------------------------------------------------------------------ scores


@check
def each_row_has_the_loss_that_the_model_gives_it_alone() -> None:
    """Padding and other rows do not count; a row without a label is left out."""
    model, rows = llama(), samples(6)
    rows[2]["labels"] = [IGNORED] * len(rows[2]["labels"])
    batch = padded(rows)
    with torch.no_grad():
        logits = model(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    parts = parts_of(logits, batch["labels"], attention_mask=batch["attention_mask"])
    assert [part.row for part in parts] == [0, 1, 3, 4, 5]
    near([part.loss for part in parts], [alone(model, rows[part.row]) for part in parts])
    assert [len(part.labelled) for part in parts] == [
        len(rows[part.row]["labels"]) - 3 for part in parts
    ]


@check
def samples_of_a_packed_row_are_told_apart_by_their_positions() -> None:
    """Also where the first token of each has a label: only the sample before could predict it."""
    for masked in (True, False):
        model, rows = llama(), samples(4, masked=masked)
        batch = packed(rows)
        logits = logits_of(model, batch)
        parts = parts_of(logits, batch["labels"], position_ids=batch["position_ids"])
        assert [(part.row, part.nth) for part in parts] == [(0, 0), (0, 1), (0, 2), (0, 3)]
        near([part.loss for part in parts], [alone(model, row) for row in rows])


@check
def samples_of_a_packed_row_are_told_apart_by_the_numbers_in_the_mask() -> None:
    """Where axolotl numbers the positions of a whole row through."""
    model, rows = llama(), samples(4)
    batch = packed(rows)
    logits = logits_of(model, batch)
    positions = torch.arange(logits.shape[1])[None]
    parts = parts_of(
        logits, batch["labels"], position_ids=positions, attention_mask=batch["numbers"]
    )
    near([part.loss for part in parts], [alone(model, row) for row in rows])
    assert [part.nth for part in parts] == [0, 1, 2, 3]


@check
def logits_are_looked_at_in_portions() -> None:
    """The same losses, however small."""
    model, batch = llama(), padded(samples(5))
    with torch.no_grad():
        logits = model(batch["input_ids"]).logits
    whole = [part.losses.tolist() for part in parts_of(logits, batch["labels"])]
    usual, eval_scores.MOST_NUMBERS = eval_scores.MOST_NUMBERS, 3 * 64
    try:
        assert [part.losses.tolist() for part in parts_of(logits, batch["labels"])] == whole
    finally:
        eval_scores.MOST_NUMBERS = usual


@check
def a_sample_shows_what_was_asked_wanted_and_said() -> None:
    """The prediction stands for the labels, token by token; padding is no part of the input."""
    labels = torch.tensor([[IGNORED, IGNORED, IGNORED, 7, 8, 9]])
    ids = torch.tensor([[0, 5, 6, 7, 8, 9]])
    logits = torch.zeros(1, 6, 64)
    for place, token in ((2, 7), (3, 1), (4, 9)):
        logits[0, place, token] = 9.0
    mask = torch.tensor([[0, 1, 1, 1, 1, 1]])
    (part,) = parts_of(logits, labels, attention_mask=mask)
    sample = sample_of(part, logits, labels, input_ids=ids, attention_mask=mask, index=3)
    assert (sample.input, sample.label, sample.prediction) == ((5, 6), (7, 8, 9), (7, 1, 9))
    assert (sample.tokens, sample.right, sample.index) == (3, 0.6667, 3)
    assert sample.peak == max(part.losses.tolist()) > 9


@check
def of_a_long_sample_the_place_around_its_worst_token_is_kept() -> None:
    """And of what stands before, the end."""
    length, worst = 4000, 3000
    ids = torch.arange(length)[None] % 50
    labels = ids.clone()
    labels[:, :1000] = IGNORED
    logits = torch.zeros(1, length, 64)
    logits[0, torch.arange(length - 1), ids[0, 1:]] = 9.0
    logits[0, worst - 1] = 0
    logits[0, worst - 1, 60] = 20.0
    (part,) = parts_of(logits, labels)
    sample = sample_of(part, logits, labels, input_ids=ids)
    texts = (sample.input, sample.label, sample.prediction)
    assert [len(text) for text in texts] == [eval_rows.EXCERPT] * 3
    assert 60 in sample.prediction
    assert sample.input[-1] == 999 % 50
    assert sample.tokens == 3000


@check
def a_loss_that_is_no_number_is_kept_as_the_worst() -> None:
    """It says the most."""
    logits = torch.zeros(2, 4, 8)
    logits[1, 1] = math.nan
    labels = torch.ones(2, 4, dtype=torch.long)
    fine, broken = parts_of(logits, labels)
    assert math.isnan(broken.loss)
    assert math.isfinite(fine.loss)
    sample = sample_of(broken, logits, labels, input_ids=labels)
    assert math.isnan(sample.peak)


# ------------------------------------------------------------------------------ in a trainer


class Words:
    """A tokenizer: each token is a word."""

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{token}" for token in ids)

    def save_pretrained(self, *_: Any, **__: Any) -> None:
        """Nothing to save."""


class Losses(TrainerCallback):  # type: ignore[misc]  # transformers ships no types
    """All that is logged."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Keep what does not depend on the clock."""
        kept = {k: v for k, v in logs.items() if not k.endswith(("runtime", "per_second"))}
        self.logged.append(kept)


def train(
    folder: Path, *, log_eval: bool = True, model: Any = None, sets: Any = None, **arguments: Any
) -> list[dict[str, float]]:
    """Train 6 steps, evaluate after each third; returns what was logged."""
    losses = Losses()
    model = model or llama()
    torch.manual_seed(3)
    trainer = Trainer(
        model=model.train(),
        args=TrainingArguments(
            output_dir=str(folder / "out"),
            max_steps=6,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="no",
            logging_steps=1,
            use_cpu=True,
            disable_tqdm=True,
            **{"report_to": [], **arguments},
        ),
        train_dataset=samples(30),
        eval_dataset=sets or samples(10),
        data_collator=padded,
        processing_class=Words(),
        callbacks=[losses],
    )
    if log_eval:
        reporter = Reporter(RunDir(folder), {"attempt": 2, "log_eval": True})
        EvalLog(trainer, lambda: reporter).attach()
    trainer.train()
    return losses.logged


def rows_of(folder: Path) -> dict[str, list[EvalRow]]:
    """All files of a run, by their names."""
    return {file.name: eval_rows.read(file) for file in sorted((folder / "evals").glob("*"))}


@contextlib.contextmanager
def said() -> Iterator[list[str]]:
    """Collects our own lines of the log."""
    lines: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()) as out:
        yield lines
    lines += [line for line in out.getvalue().splitlines() if line.startswith("axolotl-runner")]


def temporary() -> Path:
    return Path(tempfile.mkdtemp())


@check
def an_evaluation_leaves_all_its_samples_the_worst_first() -> None:
    """One row a sample with its index; weighted by tokens and batches they give the eval loss."""
    folder = temporary()
    logged = train(folder)
    found = rows_of(folder)
    assert list(found) == ["step-3.attempt-2.jsonl", "step-6.attempt-2.jsonl"]
    rows = found["step-6.attempt-2.jsonl"]
    assert [row.loss for row in rows] == sorted((row.loss for row in rows), reverse=True)
    assert sorted(row.index for row in rows if row.index is not None) == list(range(10))
    assert {(row.attempt, row.step, row.chosen) for row in rows} == {(2, 6, "worst")}
    data = samples(10)
    for row in rows:
        assert row.index is not None
        ids = data[row.index]["input_ids"]
        assert row.input == Words().decode(ids[:3])
        assert row.label == Words().decode(ids[3:])
        assert len(row.prediction.split()) == row.tokens == len(ids) - 3
    by_index = {row.index: row for row in rows}
    batches = [[by_index[n] for n in range(at, min(at + 4, 10))] for at in (0, 4, 8)]
    means = [
        sum(row.loss * row.tokens for row in batch) / sum(row.tokens for row in batch)
        for batch in batches
    ]
    # The trainer counts every batch as a full one, and cuts the surplus off the last.
    wanted = sum(mean * len(batch) for mean, batch in zip(means, batches, strict=True)) / 10
    (last,) = [entry["eval_loss"] for entry in logged[-3:] if "eval_loss" in entry]
    near([wanted], [last])


@check
def no_number_of_the_training_is_changed() -> None:
    """To the last digit, dropout and label smoothing included."""
    for arguments in ({}, {"label_smoothing_factor": 0.1}):
        with_it = train(temporary(), model=llama(attention_dropout=0.2), **arguments)
        without = train(
            temporary(), log_eval=False, model=llama(attention_dropout=0.2), **arguments
        )
        assert with_it == without, (with_it, without)
        assert len([entry for entry in with_it if "eval_loss" in entry]) == 2


@check
def label_smoothing_takes_no_labels_away() -> None:
    """The loss of a row is the plain one."""
    folder = temporary()
    train(folder, label_smoothing_factor=0.1)
    assert len(rows_of(folder)["step-6.attempt-2.jsonl"]) == 10


@check
def each_evaluation_set_has_its_own_file() -> None:
    """Its name goes into the file's."""
    folder = temporary()
    train(folder, sets={"held/out": samples(5), "easy": samples(4)})
    found = rows_of(folder)
    assert {name: len(rows) for name, rows in found.items() if name.startswith("step-6")} == {
        "step-6.attempt-2.held_out.jsonl": 5,
        "step-6.attempt-2.easy.jsonl": 4,
    }
    assert len(eval_rows.newest_worst(RunDir(folder))) == 9


@check
def what_fails_costs_the_rows_and_one_line() -> None:
    """The training ends as it would have."""
    wanted = train(temporary(), log_eval=False)

    def broken(*_: Any, **__: Any) -> list[Part]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    real, eval_log.parts_of = eval_log.parts_of, broken
    folder = temporary()
    try:
        with said() as lines:
            assert train(folder) == wanted
    finally:
        eval_log.parts_of = real
    assert lines == [
        "axolotl-runner: log_eval: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
        "GiB.; evaluations are not told sample by sample"
    ], lines
    assert rows_of(folder) == {}


@check
def a_disk_that_is_full_costs_the_rows() -> None:
    """Each evaluation says so."""
    folder = temporary()
    (folder / "evals").write_text("no folder")
    with said() as lines:
        assert train(folder) == train(temporary(), log_eval=False)
    assert len(lines) == 2, lines


class WithoutLogits(LlamaForCausalLM):  # type: ignore[misc]
    """As with a fused loss: no logits, in training and evaluation."""

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any, **given: Any) -> Any:
        """The loss alone."""
        outputs = super().forward(input_ids, attention_mask, labels=labels, **given)
        return CausalLMOutputWithPast(loss=outputs.loss)


@check
def a_loss_without_logits_is_said_once() -> None:
    """No row, no error."""
    folder = temporary()
    with said() as lines:
        train(folder, model=WithoutLogits(llama().config))
    assert lines == [
        "axolotl-runner: log_eval: the model computes its loss without logits; evaluations are "
        "not told sample by sample"
    ], lines
    assert rows_of(folder) == {}


@check
def an_evaluation_that_goes_other_ways_is_said_once() -> None:
    """As those of some preference trainers."""
    trainer = Trainer(
        model=llama(),
        args=TrainingArguments(output_dir=str(temporary()), use_cpu=True, report_to=[]),
        eval_dataset=samples(4),
        data_collator=padded,
    )
    trainer.prediction_step = lambda *_, **__: (torch.tensor(1.0), None, None)
    folder = temporary()
    reporter = Reporter(RunDir(folder), {"attempt": 1})
    EvalLog(trainer, lambda: reporter).attach()
    with said() as lines:
        assert trainer.evaluate()["eval_loss"] == 1.0
        trainer.evaluate()
    assert len(lines) == 1, lines
    assert "compute_loss" in lines[0]


@check
def a_table_comes_with_the_numbers_of_its_evaluation() -> None:
    """In W&B itself, offline: as many steps as without tables, and a table each evaluation."""
    tables, steps = {}, {}
    for folder in (with_it := temporary(), without := temporary()):
        settings = wandb.Settings(console="off", x_disable_stats=True, silent=True)
        run = wandb.init(project="evals", dir=str(folder), mode="offline", settings=settings)
        train(folder, log_eval=folder is with_it, report_to=["wandb"])
        steps[folder] = run.step
        run.finish()
        files = sorted(folder.rglob("*.table.json"), key=lambda file: file.stat().st_mtime_ns)
        tables[folder] = [json.loads(file.read_text()) for file in files]
    assert steps[with_it] == steps[without] > 8, steps
    assert tables[without] == []
    _, last = tables[with_it]
    rows = rows_of(with_it)["step-6.attempt-2.jsonl"]
    assert {"input", "label", "prediction"} < set(last["columns"])
    assert [row[last["columns"].index("loss")] for row in last["data"]] == [r.loss for r in rows]


# ------------------------------------------------------------------------------ callbacks


class Plain(TrainerCallback):  # type: ignore[misc]
    """Counts how often it is told that the trainer is there."""

    def __init__(self) -> None:
        self.told = 0

    def on_init_end(self, *_: Any, **__: Any) -> None:
        """Count."""
        self.told += 1

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Fail."""
        raise ValueError("boom")


def module(text: str, name: str) -> str:
    """A module of the user's; returns its path."""
    folder = temporary()
    (folder / f"{name}.py").write_text("from transformers import TrainerCallback\n" + text)
    sys.path.insert(0, str(folder))
    return str(folder / f"{name}.py")


def failure(act: Callable[[], Any]) -> Exception:
    """The error that it ends with."""
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


def refusal(name: str) -> str:
    """Why a callback can't be used."""
    error = failure(lambda: user_callbacks.find([name]))
    assert isinstance(error, user_callbacks.UserCallbackError)
    return str(error)


@check
def a_callback_that_cannot_be_used_is_named_with_its_reason() -> None:
    """Whatever is wrong with it, in one line."""
    path = module(
        "class Fine(TrainerCallback): pass\nclass Odd: pass\n"
        "class Needy(TrainerCallback):\n    def __init__(self, path): pass\n",
        "theirs",
    )
    module("import nowhere_to_be_found\n", "needs_other")
    module("import sys; sys.exit('no licence')\n", "leaves")
    assert list(user_callbacks.find(["theirs.Fine"])) == ["theirs.Fine"]
    assert refusal("not_there.Fine") == (
        "runner.callbacks: not_there.Fine: not_there can't be imported: ModuleNotFoundError: No "
        "module named 'not_there'"
    )
    assert "No module named 'nowhere_to_be_found'" in refusal("needs_other.X")
    assert "SystemExit: no licence" in refusal("leaves.X")
    assert refusal("theirs.Gone") == f"runner.callbacks: theirs.Gone: {path} has no Gone"
    assert "no class derived from" in refusal("theirs.Odd")
    assert "missing a required argument: 'path'" in refusal("theirs.Needy")
    assert "; tests is " in refusal("tests.nothing.X")


@check
def callbacks_are_told_that_the_trainer_is_there_and_are_named_when_they_fail() -> None:
    """They come last; whoever fails is known by the frames of its error."""
    trainer = Trainer(
        model=llama().train(),
        args=TrainingArguments(
            output_dir=str(temporary()), use_cpu=True, report_to=[], save_strategy="no"
        ),
        train_dataset=samples(8),
        data_collator=padded,
    )
    users = user_callbacks.add({"mine.Plain": Plain}, trainer)
    (made,) = users.made.values()
    assert made.told == 1  # type: ignore[attr-defined]
    assert trainer.callback_handler.callbacks[-1] is made
    error = failure(trainer.train)
    assert str(error) == "boom"
    assert users.hook_of(error) == "mine.Plain.on_step_end"
    assert users.hook_of(ValueError("another")) is None


if __name__ == "__main__":
    run_checks()
