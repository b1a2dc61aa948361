"""What of an output folder becomes a model, and of which trainings."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod import events
from pod.publish.card import kind_of
from pod.publish.gather import NotHealthy, gather
from pod.rundir import RunDir
from tests.stores import trained_to_the_end


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.path.mkdir()
    trained_to_the_end(made)
    return made


def test_a_model_is_what_one_loads(run_dir: RunDir) -> None:
    """No checkpoints and no trainer's state; a second name of each file costs no disk."""
    (run_dir.out / "debug.log").touch()
    (run_dir.out / "runs").mkdir()
    model = gather(run_dir)
    assert {path.name for path in model.iterdir()} == {"config.json", "model.safetensors"}
    assert (model / "model.safetensors").samefile(run_dir.out / "model.safetensors")
    assert kind_of(model) == "full"


def test_gathering_again_changes_nothing(run_dir: RunDir) -> None:
    """A revived flow finds the model, whatever a killed one had left."""
    (run_dir.path / "model.new").mkdir()
    model = gather(run_dir)
    (model / "README.md").touch()
    assert gather(run_dir) == model
    assert (model / "README.md").exists()
    assert not (run_dir.path / "model.new").exists()


@pytest.mark.parametrize(
    ("kind", "facts", "why"),
    [
        ("alarm", {"alarm": "jump", "onset_step": 12, "reason": "it jumped"}, "loss_spike"),
        ("error", {"error": "E", "message": "m", "cuda_oom": True}, None),
    ],
)
def test_only_healthy_weights_are_gathered(
    run_dir: RunDir, kind: str, facts: dict[str, object], why: str | None
) -> None:
    """An alarm condemns them; an error after a complete end, in a clean-up, does not."""
    events.append(run_dir.events, kind, 1, 20, **facts)
    if why is None:
        assert gather(run_dir).is_dir()
        return
    with pytest.raises(NotHealthy, match=why):
        gather(run_dir)
    assert not (run_dir.path / "model").exists()


def test_a_training_that_goes_on_is_not_gathered(run_dir: RunDir) -> None:
    """The newest attempt counts; and without whole weights there is no model at all."""
    events.append(run_dir.events, "step", 2, 11, loss=1.0)
    with pytest.raises(NotHealthy, match="did not complete"):
        gather(run_dir)
    (run_dir.out / "model.safetensors").unlink()
    with pytest.raises(NotHealthy, match="no whole weights"):
        gather(run_dir)


def test_a_merged_model_has_its_adapter_beside_it(tmp_path: Path) -> None:
    """And the tokenizer that was trained with, not the base's; nor the base's card."""
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    trained_to_the_end(run_dir, weights="adapter_model.safetensors")
    for name in ("adapter_config.json", "tokenizer.json", "chat_template.jinja", "README.md"):
        (run_dir.out / name).write_text("trained")
    merged = tmp_path / "merged"
    merged.mkdir()
    of_base = "model.safetensors config.json tokenizer.json README.md .gitattributes LICENSE"
    for name in of_base.split():
        (merged / name).write_text("base")
    model = gather(run_dir, merged)
    assert {path.name for path in model.iterdir()} == {
        "model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "LICENSE",
        "adapter",
    }  # fmt: skip
    assert (model / "tokenizer.json").read_text() == "trained"
    assert (merged / "tokenizer.json").read_text() == "base"
    assert {path.name for path in (model / "adapter").iterdir()} == {
        "adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "config.json",
        "chat_template.jinja",
    }  # fmt: skip
    assert kind_of(model) == "merged"
