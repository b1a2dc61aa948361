"""Reading `.wandb` files back: what a W&B writer has put down, without W&B's service.

A file is 7 bytes of header, then blocks of 32 KiB that hold records in LevelDB's log format (crc 4
bytes, length 2, type 1: full, first, middle, last), each record one message of wandb's protocol.
wandb 0.31 ships no reader in Python any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE_HEADER, BLOCK, RECORD_HEADER = 7, 32 * 1024, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class WandbFile:
    """What one writer has written: history rows, console lines, alerts, summary, config."""

    path: Path
    run_id: str = ""
    project: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    alerts: list[tuple[str, str]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    tags: tuple[str, ...] = ()
    exit_code: int | None = None
    artifacts: dict[str, Path] = field(default_factory=dict)  # name of a file → where it waits
    axes: dict[str, str] = field(default_factory=dict)


def wandb_files(folder: Path) -> list[WandbFile]:
    """Each `.wandb` file below a folder, oldest first."""
    found = sorted(folder.rglob("*.wandb"), key=lambda path: path.parent.name)
    return [read_wandb(path) for path in found]


def read_wandb(path: Path) -> WandbFile:
    """Read one file; one that its writer has not finished is read as far as it goes."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = WandbFile(path)
    for data in _records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        _take(found, record)
    return found


def _take(found: WandbFile, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        found.run_id, found.project = record.run.run_id, record.run.project
        found.name, found.tags = record.run.display_name, tuple(record.run.tags)
        _update(found.config, record.run.config.update)
    elif kind == "config":
        _update(found.config, record.config.update)
    elif kind == "history":
        row: dict[str, Any] = {}
        _update(row, record.history.item)
        found.rows.append(row)
    elif kind in ("output_raw", "output_logger"):
        found.lines += getattr(record, kind).line.splitlines()
    elif kind == "alert":
        found.alerts.append((record.alert.title, record.alert.text))
    elif kind == "summary":
        _update(found.summary, record.summary.update)
    elif kind == "exit":
        found.exit_code = record.exit.exit_code
    elif kind == "artifact":
        for entry in record.artifact.manifest.contents:
            found.artifacts[entry.path] = Path(entry.local_path)
    elif kind == "metric":
        metric = record.metric
        found.axes[metric.name or metric.glob_name] = metric.step_metric


def _update(into: dict[str, Any], items: Any) -> None:
    for item in items:
        into[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)


def _records(data: bytes) -> Iterator[bytes]:
    assert data[:4] == b":W&B", "this is no .wandb file"
    at, parts = FILE_HEADER, b""
    while at + RECORD_HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < RECORD_HEADER:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part = data[at + RECORD_HEADER : at + RECORD_HEADER + size]
        if kind not in (FULL, FIRST, MIDDLE, LAST) or len(part) < size:
            return
        parts = part if kind in (FULL, FIRST) else parts + part
        if kind in (FULL, LAST):
            yield parts
        at += RECORD_HEADER + size
