"""The table of pods for people: Markdown for the UI, plain text for terminals and notices.

What a cloud does not tell is shown as ?, never as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

HEADS = (
    *("run", "pod", "cloud", "phase", "step/of", "left", "CPU", "RAM", "GPU", "VRAM"),
    *("uptime", "$/h", "cost", "note"),
)
UNKNOWN = "?"
GB = 1e9


@dataclass(frozen=True)
class PodRow:
    """One pod. Percentages 0–100, memory in bytes, uptime and time left in seconds, money in USD;
    None is unknown. `step` is the last one that was done of `planned_steps`.
    """

    run: str
    pod: str
    cloud: str
    phase: str
    price_per_hour: float
    cost_usd: float
    cpu_percent: float | None = None
    gpu_percent: float | None = None
    ram_percent: float | None = None
    ram_bytes: int | None = None
    vram_percent: float | None = None
    vram_bytes: int | None = None
    uptime: float | None = None
    note: str = ""
    step: int | None = None
    planned_steps: int | None = None
    seconds_left: float | None = None

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of HEADS."""
        return (
            self.run[:8],
            self.pod,
            self.cloud,
            self.phase,
            _steps(self.step, self.planned_steps),
            "" if self.step is None else _duration(self.seconds_left),
            _percent(self.cpu_percent),
            _memory(self.ram_percent, self.ram_bytes),
            _percent(self.gpu_percent),
            _memory(self.vram_percent, self.vram_bytes),
            _duration(self.uptime),
            f"{self.price_per_hour:.2f}",
            f"{self.cost_usd:.4f}",
            self.note,
        )


def markdown_table(rows: Sequence[PodRow], failed: Mapping[str, str]) -> str:
    """The table, and a line for each cloud (name → why) whose pods could not be listed."""
    lines = [_markdown_line(HEADS), _markdown_line("---" for _ in HEADS)]
    lines += [_markdown_line(row.cells()) for row in rows]
    table = "\n".join(lines) if rows else "no pods"
    return "\n\n".join([table, *(f"**{line}**" for line in failures(failed))]) + "\n"


def plain_table(rows: Sequence[PodRow]) -> str:
    """The table in columns of equal width; `no pods` when there is none."""
    if not rows:
        return "no pods"
    cells = [HEADS, *(row.cells() for row in rows)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(HEADS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def failures(failed: Mapping[str, str]) -> list[str]:
    """What is said of clouds whose pods could not be listed."""
    return [
        f"{cloud}: its pods can't be listed now, and none of them counts as gone ({why})"
        for cloud, why in failed.items()
    ]


def _markdown_line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _steps(step: int | None, planned: int | None) -> str:
    """Empty where nothing is trained."""
    return "" if step is None else f"{step}/{UNKNOWN if planned is None else planned}"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} %"


def _memory(percent: float | None, used: int | None) -> str:
    return _percent(percent) if used is None else f"{used / GB:.1f} GB"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    hours, minutes = divmod(round(seconds) // 60, 60)
    return f"{hours}:{minutes:02}"
