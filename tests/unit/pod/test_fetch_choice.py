"""Which repositories and files a training reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod.fetch.choice import choose
from pod.fetch.inputs import Input, inputs, may_load_more
from pod.fetch.snapshot import RemoteFile

MODEL = Input("me/model", "model", "weights")


def chosen(paths: str, wanted: Input = MODEL) -> list[str]:
    files = [RemoteFile(path, 1, str(n)) for n, path in enumerate(paths.split())]
    return sorted(file.path for file in choose(files, wanted))


@pytest.mark.parametrize(
    ("there", "needed"),
    [
        ("model.safetensors pytorch_model.bin", "model.safetensors"),
        ("pytorch_model.bin tf_model.h5 flax_model.msgpack", "pytorch_model.bin"),
        (
            "model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json pytorch_model-00001-of-00001.bin "
            "pytorch_model.bin.index.json",
            "model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json",
        ),
        (
            "pytorch_model-00001-of-00001.bin pytorch_model.bin.index.json x.gguf",
            "pytorch_model-00001-of-00001.bin pytorch_model.bin.index.json",
        ),
        ("model.safetensors consolidated.safetensors model.fp16.safetensors", "model.safetensors"),
        ("model.safetensors model-00001-of-00001.safetensors", "model.safetensors"),
        ("odd.safetensors odd.bin", "odd.safetensors"),
        ("adapter_model.safetensors adapter_model.bin", "adapter_model.safetensors"),
        (
            "adapter_model.safetensors model.safetensors training_args.bin optimizer.pt",
            "adapter_model.safetensors model.safetensors",
        ),
        ("model.safetensors original/consolidated.00.pth onnx/model.onnx", "model.safetensors"),
        ("model.safetensors metal/model.bin checkpoint-5/model.safetensors", "model.safetensors"),
    ],
)
def test_one_format_of_the_weights_is_enough(there: str, needed: str) -> None:
    """The one that transformers takes first; no copies for other libraries."""
    assert chosen(there) == sorted(needed.split())


def test_texts_come_and_pages_do_not() -> None:
    """Code only where the task file lets it run."""
    there = (
        "README.md .gitattributes LICENSE LICENSE.txt USE_POLICY.md figure.png config.json "
        "generation_config.json tokenizer.json tokenizer.model merges.txt vocab.json "
        "chat_template.jinja additional_chat_templates/tools.jinja modeling_x.py "
        "original/params.json"
    )
    needed = (
        "config.json generation_config.json tokenizer.json tokenizer.model merges.txt vocab.json "
        "chat_template.jinja additional_chat_templates/tools.jinja"
    )
    assert chosen(there) == sorted(needed.split())
    trusted = Input("me/model", "model", "weights", code=True)
    assert set(chosen(there, trusted)) - set(chosen(there)) == {"modeling_x.py"}
    tokenizer = Input("me/model", "model", "tokenizer")
    assert chosen("config.json tokenizer.json model.safetensors", tokenizer) == [
        "config.json",
        "tokenizer.json",
    ]


def test_a_data_set_comes_whole_or_as_it_is_named() -> None:
    """With the page that says how it is read."""
    there = "README.md .gitattributes data/a.parquet data/b.parquet rows.jsonl images/1.png"
    every = Input("me/data", "dataset", "data")
    assert chosen(there, every) == sorted(there.replace(".gitattributes", "").split())
    some = Input("me/data", "dataset", "data", data_files=("data/*.parquet",))
    assert chosen(there, some) == ["README.md", "data/a.parquet", "data/b.parquet"]


def test_repositories_are_found_by_axolotls_keys(tmp_path: Path) -> None:
    """What exists here, addresses, loaders and what is streamed stay with axolotl."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.jsonl").write_text("{}")
    axolotl = {
        "base_model": "me/model",
        "revision_of_model": "v1",
        "tokenizer_config": "me/tokenizer",
        "lora_model_dir": "me/adapter",
        "trust_remote_code": True,
        "trl": {"reward_funcs": ["rewards.length", "me/reward"]},
        "datasets": [
            {"path": "data/rows.jsonl"},
            {"path": "json", "data_files": "https://x.example/a.json"},
            {"path": "s3://bucket/rows"},
            {"path": "https://x.example/rows.json"},
            {"path": "me/rows", "revision": "abc", "data_files": ["a.jsonl"]},
        ],
        "test_datasets": [{"path": "squad"}],
        "pretraining_dataset": [{"path": "me/endless"}],
    }
    found = [(each.repo, each.part, each.revision, each.key) for each in inputs(axolotl, tmp_path)]
    assert found == [
        ("me/model", "weights", "v1", ("base_model",)),
        ("me/adapter", "weights", None, ("lora_model_dir",)),
        ("me/tokenizer", "tokenizer", "v1", ("tokenizer_config",)),
        ("me/reward", "weights", None, ("trl", "reward_funcs", 1)),
        ("me/rows", "data", "abc", ("datasets", 4)),
        ("squad", "data", None, ("test_datasets", 0)),
    ]
    assert not [
        each for each in inputs({**axolotl, "streaming": True}, tmp_path) if each.part == "data"
    ]


@pytest.mark.parametrize(
    ("more", "may"),
    [
        ({}, False),
        ({"plugins": ["axolotl.integrations.liger.LigerPlugin"]}, False),
        ({"plugins": ["mine.Plugin"]}, True),
        ({"trust_remote_code": True}, True),
        ({"attn_implementation": "kernels-community/flash-attn"}, True),
        ({"datasets": [{"path": "me/rows"}]}, True),
        ({"datasets": [{"path": "json", "data_files": "a.json"}]}, False),
    ],
)
def test_the_hub_stays_open_where_more_may_be_wanted(
    tmp_path: Path, more: dict[str, object], may: bool
) -> None:
    """Offline only when nothing else can be asked for."""
    assert may_load_more({"base_model": "me/model", **more}, tmp_path) is may
