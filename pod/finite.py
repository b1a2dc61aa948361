"""Are all numbers of a model finite? Told from the bytes, without torch and in little memory.

Weights in which one number is NaN or infinite give NaN for everything, and a trainer saves them
without a word. Every number is looked at, because one is enough: a float is not finite when all
bits of its exponent are set, so nearly all blocks are cleared by their highest bytes alone
(about 1 GB a second, less than the hashes of the same files take).

Optimizer states are left out: a broken one reaches the weights in the very step that broke it.
"""

from __future__ import annotations

import json
import struct
import zipfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from pod.integrity import weight_files
from pod.pickles import FLOATS, Refused, opened, read_archive
from pod.sharded import Part, weight_parts

_BLOCK = 1024 * 1024


class _Float(NamedTuple):
    """How a number is stored: array's code for it as a whole number, and its exponent's bits."""

    code: str
    exponent: int


_FORMATS = {
    "F64": _Float("Q", 0x7FF0_0000_0000_0000),
    "F32": _Float("I", 0x7F80_0000),
    "F16": _Float("H", 0x7C00),
    "BF16": _Float("H", 0x7F80),
    "F8_E5M2": _Float("B", 0x7C),
    "F8_E4M3": _Float("B", 0x7F),  # this one has no infinity; NaN is all ones
}


def ruined_weights(checkpoint: Path) -> str | None:
    """Return which weights of a whole checkpoint are not finite, or damaged; None if none are."""
    files = [Part(name, checkpoint / name) for name in weight_files(checkpoint)]
    for part in [*files, *weight_parts(checkpoint)]:
        try:
            broken = _broken_in(part)
        except Refused as reason:
            return f"{part.name} {reason}"
        if broken is not None:
            return f"{part.name} holds numbers that are not finite, in {broken}"
    return None


def _broken_in(part: Part) -> str | None:
    if part.path.suffix == ".safetensors":
        return _broken_tensor(part.path)
    with opened(part.path, part.offset, part.length) as archive:
        return _broken_storage(archive)


def _broken_tensor(path: Path) -> str | None:
    """The name of the first tensor of a safetensors file that is not finite."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        for name, tensor in header.items():
            if name == "__metadata__" or tensor["dtype"] not in _FORMATS:
                continue
            start, end = tensor["data_offsets"]
            file.seek(8 + length + start)
            if not _all_finite(file, end - start, tensor["dtype"]):
                return str(name)
    return None


def _broken_storage(archive: zipfile.ZipFile) -> str | None:
    """The entry of the first tensor that is not finite in what torch.save wrote."""
    floats = {s.key: FLOATS[s.kind] for s in read_archive(archive).storages if s.kind in FLOATS}
    for entry in archive.infolist():
        folder, _, key = entry.filename.rpartition("/")
        if folder.rpartition("/")[2] == "data" and key in floats:
            with archive.open(entry) as file:
                if not _all_finite(file, entry.file_size, floats[key]):
                    return entry.filename
    return None


def _all_finite(file: IO[bytes], size: int, dtype: str) -> bool:
    code, exponent = _FORMATS[dtype]
    width = array(code).itemsize
    top = exponent >> 8 * (width - 1)
    harmless = bytes(byte for byte in range(256) if byte & top != top)
    for block in _blocks(file, size):
        # Numbers are stored lowest byte first.
        if block[width - 1 :: width].translate(None, harmless) and any(
            number & exponent == exponent for number in array(code, block)
        ):
            return False
    return True


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0:
        block = file.read(min(_BLOCK, size))
        if not block:
            return
        size -= len(block)
        yield block
