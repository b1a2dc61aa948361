"""A model's shape from a hub and from a folder, with the real huggingface_hub."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from runner.estimates.hub import read_model
from runner.estimates.model import HubAway, UnknownModel
from tests.emulators.hub import Emulator, running
from tests.emulators.hub.testing import use_here

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
}
LAYER = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64
PARAMETERS = 2 * LAYER + 2 * 512 * 64 + 64


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Emulator]:
    """A hub that read_model finds, as one who reads it; files are cached in a folder of its own."""
    with running() as emulator:
        use_here(monkeypatch)
        monkeypatch.setenv("HF_ENDPOINT", emulator.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_read")
        yield emulator


def safetensors(shapes: dict[str, list[int]], kind: str = "BF16", values: bool = True) -> bytes:
    """A file of this form; without `values` its tensors are missing behind the header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * 2
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + (b"\0" * end if values else b"")


def _shapes() -> dict[str, list[int]]:
    shapes = {"model.embed_tokens.weight": [512, 64], "lm_head.weight": [512, 64]}
    shapes["model.norm.weight"] = [64]
    for layer in range(2):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.self_attn.{name}_proj.weight": [64, 64] for name in "qo"}
        shapes |= {f"{at}.self_attn.{name}_proj.weight": [32, 64] for name in "kv"}
        shapes |= {f"{at}.mlp.{name}_proj.weight": [128, 64] for name in ("gate", "up")}
        shapes[f"{at}.mlp.down_proj.weight"] = [64, 128]
        shapes |= {f"{at}.{name}.weight": [64] for name in ("norm1", "norm2")}
    return shapes


def _publish(hub: Emulator, files: dict[str, bytes], name: str = "me/model") -> HfApi:
    api = HfApi(endpoint=hub.url, token="hf_write")
    api.create_repo(name, private=True)
    for path, content in files.items():
        api.upload_file(path_or_fileobj=content, path_in_repo=path, repo_id=name)
    return api


def test_a_model_of_the_hub_is_read_without_its_weights(hub: Emulator) -> None:
    """Two shards of 100 kB each: only config.json, the index and the headers are fetched."""
    shapes = _shapes()
    names = list(shapes)
    shards = {
        "model-00001-of-00002.safetensors": names[:9],
        "model-00002-of-00002.safetensors": names[9:],
    }
    files = {
        file: safetensors({name: shapes[name] for name in part}) for file, part in shards.items()
    }
    index = {"metadata": {}, "weight_map": {n: f for f, part in shards.items() for n in part}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    files["config.json"] = json.dumps(CONFIG).encode()
    files["pytorch_model.bin"] = b"x" * 1000
    _publish(hub, files)
    asked = len(hub.state["requests"])
    model = read_model("me/model")
    assert (model.parameters, model.tied) == (PARAMETERS, False)
    assert model.counted == "the headers of its weights"
    assert model.download == sum(len(c) for f, c in files.items() if f.endswith(".safetensors"))
    paths = [call["path"] for call in hub.state["requests"][asked:]]
    assert not any("pytorch_model.bin" in path for path in paths)


def test_a_model_without_safetensors_is_counted_by_its_configuration(hub: Emulator) -> None:
    """And its download is the size of what there is."""
    _publish(hub, {"config.json": json.dumps(CONFIG).encode(), "pytorch_model.bin": b"x" * 1000})
    model = read_model("me/model")
    assert (model.parameters, model.counted) == (PARAMETERS, "config.json")
    assert model.download == 1000


@pytest.mark.parametrize(
    ("name", "revision", "reason"),
    [
        ("me/none", None, "no such model, or a private one"),
        ("not a name!", None, "no such model, or a private one"),
        ("me/model", "v2", "no revision v2"),
        ("me/bare", None, "no config.json"),
        ("me/odd", None, "config.json can't be read"),
        ("me/list", None, "config.json can't be read"),
        ("", None, "no base_model is named"),
    ],
)
def test_why_a_model_is_unknown_is_said(
    hub: Emulator, name: str, revision: str | None, reason: str
) -> None:
    """None of them is a hub that may answer later."""
    _publish(hub, {"config.json": json.dumps(CONFIG).encode()})
    _publish(hub, {"x.txt": b"x"}, "me/bare")
    _publish(hub, {"config.json": b"{"}, "me/odd")
    _publish(hub, {"config.json": b"[]"}, "me/list")
    with pytest.raises(UnknownModel, match=reason) as found:
        read_model(name, revision=revision)
    assert not isinstance(found.value, HubAway)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_is_away_may_answer_later(hub: Emulator, status: int) -> None:
    """A run waits for it."""
    _publish(hub, {"config.json": json.dumps(CONFIG).encode()})
    hub.set([{"match": "/api/models/me/model", "times": 99, "status": status}])
    with pytest.raises(HubAway, match="the hub does not answer"):
        read_model("me/model")


def test_nobody_is_asked_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check --offline`."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UnknownModel, match="--offline"):
        read_model("me/model", offline=True)
    with pytest.raises(HubAway):
        read_model("me/model")


def test_a_model_in_a_folder_is_read_from_its_headers(tmp_path: Path) -> None:
    """The repository's own model, first where it is looked for; the hub is not asked."""
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tied = {name: shape for name, shape in _shapes().items() if name != "lm_head.weight"}
    (folder / "model.safetensors").write_bytes(safetensors(tied, values=False))
    model = read_model("models/mine", folders=[tmp_path / "elsewhere", tmp_path], offline=True)
    assert (model.parameters, model.tied) == (PARAMETERS - 512 * 64, True)


def test_a_broken_file_in_a_folder_is_said(tmp_path: Path) -> None:
    """Not a number made of it."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(UnknownModel, match=r"model.safetensors is no safetensors file"):
        read_model(".", folders=[tmp_path])
