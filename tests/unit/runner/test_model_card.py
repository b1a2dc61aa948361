"""What stands in a model's card, as huggingface_hub itself reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from huggingface_hub import ModelCard

from runner.card_settings import pipeline_of, settings_of
from runner.model_card import PICTURE, CardFacts, Source, model_card
from runner.provenance import PastAttempt, Provenance, UsedPod, from_plain

TOLD = Provenance(
    run="3f0c6b1e",
    task_file="configs/toy.yml",
    repository="me/configs",
    commit="c" * 40,
    attempts=(
        PastAttempt(1, "loss_spike", None, 1, 27, 24, 27, None, "the loss jumped from 1.9 to 7.4"),
        PastAttempt(2, "completed", 20, 21, 40, rung={"kind": "skip", "first": 24, "last": 28}),
    ),
    pods=(UsedPod("runpod", "NVIDIA A40 / SECURE / EU-RO-1", 1.25, 0.49),),
    cost_usd=0.4911,
    links={"Weights & Biases": "https://wandb.ai/me/p/runs/r1", "bad": "javascript:alert(1)"},
)
FACTS = CardFacts(
    repository="me/toy",
    kind="adapter",
    method="QLoRA",
    base=Source("meta-llama/Llama-3.1-8B", revision="d04e592"),
    datasets=(
        Source("tatsu-lab/alpaca", "dataset", "abc123", "alpaca"),
        Source("data/toy.jsonl", "dataset", None, "chat_template", local=True),
    ),
    license="llama3.1",
    versions={"axolotl": "0.19.0", "peft": "0.20.0"},
    settings=settings_of(
        {
            "adapter": "qlora", "lora_r": 16, "lora_alpha": 32, "learning_rate": "2e-4",
            "micro_batch_size": 4, "gradient_accumulation_steps": 2, "sequence_len": 2048,
            "sample_packing": True, "num_epochs": 3, "optimizer": "adamw_bnb_8bit", "bf16": "auto",
            "load_in_4bit": True,
        },
        factors={"learning_rate": 0.5},
    ),
    results={"Training loss, last": "1.234", "Evaluation loss, last": "1.456"},
    hardware="1 × NVIDIA A40",
    picture=True,
    task_text="# my notes\nbase_model: meta-llama/Llama-3.1-8B\ndatasets: [{path: a/b}]\n",
    told=TOLD,
)  # fmt: skip


def test_a_card_holds_all_that_is_known_of_a_model() -> None:
    """And parses with the hub's own library."""
    card = ModelCard(model_card(FACTS))
    assert card.data.to_dict() == {
        "base_model": "meta-llama/Llama-3.1-8B",
        "base_model_relation": "adapter",
        "datasets": ["tatsu-lab/alpaca"],
        "license": "llama3.1",
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "tags": ["axolotl", "axolotl-runner", "qlora"],
    }
    for item in (
        "revision `d04e592`",  # of the base model
        "| [tatsu-lab/alpaca](https://huggingface.co/datasets/tatsu-lab/alpaca) | revision `abc",
        "| `data/toy.jsonl` | from a disk | chat_template |",
        "axolotl 0.19.0, peft 0.20.0",
        "| **Method** | QLoRA |",
        "| **LoRA rank** | 16 |",
        "| **Learning rate** | 0.0001 (x0.5 of 0.0002) |",
        "| **Batch** | 8 rows (4 rows × 2 accumulated) |",
        "| **Sequence length** | 2048, packed |",
        "| **Epochs** | 3 |",
        "| **Optimizer** | adamw_bnb_8bit |",
        "| **Precision** | bf16, base model in 4 bits |",
        "| **Training loss, last** | 1.234 |",
        "| **Evaluation loss, last** | 1.456 |",
        f"]({PICTURE})",
        "| 1 | the start | nothing | 1–27 | loss spike at step 27, since step 24: the loss jumped",
        "| 2 | checkpoint 20 | skipping steps 24-28 | 21–40 | completed |",
        "| **Weights & Biases** | <https://wandb.ai/me/p/runs/r1> |",
        "runpod (NVIDIA A40 / SECURE / EU-RO-1), 1.25 h, $0.49",
        "$0.49 up to the upload",
        "1 × NVIDIA A40",
        "`me/configs`",
        f"`{'c' * 40}`",
        "`configs/toy.yml`",
        "```yaml\n# my notes\nbase_model: meta-llama/Llama-3.1-8B\n",
        "AutoPeftModelForCausalLM.from_pretrained('me/toy')",
    ):
        assert item in card.text, item
    assert "javascript" not in card.text


