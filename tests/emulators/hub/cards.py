"""Metadata of a README.md that the hub refuses, with its words."""

from __future__ import annotations

import re
from typing import Any

import yaml

_BLOCK = re.compile(r"\A---\n(.*?)\n?---\n", re.DOTALL)
_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_DATA_FILE = re.compile(r"\.(jsonl?|csv|parquet|txt)$")
# A part of the hub's list, which is long.
_LICENSES = ("apache-2.0", "mit", "llama3.1", "gemma", "cc-by-4.0", "other", "unknown")


def metadata_of(text: str) -> dict[str, Any]:
    """The front matter; raises ValueError when it is no YAML mapping."""
    block = _BLOCK.match(text)
    if block is None:
        return {}
    try:
        found = yaml.safe_load(block[1])
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if found is not None and not isinstance(found, dict):
        raise ValueError("the metadata is no mapping")
    return found or {}


def errors_of(text: str) -> list[str]:
    """Why the hub would not take this card."""
    try:
        found = metadata_of(text)
    except ValueError as error:
        return [str(error)]
    errors = []
    for name, kind in (("base_model", "models"), ("datasets", "datasets")):
        values = found.get(name, [])
        for value in values if isinstance(values, list) else [values]:
            if not _ID.fullmatch(str(value)) or _DATA_FILE.search(str(value)):
                errors.append(
                    f'"{name}" with value "{value}" is not valid. Use an id from '
                    f"https://hf.co/{kind}."
                )
    if "license" in found and found["license"] not in _LICENSES:
        errors.append('"license" must be one of the known licenses')
    tags = found.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        errors.append('"tags" must be an array of strings')
    return errors
