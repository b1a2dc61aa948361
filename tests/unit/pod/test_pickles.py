"""What a pickle would load is found out without loading it."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pod import pickles
from pod.pickles import Refused, Storage
from tests.checkpoints import Call, Name, Numbers, Thing, pickled, tensor, torch_file

REPOSITORY = Path(__file__).resolve().parents[3]


class Evil:
    """What everybody writes first: a shell command as the way to build the object."""

    def __reduce__(self) -> Any:
        return os.system, ("touch caught",)


HARMLESS = [
    {"state": {0: {"step": 3.0, "exp_avg": tensor(Numbers(bytes(8)))}}, "lr": 1e-3, "b": (0.9, 1)},
    Call(Name("collections", "OrderedDict")),
    Call(Name("torch", "Size"), ((3, 4),)),
    [Name("torch", "bfloat16"), Call(Name("torch", "device"), ("cuda", 0)), None, True],
    Call(Name("numpy._core.multiarray", "_reconstruct"), (Name("numpy", "ndarray"), (0,), b"b")),
    {1, 2},
]


@pytest.mark.parametrize("value", HARMLESS, ids=str)
def test_what_trainers_save_is_let_through(tmp_path: Path, value: Any) -> None:
    """Optimizer states, schedules and states of random numbers are numbers in containers."""
    path = tmp_path / "optimizer.pt"
    path.write_bytes(torch_file(value))
    assert pickles.refusal(path) is None


CALLS = [
    ("posix", "system", "posix.system"),
    ("os", "system", "os.system"),
    ("builtins", "eval", "builtins.eval"),
    ("__builtin__", "exec", "__builtin__.exec"),
    ("subprocess", "Popen", "subprocess.Popen"),
    ("torch", "load", "torch.load"),
    ("torch.hub", "load", "torch.hub.load"),
    ("torch", "FloatStorage.from_file", "torch.FloatStorage.from_file"),
    ("torch.serialization", "os.system", "torch.serialization.os.system"),
    ("numpy.testing._private.utils", "runstring", "numpy.testing._private.utils.runstring"),
    ("deepspeed.runtime.engine", "os.system", "deepspeed.runtime.engine.os.system"),
    ("functools", "partial", "functools.partial"),
    ("", "", "."),
]


@pytest.mark.parametrize(("module", "name", "shown"), CALLS)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_name_that_no_checkpoint_needs_is_refused(
    module: str, name: str, shown: str, protocol: int
) -> None:
    """The list says what is allowed, not what is forbidden; attributes of what is are not."""
    harmful = pickled([1, Call(Name(module, name), ("touch caught",))], protocol)
    with pytest.raises(Refused, match=f"would load {shown}, which no checkpoint needs"):
        pickles.read(io.BytesIO(harmful))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pythons_own_pickles_are_understood_in_every_protocol(
    tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names may be written in one piece, or in two that lie anywhere before; nothing is run."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match=r"would load posix\.system"):
        pickles.read(io.BytesIO(pickle.dumps({"a": [Evil()]}, protocol)))
    assert list(tmp_path.iterdir()) == []


TRICKS = {
    "the first of two names in parts": b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93.",
    "names from the memo": b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.",
    "the old way to make an instance": b"(S'touch caught'\nios\nsystem\n.",
    "the other old way": b"(cos\nsystem\nS'touch caught'\no.",
    "a registered extension": b"\x80\x02\x82\x01.",
    "a state that replaces a method": (
        b"\x80\x02ctorch\nSize\n)\x81}X\x06\x00\x00\x00appendcos\nsystem\nsba."
    ),
    "a memo of many gigabytes": b"\x80\x02Nr\xff\xff\xff\x7f0.",
    "a text of many gigabytes": b"\x80\x04\x8d\xff\xff\xff\xff\x0f\x00\x00\x00x.",
    "no end": b"\x80\x02]",
    "nothing": b"",
    "noise": bytes(range(256)),
    "one number less on the stack": b"\x80\x02a.",
}


@pytest.mark.parametrize("content", TRICKS.values(), ids=TRICKS)
def test_tricks_end_in_a_refusal(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No opcode leads around the list, and damage is not an error of ours."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused):
        pickles.read(io.BytesIO(content))
    assert list(tmp_path.iterdir()) == []


def archive_with(*entries: tuple[str, bytes], comment: bytes = b"", packed: bool = False) -> bytes:
    stream = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
        archive.comment = comment
    return stream.getvalue()


GOOD, BAD = pickled([1]), pickled(Call(Name("os", "system"), ("touch caught",)))
ARCHIVES = {
    "a second pickle": archive_with(("a/data.pkl", GOOD), ("a/constants.pkl", GOOD)),
    "another spelling": archive_with(("a/DATA.PKL", BAD)),
    "one in each folder": archive_with(("a/data.pkl", GOOD), ("b/data.pkl", BAD)),
    "two spellings": archive_with(("a/data.pkl", GOOD), ("a/Data.pkl", BAD)),
    "a comment": archive_with(("a/data.pkl", GOOD), comment=b"PK\x05\x06"),
    "packed entries": archive_with(("a/data.pkl", GOOD), packed=True),
    "something before it": b"#!/bin/sh\n" + archive_with(("a/data.pkl", GOOD)),
    "no pickle": archive_with(("a/version", b"3")),
    "no entry": archive_with(),
    "a bare pickle": GOOD,
    "empty": b"",
}


@pytest.mark.parametrize("content", ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_that_torch_would_not_write_is_refused(tmp_path: Path, content: bytes) -> None:
    """torch has its own zip reader: what the two might see differently is not let through."""
    path = tmp_path / "scheduler.pt"
    path.write_bytes(content)
    assert pickles.refusal(path) is not None


def test_the_arguments_of_the_training_are_not_looked_at(tmp_path: Path) -> None:
    """They name dozens of classes of transformers and axolotl, and nobody reads them on resume."""
    path = tmp_path / "training_args.bin"
    path.write_bytes(torch_file(Thing(Name("axolotl.core.training_args", "Arguments"), {})))
    assert pickles.refusal(path) is None
    path.rename(tmp_path / "scaler.pt")
    assert pickles.refusal(tmp_path / "scaler.pt") is not None


def test_storages_and_plain_values_are_told(tmp_path: Path) -> None:
    """They say which entries hold floats, and how many ranks wrote."""
    content = {"dp_world_size": 2, "w": tensor(Numbers(bytes(8), "BF16"))}
    with zipfile.ZipFile(io.BytesIO(torch_file(content))) as archive:
        found = pickles.read_archive(archive)
    assert found.value["dp_world_size"] == 2
    assert found.storages == (Storage("torch.BFloat16Storage", "0"),)


def test_the_reader_needs_nothing_but_python() -> None:
    """It runs on a pod beside the trainer, in an environment without torch."""
    code = "import sys, pod.ledger; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    bare = [sys.executable, "-S", "-c", code]
    assert subprocess.run(bare, cwd=REPOSITORY, check=False).returncode == 0
