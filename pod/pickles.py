"""What the pickles in a checkpoint would load, found out without loading it.

A pickle may call any function of any module while it is read. transformers reads the optimizer's
and the scheduler's state and the random numbers' with `weights_only=True`, which allows little;
DeepSpeed's files and FSDP's `.metadata` and byte entries are read without any such limit
(torch 2.13, deepspeed 0.18). A checkpoint from a store may have been made by anybody, so all of
them are read here first, by an unpickler that gives a lifeless stand-in for each name on the list
below and refuses every other one.

Not covered: `training_args.bin`, which names dozens of classes and which no trainer reads on
resume; a program that unpickles it by itself is on its own.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

NEVER_READ = "training_args.bin"
# All that zipfile raises for damaged archives, found by damaging some.
ZIP_ERRORS: tuple[type[Exception], ...] = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    ValueError,
    OverflowError,
    struct.error,
)
LARGEST = 512 * 1024 * 1024  # bytes of one pickle; an 8 B model's optimizer has under 1 MB

# Storage classes by the name of their numbers as safetensors spells it; others hold whole numbers.
FLOATS = {
    "torch.DoubleStorage": "F64",
    "torch.FloatStorage": "F32",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
}

_TORCH = """
    Size Tensor device BoolStorage ByteStorage CharStorage ShortStorage IntStorage LongStorage
    DoubleStorage FloatStorage HalfStorage BFloat16Storage ComplexFloatStorage ComplexDoubleStorage
    float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
    int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128
    strided sparse_coo contiguous_format preserve_format
"""
_REBUILD = """
    parameter parameter_with_state tensor tensor_v2 tensor_v3 sparse_tensor wrapper_subclass
    meta_tensor_no_storage device_tensor_from_numpy device_tensor_from_cpu_tensor
"""
_DISTRIBUTED = """
    Metadata MetadataIndex TensorStorageMetadata BytesStorageMetadata ChunkStorageMetadata
    TensorProperties StorageMeta _MEM_FORMAT_ENCODING
"""

# None of these does more than hold or build numbers.
ALLOWED = frozenset(
    [
        *(f"torch.{name}" for name in _TORCH.split()),
        *(f"torch._utils._rebuild_{name}" for name in _REBUILD.split()),
        *(f"torch.distributed.checkpoint.metadata.{name}" for name in _DISTRIBUTED.split()),
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        "torch._tensor._rebuild_from_type_v2",
        "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout",
        "torch.storage.UntypedStorage",
        "torch.storage.TypedStorage",
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",
        "collections.OrderedDict",
        "collections.Counter",
        "collections.defaultdict",
        "_codecs.encode",
        *(f"builtins.{name}" for name in ("set", "bytearray", "complex")),
        *(f"__builtin__.{name}" for name in ("set", "bytearray", "complex")),
        # the states of random number generators
        "numpy.ndarray",
        "numpy.dtype",
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        # torchao's optimizers of 8 and 4 bits; torchao allows these itself
        "torchao.optim.subclass_8bit.OptimState8bit",
        "torchao.optim.subclass_4bit.OptimState4bit",
        "torchao.optim.subclass_fp8.OptimStateFp8",
        "deepspeed.runtime.fp16.loss_scaler.LossScaler",
        "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
        "deepspeed.runtime.zero.config.ZeroStageEnum",
        "deepspeed.utils.tensor_fragment.fragment_address",
    ]
)


class Refused(ValueError):
    """The file holds something that no checkpoint needs; the message says what."""


@dataclass(frozen=True)
class Storage:
    """The numbers of a tensor: the class that holds them and the archive's entry."""

    kind: str
    key: str


@dataclass(frozen=True)
class Pickled:
    """A pickle's value, made of plain containers and stand-ins, and the storages it names."""

    value: Any
    storages: tuple[Storage, ...]


class StandIn:
    """Takes the place of an object: keeps its attributes, does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        """As of a list."""

    def extend(self, values: Any) -> None:
        """As of a list."""

    def add(self, value: Any) -> None:
        """As of a set."""


def read(stream: IO[bytes]) -> Pickled:
    """Read one bare pickle.

    Raises Refused when it names anything that is not on the list, or is no pickle.
    """
    unpickler = _Lifeless(stream)
    try:
        value = unpickler.load()
    except Refused:
        raise
    except Exception as error:  # bytes that are no pickle may fail with anything
        raise Refused(f"cannot be read: {type(error).__name__}: {error}"[:200]) from error
    return Pickled(value, tuple(unpickler.storages))


def read_archive(archive: zipfile.ZipFile) -> Pickled:
    """Read the pickles of what torch.save wrote; the value is that of `data.pkl`.

    torch reads the zip with another program than this, so what the two might see differently is
    refused: torch itself writes no comments, no compressed and no double entries.

    Raises Refused.
    """
    entries = archive.infolist()
    names = [entry.filename.lower() for entry in entries]
    if archive.comment or len(set(names)) < len(names) or any(e.compress_type for e in entries):
        raise Refused("is not what torch.save writes")
    if not entries or min(entry.header_offset for entry in entries):
        raise Refused("is not what torch.save writes")
    found: Pickled | None = None
    for entry in entries:
        name = entry.filename.rpartition("/")[2].lower()
        if not name.endswith(".pkl"):
            continue
        if name != "data.pkl" or found is not None or entry.file_size > LARGEST:
            raise Refused(f"holds {entry.filename}, which torch.save does not write")
        found = read(io.BytesIO(archive.read(entry)))
    if found is None:
        raise Refused("is not what torch.save writes")
    return found


@contextmanager
def opened(path: Path, offset: int = 0, length: int | None = None) -> Iterator[zipfile.ZipFile]:
    """Open what torch.save wrote, in a file of its own or inside another.

    Raises Refused, for damage too, also when it is found while the archive is read.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size - offset if length is None else length
            with zipfile.ZipFile(io.BufferedReader(_Window(file, offset, size))) as archive:
                yield archive
    except Refused:
        raise
    except ZIP_ERRORS as error:
        raise Refused(f"is damaged: {error}"[:200]) from error


def refusal(path: Path, offset: int = 0, length: int | None = None) -> str | None:
    """Return why what torch.save wrote must not be loaded, None when it may be."""
    if path.name == NEVER_READ:
        return None
    try:
        with opened(path, offset, length) as archive:
            read_archive(archive)
    except Refused as reason:
        return str(reason)
    return None


# The unpickler written in C sets aside as much memory as a number in the file says.
class _Lifeless(pickle._Unpickler):  # type: ignore[misc,name-defined,unused-ignore]
    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(stream)
        self.storages: list[Storage] = []

    def find_class(self, module: str, name: str) -> Any:
        wanted = f"{module}.{name}"
        if wanted not in ALLOWED:
            raise Refused(f"would load {wanted}, which no checkpoint needs")
        return type(wanted, (StandIn,), {})

    def persistent_load(self, pid: Any) -> Any:
        # ("storage", class, entry under data/, place, count of numbers)
        if not isinstance(pid, tuple) or len(pid) < 3 or not isinstance(pid[1], type):
            raise Refused("is not what torch.save writes")
        self.storages.append(Storage(pid[1].__name__, str(pid[2])))
        return StandIn()


class _Window(io.RawIOBase):
    """A part of a file as a file of its own."""

    def __init__(self, file: io.BufferedReader, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._at)
        block = self._file.read(min(len(buffer), max(0, self._size - self._at)))
        buffer[: len(block)] = block
        self._at += len(block)
        return len(block)
