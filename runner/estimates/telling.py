"""An estimate in words, as data, and as findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.estimates.estimate import Choice, Estimate
from runner.estimates.fitting import MARGIN, Fit
from runner.finding import Finding, stop, warn
from runner.gateway import RENTED
from runner.settings import AUTO
from runner.taskfile import TaskFile


def lines(found: Estimate) -> list[str]:
    """A line of figures, and one with what they rest on."""
    parts = [_need(found), *([str(found.disk)] if found.disk else []), _work(found)]
    told = [" · ".join(part for part in parts if part)]
    return [*told, f"({'; '.join(found.notes)})"] if found.notes else told


def as_json(found: Estimate) -> dict[str, object]:
    """The estimate for programs; sizes in GiB (VRAM) and GB (disk), USD, null for unknown."""
    need, filled, best = found.vram, found.disk, found.best
    return {
        "unknown": found.unknown or None,
        "parameters": found.model.parameters if found.model else None,
        "method": found.training.method,
        "vram_gib": _rounded(need.parts, need.total) if need else None,
        "disk_gb": _rounded(filled.parts, filled.total) if filled else None,
        "steps": found.steps.count,
        "tokens": int(found.steps.tokens) if found.steps.tokens is not None else None,
        "gpu": best.name if best else None,
        "gpu_count": found.count,
        "gpus": [_choice(each) for each in found.choices],
        "hours": _range(best.hours if best else None),
        "dollars": _range(best.dollars if best else None),
        "notes": list(found.notes),
    }


def estimate_findings(task: TaskFile, found: Estimate, clouds: Sequence[str]) -> list[Finding]:
    """What the estimate says against the task file; only a rented machine's size is judged."""
    rented = [cloud for cloud in clouds if cloud in RENTED]
    if not rented:
        return []
    return [*(_auto(task, found) if found.auto else _named(task, found)), *_disk(task, found)]


def time(span: tuple[float, float]) -> str:
    """A span of hours in words."""
    if span[1] < 1:
        low, high = (round(each * 60) for each in span)
        return f"{low} min" if low == high else f"{low}–{high} min"
    low_hours, high_hours = _short(span[0]), _short(span[1])
    return f"{low_hours} h" if low_hours == high_hours else f"{low_hours}–{high_hours} h"


def money(span: tuple[float, float]) -> str:
    """A span of dollars in words."""
    low, high = _short(span[0]), _short(span[1])
    return f"${low}" if low == high else f"${low}–{high}"


def _need(found: Estimate) -> str:
    if found.vram is None:
        return f"VRAM and disk are unknown: {found.unknown}"
    each = " for each GPU" if found.count > 1 else ""
    return f"needs {found.vram}{each}"


def _work(found: Estimate) -> str:
    best = found.best
    many = f"{found.count} × " if found.count > 1 else ""
    told = []
    if best:
        word = {Fit.YES: "fits", Fit.TIGHT: "just fits", None: "on"}[best.fit]
        told.append(f"{word} {many}{best.name}")
    elif found.choices and found.vram:
        told.append(f"too much for {many}{found.choices[0].name}")
    work = f"{found.steps.count:,} steps" if found.steps.count is not None else "steps unknown"
    work += f", {time(best.hours)}" if best and best.hours else ""
    work += f", {money(best.dollars)}" if best and best.dollars else ""
    return " · ".join([*told, work])


def _auto(task: TaskFile, found: Estimate) -> Iterator[Finding]:
    at = task.setting_place("gpu")
    if found.vram is None:
        message = f"gpu: {AUTO} needs the size of the model, which is unknown: {found.unknown}"
        yield warn("gpu-auto", message, "name the GPUs if it stays so", key="gpu", at=at)
    elif not found.choices:
        most = task.settings.max_price_per_hour
        message = (
            f"gpu: {AUTO} finds none with {found.vram.total * MARGIN:.0f} GiB within "
            f"max_price_per_hour: {most:g}"
        )
        hint = "shard it (fsdp_config, deepspeed) over more GPUs, use qlora, or raise the price"
        yield stop("gpu-auto", message, hint, key="gpu", at=at)


def _named(task: TaskFile, found: Estimate) -> Iterator[Finding]:
    """A stop only where it is sure: no GPU of the list has room for the weights alone."""
    at, need = task.setting_place("gpu"), found.vram
    if need is None:
        return
    small = [each for each in found.choices if each.fit in (Fit.NO, Fit.NEVER)]
    hint = f"name a larger GPU, or write gpu: {AUTO}"
    if small and all(each.fit is Fit.NEVER for each in found.choices):
        names = ", ".join(each.name for each in small)
        message = f"the weights alone need {need.least:.0f} GiB on each GPU, more than {names} has"
        yield stop("vram", message, hint, key="gpu", at=at)
        return
    for each in small:
        message = f"{each.name} is likely too small: the training needs {need}"
        yield warn("vram", message, hint, key="gpu", at=at)


def _disk(task: TaskFile, found: Estimate) -> Iterator[Finding]:
    """A rented pod's volume holds all of it; a network volume has a size of its own."""
    settings, filled = task.settings, found.disk
    if filled is None or settings.network_volume:
        return
    name = "volume_in_gb" if settings.volume_in_gb else "container_disk_in_gb"
    room = settings.volume_in_gb or settings.container_disk_in_gb
    if filled.total > room:
        message = f"{name}: {room} is likely too small: the run needs {filled}"
        hint = f"set {name}: {round(filled.total * 1.2) + 1}, or a smaller save_total_limit"
        yield warn("disk", message, hint, key=name, at=task.setting_place(name))


def _choice(each: Choice) -> dict[str, object]:
    return {
        "name": each.name,
        "fit": each.fit.value if each.fit else None,
        "price_per_hour": round(each.price, 4) if each.price is not None else None,
        "asked": each.asked,
        "hours": _range(each.hours),
        "dollars": _range(each.dollars),
    }


def _rounded(parts: dict[str, float], total: float) -> dict[str, float]:
    return {**{name: round(size, 2) for name, size in parts.items()}, "total": round(total, 2)}


def _range(span: tuple[float, float] | None) -> list[float] | None:
    return [round(each, 2) for each in span] if span else None


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"
