"""Which runs may use the same tokenised data."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pod.fetch.prepared import LOCK, drop_halves, key_of

Change = Callable[[Path, dict[str, Any]], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A local model, two files of rows, a template, an environment with axolotl."""
    for name, text in {
        "model/tokenizer.json": "{}",
        "model/model.safetensors": "weights",
        "rows/a.jsonl": "{}",
        "rows/b.jsonl": "{}",
        "chat.jinja": "{{ messages }}",
        "env/lib/python3.11/site-packages/axolotl-0.19.0.dist-info/METADATA": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def config(root: Path) -> dict[str, Any]:
    return {
        "base_model": str(root / "model"),
        "sequence_len": 512,
        "sample_packing": True,
        "learning_rate": 1e-4,
        "micro_batch_size": 2,
        "chat_template_jinja": str(root / "chat.jinja"),
        "plugins": ["pod.plugin.RunnerPlugin"],
        "datasets": [
            {"path": str(root / "rows" / "a.jsonl"), "type": "alpaca"},
            {"path": "me/rows", "type": "alpaca", "revision": "abc"},
        ],
    }


def key(root: Path, axolotl: dict[str, Any]) -> str | None:
    return key_of(axolotl, root, root / "env")


def write(name: str, text: str = "other") -> Change:
    return lambda root, axolotl: (root / name).write_text(text)


def put(name: str, value: object) -> Change:
    return lambda root, axolotl: axolotl.__setitem__(name, value)


def put_in_rows(name: str, value: object) -> Change:
    return lambda root, axolotl: axolotl["datasets"][1].__setitem__(name, value)


@pytest.mark.parametrize(
    "change",
    [
        write("rows/a.jsonl"),
        write("model/tokenizer.json"),
        write("model/added_tokens.json"),
        write("chat.jinja"),
        write("env/lib/python3.11/site-packages/tokenizers-1.dist-info", ""),
        put("sequence_len", 1024),
        put("sample_packing", False),
        put("seed", 7),
        put("a_key_of_tomorrow", 1),
        put("plugins", ["mine.Tokenises"]),
        put("base_model", "me/other"),
        put_in_rows("revision", "def"),
        put_in_rows("type", "chat_template"),
        put_in_rows("split", "train[:10]"),
    ],
)
def test_what_changes_a_token_gives_another_folder(root: Path, change: Change) -> None:
    """An edited file, another tokenizer behind the same name, other settings (H40)."""
    before = key(root, {**config(root), "revision_of_model": "1"})
    axolotl = {**config(root), "revision_of_model": "1"}
    change(root, axolotl)
    after = key(root, axolotl)
    assert before is not None
    assert after is not None
    assert after != before


@pytest.mark.parametrize(
    "change",
    [
        write("rows/b.jsonl"),
        write("model/model.safetensors"),
        put("learning_rate", 1e-5),
        put("micro_batch_size", 1),
        put("lora_r", 8),
        put("output_dir", "/other/run"),
        put("wandb_name", "again"),
        put("plugins", ["pod.plugin.RunnerPlugin", "axolotl.integrations.liger.LigerPlugin"]),
    ],
)
def test_what_does_not_is_no_reason_to_tokenise_again(root: Path, change: Change) -> None:
    """The second run with another learning rate finds its data (H40)."""
    axolotl = config(root)
    before = key(root, axolotl)
    change(root, axolotl)
    assert key(root, axolotl) == before is not None


@pytest.mark.parametrize(
    "change",
    [
        put("base_model", "me/model"),
        put("datasets", [{"path": "me/rows"}]),
        put("datasets", [{"path": "json", "data_files": "https://x.example/a.json"}]),
        put("streaming", True),
    ],
)
def test_what_can_be_anything_tomorrow_is_not_shared(root: Path, change: Change) -> None:
    """A name of the hub without a commit, an address."""
    axolotl = config(root)
    change(root, axolotl)
    assert key(root, axolotl) is None


def test_half_a_data_set_is_taken_away_before_it_is_loaded(tmp_path: Path) -> None:
    """Of a trainer that died while it wrote; not while another one writes (H40)."""
    for name in ("whole", "half"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data-00000-of-00001.arrow").write_text("rows")
    (tmp_path / "whole" / "state.json").write_text("{}")
    with (tmp_path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert drop_halves(tmp_path) == []
    assert drop_halves(tmp_path) == ["half"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK, "whole"]
    assert drop_halves(tmp_path / "none") == []
