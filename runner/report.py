"""report.json: the one file that says how a run ended, written for every end.

Contract (others read it, so names and forms stay):
- times are RFC 3339 in UTC with milliseconds (`2026-11-30T12:00:00.000Z`);
- steps are 1-based and inclusive, null where there is none;
- money is USD rounded to 4 digits, null where the cloud never told a price;
- durations are seconds, null where the phase was never entered;
- a number that is not finite is null, so that any JSON reader takes the file.

`python -m runner.report` prints the JSON schema kept in report.schema.json.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from runner.errors import Outcome
from runner.secrets import scrub

REPORT_NAME = "report.json"
SCHEMA_PATH = Path(__file__).with_name("report.schema.json")

State = Literal["completed", "failed", "cancelled"]

# A reason is one line: longer ones are a traceback that belongs in the log file.
REASON_LENGTH = 1000


def state_of(outcome: Outcome) -> State:
    """The state that goes with an outcome; whatever is neither of two is `failed`."""
    if outcome == "completed":
        return "completed"
    return "cancelled" if outcome == "cancelled" else "failed"


def pod_cost(
    created: datetime,
    terminated: datetime | None,
    price_per_hour: float,
    now: datetime,
    *,
    loading_until: datetime | None = None,
    loading_per_hour: float = 0.0,
) -> float:
    """What a pod cost in USD, to 4 digits; one that still lives is billed until `now`.

    Up to `loading_until` (None: no time at all) it cost `loading_per_hour` only. A cloud's clock
    may be ahead of ours, so a negative lifetime counts as zero.
    """
    end = max(terminated or now, created)
    start = min(max(loading_until or created, created), end)
    loading, running = ((start - created).total_seconds(), (end - start).total_seconds())
    return round((loading * loading_per_hour + running * price_per_hour) / 3600, 4)


def write_report(report: Report, folder: Path) -> Path:
    """Write `folder/report.json` whole or not at all, and return its path.

    Parent, hook and sweep may write at the same time; the last rename wins.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / REPORT_NAME
    draft = folder / f".{REPORT_NAME}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(report.model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(folder)
    return path


def read_report(path: Path) -> Report:
    """Read a report back; raises pydantic's ValidationError on anything foreign in it."""
    return Report.model_validate_json(path.read_bytes())


def schema_text() -> str:
    """The JSON schema of report.json as kept in the repository, with a final newline."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Report.model_json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


# The forms of the fields


def _finite(value: object) -> object:
    """Non-finite numbers become None, also as the strings of events.jsonl."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return value
    return _null_if_not_finite(value)


def _null_if_not_finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _none_for_zero(value: object) -> object:
    """events.jsonl says step 0 for "no step yet"; here that is null."""
    return None if value == 0 else value


def _one_line(value: object) -> object:
    """Trainer output may hold anything: secrets, and lone surrogates, which can't be written."""
    if not isinstance(value, str):
        return value
    words = " ".join(scrub(value.encode("utf-8", "replace").decode("utf-8")).split())
    return words if len(words) <= REASON_LENGTH else words[: REASON_LENGTH - 1] + "…"


def _to_milliseconds_utc(value: datetime) -> datetime:
    utc = value.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _rfc3339(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_digits(digits: int) -> AfterValidator:
    return AfterValidator(lambda value: None if value is None else round(value, digits))


Line = Annotated[str, BeforeValidator(_one_line)]
Step = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_none_for_zero)]
Loss = Annotated[float | None, BeforeValidator(_finite)]
Usd = Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(_finite), _to_digits(4)]
Duration = Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(_finite), _to_digits(3)]
Rung = dict[str, Annotated[str | int | float | bool | None, BeforeValidator(_null_if_not_finite)]]
When = Annotated[
    AwareDatetime,
    AfterValidator(_to_milliseconds_utc),
    PlainSerializer(_rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": "Z$"}),
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Attempt(_Part):
    """One pass of the trainer; `n` counts from 1.

    `rung` is what this attempt changes, `{"kind": "replay"}` or with more; null for the first.
    """

    n: Annotated[int, Field(ge=1)]
    pod: str | None = None
    cloud: str | None = None
    from_checkpoint: Step = None
    first_step: Step = None
    last_step: Step = None
    outcome: Outcome | None = None
    onset_step: Step = None
    alarm_step: Step = None
    rung: Rung | None = None


class PodBill(_Part):
    """One pod of the run; `terminated` is null until its absence was confirmed."""

    id: str
    cloud: str
    created: When
    terminated: When | None = None
    price_per_hour: Usd = None
    cost_usd: Usd = None


class Seconds(_Part):
    """Wall time of each phase, summed over attempts."""

    provision: Duration = None
    prepare: Duration = None
    train: Duration = None
    resume: Duration = None
    publish: Duration = None
    teardown: Duration = None
    total: Duration = None


class Diagnosis(_Part):
    """Why a run failed: its class, the few lines of a log that tell it, and what to do."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    kind: str = Field(alias="class")
    lines: tuple[Line, ...] = ()
    advice: Line


class Wandb(_Part):
    """The run in Weights & Biases: `url` null where it is not online, `sync` the command that
    uploads what was written offline.
    """

    id: str
    url: str | None = None
    sync: str | None = None


class Report(_Part):
    """How a run ended, what it made and what it cost."""

    run: str
    task: str
    commit: str | None = None
    state: State
    outcome: Outcome
    reason: Line
    attempts: tuple[Attempt, ...] = ()
    final_step: Step = None
    planned_steps: Step = None
    final_loss: Loss = None
    model_dir: str | None = None
    published: bool = False
    pods: tuple[PodBill, ...] = ()
    cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False), _to_digits(4)] = 0.0
    seconds: Seconds = Seconds()
    diagnosis: Diagnosis | None = None
    wandb: Wandb | None = None

    @model_validator(mode="after")
    def _state_goes_with_outcome(self) -> Self:
        if self.state != state_of(self.outcome):
            raise ValueError(f"outcome {self.outcome} ends a run as {state_of(self.outcome)}")
        return self


def _sync_folder(folder: Path) -> None:
    """A rename survives a power cut only once the folder itself is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


if __name__ == "__main__":
    print(schema_text(), end="")
