"""How many rows, and about how many tokens, the local data of a task file hold."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LINES = (".jsonl", ".ndjson", ".txt")
LARGEST = 2_000_000_000  # bytes to read; counting lines takes about a second per gigabyte
LARGEST_PARSED = 200_000_000
CHUNK = 1 << 20
# Bytes of a file for one token: four characters of English text, and what JSON adds.
BYTES_PER_TOKEN = 4.5


@dataclass(frozen=True)
class Rows:
    """`count` and `tokens` are None when part of the data can't be counted from here; `notes` say
    which part, and why.
    """

    count: int | None
    tokens: float | None
    notes: tuple[str, ...] = ()


def rows_of(axolotl: Mapping[str, object], folders: Sequence[Path]) -> Rows:
    """The rows of the task file's data sets; relative paths are looked for in `folders`."""
    datasets = axolotl.get("datasets")
    if not isinstance(datasets, list) or not datasets:
        kind = "pretraining_dataset" if axolotl.get("pretraining_dataset") else "no datasets"
        return Rows(None, None, (f"the number of rows is unknown: {kind}",))
    count, size, unknown = 0, 0, []
    for dataset in datasets:
        name = str(dataset.get("path") if isinstance(dataset, dict) else dataset)
        files = _files(dataset, folders) if isinstance(dataset, dict) else []
        counts = [_count(file) for file in files]
        if not files:
            unknown.append(f"the rows of {name} are unknown: it is not a file here")
        elif None in counts:
            unknown.append(f"the rows of {name} are unknown: they can't be counted in this form")
        else:
            part = _part(dataset)
            count += int(sum(each or 0 for each in counts) * part)
            size += int(sum(file.stat().st_size for file in files) * part)
    if unknown:
        return Rows(None, None, tuple(unknown))
    return Rows(count, size / BYTES_PER_TOKEN)


def _files(dataset: Mapping[object, object], folders: Sequence[Path]) -> list[Path]:
    """The files of a local data set, none for one of the hub."""
    given = dataset.get("data_files") or dataset.get("path")
    names = given if isinstance(given, list) else [given]
    found: list[Path] = []
    for name in names:
        file = next(((f / str(name)) for f in folders if name and (f / str(name)).exists()), None)
        if file is None:
            return []
        inside = sorted(p for p in file.iterdir() if p.is_file()) if file.is_dir() else [file]
        found += [each for each in inside if each.suffix in (*LINES, ".json", ".csv")]
        if len(inside) > len(found) and not found:
            return inside
    return found


def _count(file: Path) -> int | None:
    size = file.stat().st_size
    if file.suffix in LINES:
        return sum(_filled_lines(file)) if size <= LARGEST else None
    if size > LARGEST_PARSED or file.suffix not in (".json", ".csv"):
        return None
    try:
        if file.suffix == ".csv":
            with file.open(encoding="utf-8", newline="") as text:
                return max(0, sum(1 for _ in csv.reader(text)) - 1)
        data = json.loads(file.read_text("utf-8"))
    except ValueError:  # many a .json holds a row on each line
        return sum(_filled_lines(file))
    return len(data) if isinstance(data, list) else None


def _filled_lines(file: Path) -> Iterator[int]:
    """The number of lines that are not blank, chunk by chunk."""
    rest = b""
    with file.open("rb") as data:
        while chunk := data.read(CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            yield sum(1 for line in lines if line.strip())
    yield 1 if rest.strip() else 0


def _part(dataset: Mapping[object, object]) -> float:
    """The share of the rows that is taken: one of `shards`, or a split such as train[:10%]."""
    match = re.search(r"\[:(\d+)%\]", str(dataset.get("split") or ""))
    shards = dataset.get("shards")
    share = int(match[1]) / 100 if match else 1.0
    return share / shards if isinstance(shards, int) and shards > 0 else share
