"""Builders of checkpoint files as safetensors, torch, FSDP and DeepSpeed write them, without torch.

The pickles are written opcode by opcode, so that they can name things that are not installed here,
or that nobody should ever load. tests/e2e/test_checkpoints.py holds them against torch's own.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = {"F32": "FloatStorage", "F16": "HalfStorage", "BF16": "BFloat16Storage"}


@dataclass(frozen=True)
class Name:
    """A global: pickle looks it up by module and name."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """What a pickle calls while it is read."""

    function: Name
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)  # eq=False: each is a dictionary key of its own
class Thing:
    """An object with attributes."""

    kind: Name
    state: dict[str, Any]


@dataclass(frozen=True)
class Numbers:
    """A tensor's numbers, as bytes."""

    content: bytes
    dtype: str = "F32"


def pickled(value: Any, protocol: int = 2) -> bytes:
    """A bare pickle of plain values and the above (Numbers excepted)."""
    stream = io.BytesIO()
    _Writer(stream, protocol, []).dump(value)
    return stream.getvalue()


def torch_file(value: Any = None, **entries: bytes) -> bytes:
    """What torch.save(value) writes; more entries by name, for what it would not write."""
    storages: list[Numbers] = []
    stream = io.BytesIO()
    _Writer(stream, 2, storages).dump(value)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", stream.getvalue())
        file.writestr("archive/version", "3\n")
        for number, numbers in enumerate(storages):
            file.writestr(f"archive/data/{number}", numbers.content)
        for name, content in entries.items():
            file.writestr(f"archive/{name.replace('_pkl', '.pkl')}", content)
    return archive.getvalue()


def tensor(numbers: Numbers) -> Call:
    """A tensor as torch.save writes it."""
    size = len(numbers.content) // (4 if numbers.dtype == "F32" else 2)
    return Call(Name("torch._utils", "_rebuild_tensor_v2"), (numbers, 0, (size,), (1,), False))


def safetensors(content: bytes = bytes(64), dtype: str = "F32", name: str = "w") -> bytes:
    """A safetensors file with one tensor."""
    width = {"F64": 8, "F32": 4, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1}.get(dtype, 2)
    size = len(content)
    item = {"dtype": dtype, "shape": [size // width], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, name: item}).encode()
    return struct.pack("<Q", len(header)) + header + content


def fsdp_folder(
    folder: Path, values: dict[str, Any], *, ranks: int = 2, outside: str | None = None
) -> None:
    """A folder of torch.distributed.checkpoint, its values dealt out to the ranks in turn."""
    folder.mkdir(parents=True)
    kinds: dict[str, Thing] = {}
    places: dict[Thing, Thing] = {}
    files = [b""] * ranks
    for number, (name, value) in enumerate(values.items()):
        rank = number % ranks
        content = torch_file(value)
        is_tensor = isinstance(value, Call) and value.function.name.startswith("_rebuild_tensor")
        kind = "TensorStorageMetadata" if is_tensor else "BytesStorageMetadata"
        kinds[name] = Thing(Name(_METADATA, kind), {})
        info = {
            "relative_path": outside or f"__{rank}_0.distcp",
            "offset": len(files[rank]),
            "length": len(content),
        }
        index = Thing(Name(_METADATA, "MetadataIndex"), {"fqn": name, "index": 0})
        places[index] = Thing(Name("torch.distributed.checkpoint.filesystem", "_StorageInfo"), info)
        files[rank] += content
    for rank, content in enumerate(files):
        (folder / f"__{rank}_0.distcp").write_bytes(content)
    state = {"state_dict_metadata": kinds, "storage_data": places}
    (folder / ".metadata").write_bytes(pickled(Thing(Name(_METADATA, "Metadata"), state), 4))


def deepspeed_folder(
    checkpoint: Path, *, step: int, ranks: int = 2, stage: int = 2, weights: bytes = bytes(64)
) -> None:
    """The layout of DeepSpeed 0.18 with ZeRO and bf16."""
    folder = checkpoint / f"global_step{step}"
    folder.mkdir(parents=True)
    numbers = Numbers(weights, "BF16")
    for rank in range(ranks if stage == 3 else 1):
        prefix = f"zero_pp_rank_{rank}_" if stage == 3 else ""
        state = {
            "module": {"w": tensor(numbers)},
            "optimizer": None,
            "param_shapes": [{"w": Call(Name("torch", "Size"), ((32,),))}],
            "dp_world_size": ranks,
            "mp_world_size": 1,
            "ds_version": "0.18.6",
        }
        (folder / f"{prefix}mp_rank_00_model_states.pt").write_bytes(torch_file(state))
    for rank in range(ranks):
        state = {
            "optimizer_state_dict": {
                "loss_scaler": Thing(
                    Name("deepspeed.runtime.fp16.loss_scaler", "LossScaler"), {"cur_scale": 1.0}
                ),
                "zero_stage": Call(Name("deepspeed.runtime.zero.config", "ZeroStageEnum"), (2,)),
                "partition": tensor(Numbers(bytes(64))),
            }
        }
        name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        (folder / name).write_bytes(torch_file(state))
    (checkpoint / "latest").write_text(f"global_step{step}")


_METADATA = "torch.distributed.checkpoint.metadata"


class _Writer(pickle._Pickler):  # type: ignore[misc,name-defined,unused-ignore]
    def __init__(self, stream: io.BytesIO, protocol: int, storages: list[Numbers]) -> None:
        super().__init__(stream, protocol)
        self.storages = storages

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Numbers):
            return None
        self.storages.append(obj)
        kind = Name("torch", KINDS[obj.dtype])
        return ("storage", kind, str(len(self.storages) - 1), "cpu", len(obj.content))

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, Name):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        elif isinstance(obj, Call):
            self.save(obj.function)
            self.save(obj.arguments)
            self.write(pickle.REDUCE)
        elif isinstance(obj, Thing):
            self.save(obj.kind)
            self.save(())
            self.write(pickle.NEWOBJ)
            self.save(obj.state)
            self.write(pickle.BUILD)
        else:
            super().save(obj, save_persistent_id)
