"""Which checkpoint folders are whole: single files, shards, FSDP, DeepSpeed (H34)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pod.finite import ruined_weights
from pod.integrity import is_whole, structural_flaw, weight_files
from tests.checkpoints import (
    Call,
    Name,
    Numbers,
    deepspeed_folder,
    fsdp_folder,
    safetensors,
    tensor,
    torch_file,
)

Change = Callable[[Path], object]


def make_folder(folder: Path, *, weights: str | None = None) -> Path:
    """What every checkpoint has, and weights in one file if they have a name."""
    folder.mkdir(exist_ok=True)
    if weights is not None:
        (folder / weights).write_bytes(safetensors())
    for name in ("scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(torch_file({"last_epoch": 5}))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    return folder


def lora(folder: Path) -> Path:
    return make_folder(folder, weights="adapter_model.safetensors")


def full(folder: Path) -> Path:
    return make_folder(folder, weights="model.safetensors")


def pickled_weights(folder: Path) -> Path:
    (make_folder(folder) / "pytorch_model.bin").write_bytes(torch_file({"w": tensor(NUMBERS)}))
    return folder


def shards(folder: Path) -> Path:
    index = {"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}}
    (make_folder(folder) / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model-00001.safetensors").write_bytes(safetensors(name="a"))
    (folder / "model-00002.safetensors").write_bytes(safetensors(name="b"))
    return folder


def fsdp(folder: Path) -> Path:
    make_folder(folder)
    values = {"model.a": tensor(NUMBERS), "model.b": tensor(NUMBERS), "model.c": tensor(NUMBERS)}
    fsdp_folder(folder / "pytorch_model_fsdp_0", values)
    fsdp_folder(folder / "optimizer_0", {"state.a": tensor(NUMBERS), "groups": [{"lr": 0.1}]})
    return folder


def zero2(folder: Path) -> Path:
    deepspeed_folder(make_folder(folder), step=5)
    return folder


def zero3(folder: Path) -> Path:
    deepspeed_folder(make_folder(folder), step=5, stage=3)
    return folder


NUMBERS = Numbers(bytes(64))
FORMS = [lora, full, pickled_weights, shards, fsdp, zero2, zero3]
FORM = {form.__name__: form for form in FORMS}


def cut(name: str, *, to: float = 0.6) -> Change:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * to)])

    return change


def drop(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def write(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


MODEL = "pytorch_model_fsdp_0"
OPTIM = "global_step5/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
EVIL = torch_file(Call(Name("os", "system"), ("touch caught",)))
NEEDLESS = "would load os.system, which no checkpoint needs"

BROKEN: list[tuple[str, Change, str]] = [
    ("lora", cut("adapter_model.safetensors"), "adapter_model.safetensors is cut off"),
    ("lora", drop("adapter_model.safetensors"), "the weights are missing"),
    ("full", write("model.safetensors", b""), "model.safetensors is cut off"),
    ("full", write("model.safetensors", bytes(100)), "model.safetensors is cut off"),
    ("full", write("model.safetensors", b"\2" + bytes(7) + b"[]"), "model.safetensors is cut off"),
    ("full", write("model.safetensors", b"\7" + bytes(7) + b'{"a":1}'), "model.safetensors is cut"),
    ("full", cut("scheduler.pt"), "scheduler.pt is cut off"),
    ("full", write("scheduler.pt", EVIL), f"scheduler.pt {NEEDLESS}"),
    ("full", write("optimizer.pt", EVIL), f"optimizer.pt {NEEDLESS}"),
    ("full", write("rng_state_3.pth", EVIL), f"rng_state_3.pth {NEEDLESS}"),
    ("full", write("optimizer.bin", EVIL), f"optimizer.bin {NEEDLESS}"),
    ("full", write("custom_checkpoint_0.pkl", EVIL), f"custom_checkpoint_0.pkl {NEEDLESS}"),
    ("full", write("trainer_state.json", b"[]"), "trainer_state.json is cut off"),
    ("pickled_weights", write("pytorch_model.bin", EVIL), f"pytorch_model.bin {NEEDLESS}"),
    ("shards", drop("model-00001.safetensors"), "model-00001.safetensors is missing"),
    ("shards", cut("model-00002.safetensors"), "model-00002.safetensors is cut off"),
    (
        "shards",
        write("model-00002.safetensors", safetensors(name="a")),
        "model-00002.safetensors lacks b",
    ),
    ("shards", write("model.safetensors.index.json", b'{"weight'), "the weights are missing"),
    ("shards", write("model.safetensors.index.json", b"[]"), "the weights are missing"),
    ("fsdp", drop(f"{MODEL}/.metadata"), f"{MODEL}/.metadata is missing"),
    ("fsdp", drop("optimizer_0/.metadata"), "optimizer_0/.metadata is missing"),
    ("fsdp", cut(f"{MODEL}/.metadata"), f"{MODEL}/.metadata cannot be read"),
    ("fsdp", write(f"{MODEL}/.metadata", b""), f"{MODEL}/.metadata cannot be read"),
    ("fsdp", write(f"{MODEL}/.metadata", b"\x80\x02K\x05."), f"{MODEL}/.metadata cannot be read"),
    (
        "fsdp",
        write(f"{MODEL}/.metadata", b"\x80\x02cos\nsystem\nX\x01\x00\x00\x00x\x85R."),
        f"{MODEL}/.metadata {NEEDLESS}",
    ),
    ("fsdp", drop(f"{MODEL}/__1_0.distcp"), f"{MODEL}/__1_0.distcp is missing"),
    ("fsdp", cut(f"{MODEL}/__1_0.distcp"), f"{MODEL}/__1_0.distcp is cut off"),
    ("fsdp", drop("optimizer_0/__0_0.distcp"), "optimizer_0/__0_0.distcp is missing"),
    ("zero2", drop("latest"), "latest is missing"),
    ("zero2", write("latest", b"global_step9"), "global_step9 is missing"),
    ("zero2", write("latest", b"../checkpoint-4/global_step4"), "global_step4 is missing"),
    ("zero2", drop(OPTIM), "global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt is missing"),
    ("zero2", cut(OPTIM), f"{OPTIM} is cut off"),
    ("zero2", write(OPTIM, EVIL), f"{OPTIM} {NEEDLESS}"),
    ("zero2", drop("global_step5/mp_rank_00_model_states.pt"), "the weights are missing"),
    (
        "zero3",
        drop("global_step5/zero_pp_rank_1_mp_rank_00_model_states.pt"),
        "global_step5/zero_pp_rank_1_mp_rank_00_model_states.pt is missing",
    ),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_whole_checkpoint_of_any_form_has_no_flaw(
    tmp_path: Path, form: Callable[[Path], Path]
) -> None:
    """LoRA, full, pickled, sharded, FSDP, ZeRO 2 and 3."""
    assert structural_flaw(form(tmp_path)) is None


@pytest.mark.parametrize(
    ("form", "change", "flaw"), BROKEN, ids=[f"{row[0]}: {row[2]}" for row in BROKEN]
)
def test_what_is_missing_cut_off_or_unsafe_is_named(
    tmp_path: Path, form: str, change: Change, flaw: str
) -> None:
    """The reason names the file, whichever of them it is (H34)."""
    folder = FORM[form](tmp_path / "checkpoint-5")
    change(folder)
    assert (structural_flaw(folder) or "").startswith(flaw)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
def test_no_file_may_be_cut_off(tmp_path: Path, form: Callable[[Path], Path], share: float) -> None:
    """Whatever file of whatever form a full disk cuts, and wherever, it is noticed."""
    names = [p.relative_to(tmp_path / "0") for p in form(tmp_path / "0").rglob("*") if p.is_file()]
    for number, name in enumerate(names, start=1):
        folder = form(tmp_path / str(number))
        cut(str(name), to=share)(folder)
        assert structural_flaw(folder) is not None, name


@pytest.mark.parametrize("form", FORMS)
def test_damage_anywhere_is_a_flaw_or_none_but_never_an_error_of_ours(
    tmp_path: Path, form: Callable[[Path], Path]
) -> None:
    """Some bytes are changed, cut out or put in; whoever picks a checkpoint must get an answer."""
    chance = random.Random(0)
    folder = form(tmp_path)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for _ in range(150):
        path = chance.choice(files)
        content = path.read_bytes()
        at = chance.randrange(len(content))
        length = chance.choice([0, 1, 1, 1, 20])
        path.write_bytes(content[:at] + chance.randbytes(1) + content[at + length :])
        if structural_flaw(folder) is None:
            ruined_weights(folder)
        path.write_bytes(content)
    assert structural_flaw(folder) is None


def test_objects_in_fsdp_files_are_looked_at(tmp_path: Path) -> None:
    """torch reads them without a limit, unlike the tensors beside them."""
    make_folder(tmp_path)
    evil = Call(Name("os", "system"), ("touch caught",))
    fsdp_folder(tmp_path / MODEL, {"a": tensor(NUMBERS), "b": evil})
    assert structural_flaw(tmp_path) == f"{MODEL}/__1_0.distcp {NEEDLESS}"


def test_fsdp_files_outside_the_folder_are_refused(tmp_path: Path) -> None:
    """A path in the metadata leads nowhere else."""
    make_folder(tmp_path)
    fsdp_folder(tmp_path / MODEL, {"a": tensor(NUMBERS)}, outside="../../other.distcp")
    assert structural_flaw(tmp_path) == (
        f"{MODEL}/.metadata names ../../other.distcp, which is outside"
    )


def test_the_weights_of_a_final_model_are_found(tmp_path: Path) -> None:
    """One file, or all shards of a complete set."""
    assert weight_files(full(tmp_path / "full")) == ["model.safetensors"]
    assert weight_files(shards(tmp_path / "shards")) == [
        "model-00001.safetensors",
        "model-00002.safetensors",
    ]
    (tmp_path / "shards" / "model-00002.safetensors").unlink()
    assert weight_files(tmp_path / "shards") == []
    assert not is_whole(tmp_path / "shards" / "model-00002.safetensors")
