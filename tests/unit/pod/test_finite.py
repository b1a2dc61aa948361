"""Weights that are not finite are found by their bytes alone."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from pod.finite import ruined_weights
from tests.checkpoints import (
    Numbers,
    deepspeed_folder,
    fsdp_folder,
    safetensors,
    tensor,
    torch_file,
)

PLACES = [0, 1, 300_000, 599_999]  # of 600 000 numbers, more than one block


def f32(value: float) -> bytes:
    return struct.pack("<f", value)


def bf16(value: float) -> bytes:
    return f32(value)[2:]


def f16(value: float) -> bytes:
    return struct.pack("<e", value)


FORMATS: dict[str, Callable[[float], bytes]] = {
    "F32": f32,
    "BF16": bf16,
    "F16": f16,
    "F64": lambda value: struct.pack("<d", value),
}
LARGEST = {"F32": 3.4e38, "BF16": 3.3e38, "F16": 65504.0, "F64": 1.7e308}


def flaw_of(folder: Path, content: bytes, dtype: str) -> str | None:
    (folder / "model.safetensors").write_bytes(safetensors(content, dtype, name="layer.weight"))
    return ruined_weights(folder)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", PLACES)
def test_one_number_that_is_not_finite_ruins_the_model(
    tmp_path: Path, dtype: str, value: float, place: int
) -> None:
    """Wherever it is, and in whatever format floats are kept."""
    width = len(FORMATS[dtype](0.0))
    content = bytearray(600_000 * width)
    content[place * width : (place + 1) * width] = FORMATS[dtype](value)
    assert flaw_of(tmp_path, bytes(content), dtype) == (
        "model.safetensors holds numbers that are not finite, in layer.weight"
    )


@pytest.mark.parametrize("dtype", FORMATS)
def test_any_finite_number_is_good_enough(tmp_path: Path, dtype: str) -> None:
    """The largest, the smallest, and masks made of the lowest number there is."""
    values = [LARGEST[dtype], -LARGEST[dtype], 0.0, -0.0, 1e-7, 1.0, -3.5]
    content = b"".join(FORMATS[dtype](value) for value in values) * 1000
    assert flaw_of(tmp_path, content, dtype) is None


@pytest.mark.parametrize(
    ("dtype", "content", "ruined"),
    [
        ("F8_E4M3", b"\x7e\xfe\x00", False),
        ("F8_E4M3", b"\x00\x7f", True),
        ("F8_E5M2", b"\x7b\xfb", False),
        ("F8_E5M2", b"\x7c", True),
        ("U8", b"\x7f\xff", False),
        ("I16", b"\x80\x7f\xff\xff", False),
    ],
)
def test_small_floats_and_whole_numbers(
    tmp_path: Path, dtype: str, content: bytes, ruined: bool
) -> None:
    """Eight bits have NaNs too; whole numbers may have any bits."""
    assert (flaw_of(tmp_path, content, dtype) is not None) == ruined


NAN = Numbers(bf16(1.0) * 20 + bf16(math.nan), "BF16")
GOOD = Numbers(bf16(1.0) * 21, "BF16")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "adapter_model.bin"])
def test_pickled_weights_are_looked_at(tmp_path: Path, name: str) -> None:
    """The pickle says which entries of the archive hold floats."""
    (tmp_path / name).write_bytes(torch_file({"a": tensor(GOOD), "b": tensor(GOOD)}))
    assert ruined_weights(tmp_path) is None
    (tmp_path / name).write_bytes(torch_file({"a": tensor(GOOD), "b": tensor(NAN)}))
    assert ruined_weights(tmp_path) == (
        f"{name} holds numbers that are not finite, in archive/data/1"
    )


def test_every_shard_is_looked_at(tmp_path: Path) -> None:
    """The second one is ruined."""
    index = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "1.safetensors").write_bytes(safetensors(bf16(1.0), "BF16", name="a"))
    (tmp_path / "2.safetensors").write_bytes(safetensors(bf16(math.nan), "BF16", name="b"))
    assert ruined_weights(tmp_path) == "2.safetensors holds numbers that are not finite, in b"


def test_fsdp_weights_are_looked_at_and_its_optimizer_is_not(tmp_path: Path) -> None:
    """A piece is named by its tensor."""
    fsdp_folder(tmp_path / "pytorch_model_fsdp_0", {"model.a": tensor(GOOD)})
    fsdp_folder(tmp_path / "optimizer_0", {"state.a": tensor(NAN)})
    assert ruined_weights(tmp_path) is None
    fsdp_folder(tmp_path / "pytorch_model_fsdp_1", {"a": tensor(GOOD), "model.b": tensor(NAN)})
    assert ruined_weights(tmp_path) == (
        "model.b holds numbers that are not finite, in archive/data/0"
    )


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_weights_are_looked_at(tmp_path: Path, stage: int) -> None:
    """In the folder that `latest` names."""
    deepspeed_folder(tmp_path, step=5, stage=stage, weights=NAN.content)
    assert (ruined_weights(tmp_path) or "").endswith(
        "_states.pt holds numbers that are not finite, in archive/data/0"
    )
    deepspeed_folder(tmp_path, step=6, stage=stage, weights=GOOD.content)
    assert ruined_weights(tmp_path) is None
