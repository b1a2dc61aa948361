"""log_eval: each evaluation leaves its worst samples behind, as a file and as a W&B table.

It looks at what trainer.compute_loss returns within an evaluation and changes nothing of it: no
forward pass, no random number of its own. Each rank keeps its worst, rank 0 writes them down at
the end. What goes wrong costs the rows and one line in the log, never the training.

Not covered, one line says so: losses without logits (fused and cut cross entropy), preference and
reward data (DPO, KTO, ORPO, GRPO), encoder-decoder models, context parallelism. A generator of
evaluation data gives samples without an index.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial, wraps
from typing import Any

import torch
from torch.utils.data import SequentialSampler
from transformers import Trainer

from pod import eval_rows, ranks
from pod.eval_rows import EvalRow, Keeper
from pod.eval_scores import Part, parts_of, sample_of
from pod.postmortem import row_sampler
from pod.reporter import Reporter

_COLUMNS = ("loss", "tokens", "right", "peak", "index", "chosen", "input", "label", "prediction")


class NoRows(Exception):
    """This training's evaluations can't be told sample by sample; the message says why."""


@dataclass
class _Evaluation:
    """One that is going on; `batches` gives the indices of each batch, None if not known."""

    keeper: Keeper
    batches: Iterator[Any] | None


class EvalLog:
    """Watches a trainer's evaluations; `reporter` gives the reporter of the attempt that runs."""

    def __init__(self, trainer: Trainer, reporter: Callable[[], Reporter]) -> None:
        self.trainer = trainer
        self.reporter = reporter
        self.given_up: str | None = None
        self._now: _Evaluation | None = None

    def attach(self) -> None:
        """Wrap the evaluation's loop, once for each set, and the loss."""
        self.trainer.evaluation_loop = self._watched(self.trainer.evaluation_loop)
        self.trainer.compute_loss = self._seen(self.trainer.compute_loss)

    def _watched(self, loop: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(loop)
        def watched_loop(dataloader: Any, *args: Any, **kwargs: Any) -> Any:
            self._now = _Evaluation(
                Keeper(seed=self.trainer.state.global_step), _indices(dataloader)
            )
            try:
                output = loop(dataloader, *args, **kwargs)
                self._finish(self._now, str(kwargs.get("metric_key_prefix", "eval")))
            finally:
                self._now = None
            return output

        return watched_loop

    def _seen(self, compute_loss: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(compute_loss)
        def seen_loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            # Label smoothing takes the labels out of the inputs.
            labels = inputs.get("labels") if self._now and isinstance(inputs, Mapping) else None
            result = compute_loss(model, inputs, *args, **kwargs)
            if self._now is not None and self.given_up is None:
                try:
                    self._look(self._now, inputs, labels, result)
                except NoRows as why:
                    self._give_up(str(why))
                except Exception as error:  # the border: a courtesy must not end a training
                    self._give_up(f"{type(error).__name__}: {error}")
            return result

        return seen_loss

    def _look(self, now: _Evaluation, inputs: Any, labels: Any, result: Any) -> None:
        batch = next(now.batches, None) if now.batches is not None else None
        logits = _logits(result)
        _must_have_rows(self.trainer, logits, labels)
        # A model in parts has its logits on the last device.
        labels = labels.to(logits.device)
        given = {
            name: inputs[name].to(logits.device)
            for name in ("input_ids", "attention_mask", "position_ids")
            if isinstance(inputs.get(name), torch.Tensor)
        }
        with torch.no_grad():
            mask, positions = given.get("attention_mask"), given.get("position_ids")
            for part in parts_of(logits, labels, position_ids=positions, attention_mask=mask):
                make = partial(
                    sample_of,
                    part,
                    logits,
                    labels,
                    input_ids=given.get("input_ids", labels),
                    attention_mask=mask,
                    index=_index(batch, part, len(labels)),
                )
                now.keeper.offer(part.loss, make)

    def _finish(self, now: _Evaluation, prefix: str) -> None:
        """A collective: every rank comes here, whatever it has seen."""
        if not now.keeper.offered and self.given_up is None:
            self._give_up("the evaluation does not go through the trainer's compute_loss")
        samples = ranks.from_all(self.trainer, now.keeper.samples())
        reporter, step = self.reporter(), self.trainer.state.global_step
        if not reporter.writes or not samples:
            return
        try:
            rows = [
                eval_rows.row_of(
                    sample, self.trainer.processing_class, attempt=reporter.attempt, step=step
                )
                for sample in eval_rows.chosen(samples)
            ]
            of = prefix.removeprefix("eval").strip("_")
            eval_rows.write(reporter.run_dir, rows, attempt=reporter.attempt, step=step, of=of)
            _log_table(rows, of)
        except Exception as error:  # the border: a full disk, a tracker that is away
            _say(f"{type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        self.given_up = why
        _say(f"{why}; evaluations are not told sample by sample")


def _logits(result: Any) -> Any:
    outputs = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    if isinstance(outputs, Mapping):
        return outputs.get("logits")
    return getattr(outputs, "logits", None)


def _must_have_rows(trainer: Trainer, logits: Any, labels: Any) -> None:
    if not isinstance(labels, torch.Tensor) or labels.ndim != 2:
        raise NoRows("the data has no labels token by token")
    if not isinstance(logits, torch.Tensor):
        raise NoRows("the model computes its loss without logits")
    model = trainer.accelerator.unwrap_model(trainer.model)
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False) or "Classification" in type(model).__name__:
        raise NoRows(f"{type(model).__name__} does not predict the next token")
    if logits.ndim != 3 or logits.shape[:2] != labels.shape:
        raise NoRows(f"logits {tuple(logits.shape)} do not fit labels {tuple(labels.shape)}")


def _indices(loader: Any) -> Iterator[Any] | None:
    """The batches of indices into the evaluation set, in the order in which they come."""
    known = isinstance(row_sampler(loader), SequentialSampler)
    return _lazily(loader.batch_sampler) if known else None


def _lazily(batches: Iterable[Any]) -> Iterator[Any]:
    """Packing lays out its batches for the evaluation itself first, and need not do so twice."""
    yield from batches


def _index(batch: Any, part: Part, rows: int) -> int | None:
    """A batch is a list of indices, with packing a list of such lists."""
    if batch is None:
        return None
    inside = list(batch) if len(batch) == rows else [list(batch)]  # flattened into one row
    place: Any = inside[part.row] if part.row < len(inside) else None
    if isinstance(place, list | tuple):
        place = place[part.nth] if part.nth < len(place) else None
    return None if place is None else int(place)


def _log_table(rows: Sequence[EvalRow], of: str) -> None:
    """With the entry of the evaluation's numbers, which the trainer logs next: no step more."""
    wandb: Any = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is None:
        return
    data = [[asdict(row)[column] for column in _COLUMNS] for row in rows]
    table = wandb.Table(columns=list(_COLUMNS), data=data)
    run.log({f"eval/{of + '_' if of else ''}worst_rows": table}, commit=False)


def _say(what: str) -> None:
    print(f"axolotl-runner: log_eval: {what}", flush=True)
