"""Which samples of an evaluation are kept, and the file that they go into; no torch in here.

    evals/step-N.attempt-K[.SET].jsonl     one sample a line, the worst first, then some others:
        {loss, tokens, right, peak, index, chosen: worst|random, input, label, prediction,
         attempt, step}

`loss` is the mean over the `tokens` with a label, `peak` the loss of the worst of them, `right`
the share that the model would have said too; a loss that is not finite is text, JSON has none.
`index` is the sample's place in the evaluation set, null where it can't be told. `input` is what
stands before the first label.

However long the evaluation, no more than WORST + OTHERS samples of EXCERPT tokens are held.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pod.rundir import RunDir, replace_text

WORST = 50
OTHERS = 10  # taken at random: what the model makes of an ordinary sample
EXCERPT = 600  # tokens, and then characters, of each text
_NAME = re.compile(r"step-(?P<step>\d+)\.attempt-(?P<attempt>\d+)(\..+)?\.jsonl")

Chosen = Literal["worst", "random"]


@dataclass(frozen=True)
class Sample:
    """A sample as the model saw it; the three texts are token ids, no more than EXCERPT each."""

    loss: float
    tokens: int
    right: float
    peak: float
    index: int | None
    input: tuple[int, ...]
    label: tuple[int, ...]
    prediction: tuple[int, ...]
    chosen: Chosen = "worst"


@dataclass(frozen=True)
class EvalRow:
    """A line of the file; see the module's docstring."""

    loss: float
    tokens: int
    right: float
    peak: float
    index: int | None
    chosen: Chosen
    input: str
    label: str
    prediction: str
    attempt: int
    step: int


class Keeper:
    """Keeps the worst of all the samples that it is offered, and some at random."""

    def __init__(self, seed: int, *, worst: int = WORST, others: int = OTHERS) -> None:
        self.offered = 0
        self._chance = random.Random(seed)  # its own: the training's numbers stay as they are
        self._most, self._most_others = worst, others
        self._worst: list[tuple[float, int, Sample]] = []
        self._others: list[Sample] = []

    def offer(self, loss: float, make: Callable[[], Sample]) -> None:
        """Keep the sample or not; it is made only when it is kept."""
        self.offered += 1
        full = len(self._worst) >= self._most
        bad = badness(loss)
        place = self._chance.randrange(self.offered)
        is_bad = not full or bad > self._worst[0][0]
        if not is_bad and place >= self._most_others:
            return
        sample = make()
        if is_bad:
            push = heapq.heappushpop if full else heapq.heappush
            push(self._worst, (bad, -self.offered, sample))
        other = replace(sample, chosen="random")
        if len(self._others) < self._most_others:
            self._others.append(other)
        elif place < self._most_others:
            self._others[place] = other

    def samples(self) -> list[Sample]:
        """All that is kept, in no order; a sample may be among both."""
        return [*(sample for *_, sample in self._worst), *self._others]


def badness(loss: float | None) -> float:
    """Sorts losses, the worst highest: NaN, then by size, and what has none lowest."""
    if loss is None:
        return -math.inf
    return math.inf if math.isnan(loss) else loss


def chosen(samples: Iterable[Sample], *, worst: int = WORST, others: int = OTHERS) -> list[Sample]:
    """What is kept of all ranks' samples: the worst first, then the others, no sample twice.

    Ranks are given rows again to have equally many, and a sample may be bad and random.
    """
    ordered = sorted(samples, key=lambda each: (each.chosen == "random", -badness(each.loss)))
    seen: set[tuple[object, ...]] = set()
    found: dict[Chosen, list[Sample]] = {"worst": [], "random": []}
    for sample in ordered:
        content = (sample.input, sample.label, sample.loss)
        key = (sample.index,) if sample.index is not None else content
        if key not in seen:
            seen.add(key)
            found[sample.chosen].append(sample)
    random.Random(len(seen)).shuffle(found["random"])
    return found["worst"][:worst] + sorted(
        found["random"][:others], key=lambda each: -badness(each.loss)
    )


def decoded(tokenizer: Any, ids: Sequence[int], length: int = EXCERPT) -> str:
    """The text of some tokens, cut; empty without a tokenizer."""
    # A token has one character at least.
    return str(tokenizer.decode(list(ids[:length])))[:length] if tokenizer and ids else ""


def row_of(sample: Sample, tokenizer: Any, *, attempt: int, step: int) -> EvalRow:
    """The sample in words."""
    return EvalRow(
        loss=sample.loss,
        tokens=sample.tokens,
        right=sample.right,
        peak=sample.peak,
        index=sample.index,
        chosen=sample.chosen,
        input=decoded(tokenizer, sample.input),
        label=decoded(tokenizer, sample.label),
        prediction=decoded(tokenizer, sample.prediction),
        attempt=attempt,
        step=step,
    )


def write(run_dir: RunDir, rows: Sequence[EvalRow], *, attempt: int, step: int, of: str) -> Path:
    """Write an evaluation's rows; `of` names the evaluation set, empty for the only one."""
    name = "." + re.sub(r"[^\w-]", "_", of) if of else ""
    path = run_dir.evals / f"step-{step}.attempt-{attempt}{name}.jsonl"
    lines = (json.dumps(_plain(asdict(row)), ensure_ascii=False) + "\n" for row in rows)
    replace_text(path, "".join(lines))
    return path


def read(path: Path) -> list[EvalRow]:
    """The rows of a file, as they stand in it."""
    lines = path.read_text(encoding="utf-8").split("\n")
    rows = (json.loads(line) for line in lines if line)
    return [EvalRow(**{**row, **{key: float(row[key]) for key in _NUMBERS}}) for row in rows]


def newest_worst(run_dir: RunDir, most: int = 10) -> list[EvalRow]:
    """The worst rows of the newest evaluation, over all its sets; empty when there is none."""
    found: dict[tuple[int, int], list[Path]] = {}
    for path in run_dir.evals.glob("step-*.jsonl"):
        if named := _NAME.fullmatch(path.name):
            when = (int(named["attempt"]), int(named["step"]))
            found.setdefault(when, []).append(path)
    rows = [row for path in found[max(found)] for row in read(path)] if found else []
    worst = [row for row in rows if row.chosen == "worst"]
    return sorted(worst, key=lambda row: -badness(row.loss))[:most]


_NUMBERS = ("loss", "right", "peak")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
