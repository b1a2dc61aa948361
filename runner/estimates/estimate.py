"""What a run will need and cost, put together, for people and as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.estimates.disk import Disk, disk
from runner.estimates.duration import FAST, SLOW, Steps, hours, steps_of
from runner.estimates.fitting import Fit, cheapest_first, fit, fitting
from runner.estimates.gpus import Gpu, gpu_named
from runner.estimates.model import Model
from runner.estimates.rows import BYTES_PER_TOKEN, rows_of
from runner.estimates.training import Training, training_of
from runner.estimates.vram import Vram, vram
from runner.settings import AUTO, RunnerSettings

# USD per hour of the whole pod, for each GPU by the name that was asked for.
Prices = Mapping[str, float]


@dataclass(frozen=True)
class Choice:
    """One GPU of those that are named, or that `auto` would take; None is unknown.

    `price` is USD per hour of the pod, `asked` whether a cloud said so just now. `hours` from the
    machine's start to the last step, `dollars` for them, both at best and at worst.
    """

    name: str
    gpu: Gpu | None
    fit: Fit | None
    price: float | None
    asked: bool
    hours: tuple[float, float] | None

    @property
    def dollars(self) -> tuple[float, float] | None:
        """USD for the hours."""
        if self.hours is None or self.price is None:
            return None
        return self.hours[0] * self.price, self.hours[1] * self.price


@dataclass(frozen=True)
class Estimate:
    """`unknown` says why there is no model; then VRAM, disk and GPUs are unknown too."""

    unknown: str
    model: Model | None
    training: Training
    vram: Vram | None
    disk: Disk | None
    steps: Steps
    count: int
    choices: tuple[Choice, ...]
    auto: bool

    @property
    def best(self) -> Choice | None:
        """What the run would be made on: the first that fits, else the first that may."""
        order = (Fit.YES, Fit.TIGHT, None)
        return next((each for fits in order for each in self.choices if each.fit is fits), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures rest on, and what they leave out."""
        notes = [*self.training.notes, *self.steps.notes]
        if self.vram:
            notes.append("VRAM: 20 % more or less are possible")
        if self.best and self.best.hours:
            rate = f"{SLOW:.0%} to {FAST:.0%} of the GPU's bf16 rate"
            notes.append(f"time: {rate}, without evaluation and saving")
        if self.steps.count and not self.steps.notes:
            notes.append(f"tokens: one for {BYTES_PER_TOKEN:g} bytes of the data files")
        if self.steps.at_most:
            notes.append(f"time: each row as long as sequence_len: {self.training.sequence}")
        if self.best and self.best.price is not None and not self.best.asked:
            notes.append("price: a list price of 2025; no cloud was asked")
        return tuple(notes)


def estimate(
    axolotl: Mapping[str, object],
    settings: RunnerSettings,
    model: Model | None,
    *,
    unknown: str = "",
    folders: Sequence[Path] = (),
    ask: Callable[[Sequence[str]], Prices | None] = lambda gpus: None,
) -> Estimate:
    """The estimate of a task file; `folders` are where its local files are looked for, `ask` asks
    the clouds for the prices of these GPUs (None: no cloud could be asked).
    """
    count = settings.gpu_count[0]
    training = training_of(axolotl, gpus=count, folders=folders)
    rows = rows_of(axolotl, folders)
    steps = steps_of(axolotl, training, rows)
    need = vram(model, training) if model else None
    filled = disk(axolotl, model, training, rows, steps.count) if model else None
    auto = settings.gpu == [AUTO]
    roomy = fitting(need) if need and auto else []
    asked = [gpu.name for gpu in roomy] if auto else settings.gpu
    prices = ask(asked) if asked else None
    names = _cheapest(roomy, settings, prices) if auto else settings.gpu
    choices = tuple(_choice(name, model, need, steps, training, count, prices) for name in names)
    return Estimate(unknown, model, training, need, filled, steps, count, choices, auto)


def _cheapest(roomy: Sequence[Gpu], settings: RunnerSettings, prices: Prices | None) -> list[str]:
    """What `auto` would ask for, the cheapest first; where no cloud was asked by list prices."""
    count = settings.gpu_count[0]
    known = dict(prices) if prices is not None else _list_prices(roomy, count)
    within = {name: price for name, price in known.items() if price <= settings.max_price_per_hour}
    return [gpu.name for gpu in cheapest_first(roomy, within)]


def _list_prices(gpus: Sequence[Gpu], count: int) -> dict[str, float]:
    return {gpu.name: gpu.list_price * count for gpu in gpus if gpu.list_price is not None}


def _choice(
    name: str,
    model: Model | None,
    need: Vram | None,
    steps: Steps,
    training: Training,
    count: int,
    prices: Prices | None,
) -> Choice:
    gpu = gpu_named(name)
    known = prices or {}
    price = known.get(name, known.get(gpu.name) if gpu else None)
    asked = price is not None
    if price is None and prices is None and gpu:
        price = _list_prices([gpu], count).get(gpu.name)
    takes = None
    if gpu and model and steps.tokens is not None:
        takes = hours(model, training, steps.tokens, gpu, count)
    fits = fit(gpu, need) if gpu and need else None
    return Choice(name, gpu, fits, price, asked, takes)