def test_a_local_path_never_stands_where_the_hub_wants_an_id() -> None:
    """H48: neither of the base model nor of a data set; the text says what it was all the same."""
    facts = replace(
        FACTS,
        base=Source("./models/local-llama", local=True),
        datasets=(Source("data/toy.jsonl", "dataset"), Source("json", "dataset")),
        license=None,
    )
    card = ModelCard(model_card(facts))
    assert not {"base_model", "base_model_relation", "datasets", "license"} & {*card.data.to_dict()}
    assert "`./models/local-llama`" in card.text


@pytest.mark.parametrize(
    ("kind", "library", "relation", "words"),
    [
        ("adapter", "peft", "adapter", "An adapter (QLoRA) for"),
        ("merged", "transformers", "finetune", "The adapter alone is in `adapter/`"),
        ("full", "transformers", "finetune", "AutoModelForCausalLM"),
    ],
)
def test_the_kind_of_a_model_decides_how_it_is_loaded(
    kind: str, library: str, relation: str, words: str
) -> None:
    """The hub shows it with its base accordingly."""
    card = ModelCard(model_card(replace(FACTS, kind=kind)))  # type: ignore[arg-type]
    assert card.data.library_name == library
    assert card.data.to_dict()["base_model_relation"] == relation
    assert words in card.text


@pytest.mark.parametrize(
    ("keys", "pipeline"),
    [
        ({}, "text-generation"),
        ({"reward_model": True}, "text-classification"),
        ({"process_reward_model": True}, "token-classification"),
        ({"processor_type": "AutoProcessor"}, "image-text-to-text"),
    ],
)
def test_what_a_model_is_for_follows_from_its_training(
    keys: dict[str, object], pipeline: str
) -> None:
    """How others are loaded nobody is told wrongly."""
    card = ModelCard(model_card(replace(FACTS, pipeline=pipeline_of(keys))))
    assert card.data.pipeline_tag == pipeline
    assert ("from_pretrained" in card.text) == (pipeline == "text-generation")


def test_several_gpus_share_a_batch() -> None:
    """As the last checkpoint says that it was, not as the task file asked."""
    batch = {"micro_batch_size": 2, "gradient_accumulation_steps": 3}
    found = settings_of({"micro_batch_size": 8}, overrides=batch, processes=4)
    assert found["Batch"] == "24 rows (2 rows × 3 accumulated × 4 GPUs)"


def test_a_merge_that_failed_is_said() -> None:
    """Who wanted a merged model sees why this is none."""
    text = model_card(replace(FACTS, merge_failed="axolotl merge-lora ended with code 1: no disk"))
    assert "It was to be merged into its base, which failed: axolotl merge-lora ended" in text


def test_nothing_from_outside_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """H46: no cell, no code block, no tag; and no secret, wherever it comes from."""
    monkeypatch.setenv("HF_TOKEN", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567")
    told = replace(
        TOLD,
        attempts=(
            PastAttempt(1, "crash", reason="| <script> hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"),
        ),
    )
    facts = replace(FACTS, told=told, task_text="a: |\n  ```\n  ````\n  # x\n")
    text = model_card(facts)
    assert r"crash: \| \<script\> [secret HF_TOKEN] |" in text
    assert "`````yaml\na: |\n  ```\n  ````\n  # x\n`````" in text
    assert "hf_AbC" not in text


def test_what_the_parent_tells_survives_its_way_to_the_pod() -> None:
    """As a parameter of a flow run it is plain JSON."""
    assert from_plain(TOLD.plain()) == TOLD
    assert from_plain(None) == Provenance()
