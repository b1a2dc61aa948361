"""Is a checkpoint folder whole, and safe to load? Told without reading its files in full.

Whole: what a kill or a full disk while saving leaves is recognised, for single files, shards with
an index, and FSDP's and DeepSpeed's folders. Safe: no pickle in it names more than numbers need
(pod/pickles.py), because a checkpoint from a store may have been made by anybody.

Not covered: a file damaged in its middle (the ledger's hashes find that), and whether the
weights are any good (pod/finite.py).
"""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

from pod import pickles, sharded

TORCH_SUFFIXES = (".pt", ".pth", ".bin")
_INDEXES = (
    "model.safetensors.index.json",
    "adapter_model.safetensors.index.json",
    "pytorch_model.bin.index.json",
)
_WEIGHTS = (
    "model.safetensors",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "adapter_model.bin",
)


def structural_flaw(checkpoint: Path) -> str | None:
    """Return what is missing, cut off or unsafe in a checkpoint folder, None if nothing is."""
    if not checkpoint.is_dir() or not any(checkpoint.iterdir()):
        return "the folder is empty"
    # The trainer writes this file last, so without it the save was cut off.
    state = checkpoint / "trainer_state.json"
    if not state.is_file():
        return "trainer_state.json is missing"
    if _json(state) is None:
        return "trainer_state.json is cut off"
    return _weights_flaw(checkpoint) or _file_flaw(checkpoint) or sharded.flaw(checkpoint)


def weight_files(folder: Path) -> list[str]:
    """Return the names of the weight files in a folder; empty when a shard or all is missing."""
    for name in _INDEXES:
        shards = _shards(folder / name)
        if shards and all((folder / shard).is_file() for shard in shards):
            return shards
    return [name for name in _WEIGHTS if (folder / name).is_file()][:1]


def is_whole(path: Path) -> bool:
    """Return False for a weight or torch file that is missing or was cut off while written."""
    if not path.is_file():
        return False
    if path.suffix == ".safetensors":
        return _is_whole_safetensors(path)
    return path.suffix not in TORCH_SUFFIXES or _is_whole_torch_file(path)


def _weights_flaw(checkpoint: Path) -> str | None:
    if not weight_files(checkpoint) and not sharded.holds_weights(checkpoint):
        for name in _INDEXES:
            missing = [s for s in _shards(checkpoint / name) if not (checkpoint / s).is_file()]
            if missing:
                return f"{missing[0]} is missing"
        return "the weights are missing"
    for name in _INDEXES:
        for tensor, shard in _weight_map(checkpoint / name).items():
            header = safetensors_header(checkpoint / shard)
            if header is not None and tensor not in header:
                return f"{shard} lacks {tensor}"
    return None


def _file_flaw(checkpoint: Path) -> str | None:
    for path in sorted(checkpoint.rglob("*")):
        if not path.is_file():
            continue
        if not is_whole(path):
            return f"{path.relative_to(checkpoint)} is cut off"
        refusal = pickles.refusal(path) if path.suffix in (*TORCH_SUFFIXES, ".pkl") else None
        if refusal is not None:
            return f"{path.relative_to(checkpoint)} {refusal}"
    return None


def _json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, None when there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _weight_map(index: Path) -> dict[str, str]:
    found = (_json(index) or {}).get("weight_map")
    return found if isinstance(found, dict) else {}


def _shards(index: Path) -> list[str]:
    return sorted(set(_weight_map(index).values()))


def safetensors_header(path: Path) -> dict[str, Any] | None:
    """The header (8 bytes of length, then JSON), None when it is cut off or no header."""
    if path.suffix != ".safetensors" or not path.is_file():
        return None
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return None
        (length,) = struct.unpack("<Q", start)
        if length > size - 8:
            return None
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return None
    return header if isinstance(header, dict) else None


def _is_whole_safetensors(path: Path) -> bool:
    """The header names the end of the last tensor."""
    header = safetensors_header(path)
    if header is None:
        return False
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
    try:
        tensors = [item for name, item in header.items() if name != "__metadata__"]
        end = max((int(t["data_offsets"][1]) for t in tensors if t["dtype"]), default=0)
    except (KeyError, TypeError, ValueError, IndexError):
        return False
    return bool(path.stat().st_size == 8 + length + end)


def _is_whole_torch_file(path: Path) -> bool:
    """torch.save writes a zip, whose directory comes last; older ones are bare pickles."""
    with path.open("rb") as file:
        start = file.read(2)
    if start != b"PK":
        return bool(start)
    try:
        zipfile.ZipFile(path).close()
    except pickles.ZIP_ERRORS:
        return False
    return True
