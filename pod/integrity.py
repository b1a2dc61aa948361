"""Is a checkpoint folder whole? Told from the files' structure, without reading them in full.

Not covered: a file damaged in its middle (the ledger's hashes find that), and whether the
weights are any good.
"""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

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
# What DeepSpeed and FSDP write instead; their own loaders check the rest.
_SHARDED = ("global_step*/*model_states.pt", "pytorch_model_fsdp*/*.distcp", "*.distcp")


def structural_flaw(checkpoint: Path) -> str | None:
    """Return what is missing or cut off in a checkpoint folder, None if nothing is."""
    if not checkpoint.is_dir() or not any(checkpoint.iterdir()):
        return "the folder is empty"
    # The trainer writes this file last, so without it the save was cut off.
    state = checkpoint / "trainer_state.json"
    if not state.is_file():
        return "trainer_state.json is missing"
    if not _is_json(state):
        return "trainer_state.json is cut off"
    return _weights_flaw(checkpoint) or _file_flaw(checkpoint)


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
    if weight_files(checkpoint) or any(any(checkpoint.glob(p)) for p in _SHARDED):
        return None
    for name in _INDEXES:
        missing = [s for s in _shards(checkpoint / name) if not (checkpoint / s).is_file()]
        if missing:
            return f"{missing[0]} is missing"
    return "the weights are missing"


def _file_flaw(checkpoint: Path) -> str | None:
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file() and not is_whole(path):
            return f"{path.relative_to(checkpoint)} is cut off"
    return None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _shards(index: Path) -> list[str]:
    if not index.is_file() or not _is_json(index):
        return []
    weight_map = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {})
    return sorted(set(weight_map.values()))


def _is_whole_safetensors(path: Path) -> bool:
    """The header (8 bytes of length, then JSON) names the end of the last tensor."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            return False
        (length,) = struct.unpack("<Q", start)
        if length > size - 8:
            return False
        try:
            header = json.loads(file.read(length))
        except ValueError:
            return False
    ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    return bool(size == 8 + length + max(ends, default=0))


def _is_whole_torch_file(path: Path) -> bool:
    """torch.save writes a zip, whose directory comes last; older ones are bare pickles."""
    with path.open("rb") as file:
        start = file.read(2)
    if start != b"PK":
        return bool(start)
    try:
        zipfile.ZipFile(path).close()
    except zipfile.BadZipFile:
        return False
    return True
