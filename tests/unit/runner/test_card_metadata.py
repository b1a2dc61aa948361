"""Which words have the form of an id, and how a card becomes plainer."""

from __future__ import annotations

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from runner.card_metadata import is_hub_id, known_license, plainer, with_metadata


@pytest.mark.parametrize("name", ["gpt2", "meta-llama/Llama-3.1-8B", "a/b.c", "me/_x", "squad_v2"])
def test_ids_of_the_hub(name: str) -> None:
    """The hub's library agrees."""
    assert is_hub_id(name)
    validate_repo_id(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "./models/local-llama", "/data/model", "../x", "~/x", "a/b/c", "data/toy.jsonl",
        "x.json", "json", "parquet", "https://hf.co/a/b", "s3://b/x", "a--b", "a..b", "x.git",
        "é/x", "a b",
    ],
)  # fmt: skip
def test_what_is_no_id_of_the_hub(name: str) -> None:
    """H48: a file, a path, an address, the name of a loader."""
    assert not is_hub_id(name)


def test_the_librarys_own_rule_is_not_wider_than_ours() -> None:
    """Else the library would refuse what we let through."""
    for name in ("-a/b", "a/b-", ".a", "a.", "x" * 97):
        with pytest.raises(HFValidationError):
            validate_repo_id(name)
        assert not is_hub_id(name)


def test_only_known_licences_are_named() -> None:
    """H48: `see file` would cost the commit; `other` needs a name that nobody gave."""
    assert known_license("apache-2.0") == "apache-2.0"
    assert [known_license(x) for x in ("see file", "other", None, ["mit"])] == [None] * 4


def test_a_card_becomes_plainer_step_by_step() -> None:
    """At last it has nothing that could be refused; its text stays."""
    full = with_metadata(
        {"base_model": "a/b", "tags": ["x"], "license": "mit"}, "# Title\n\ntext\n"
    )
    first, least, bare = plainer(full)
    assert first == full
    assert ModelCard(least).data.to_dict() == {"tags": ["x"]}
    assert bare == "# Title\n\ntext\n"
    assert plainer(bare) == [bare]
    assert all("# Title\n\ntext\n" in card for card in (first, least, bare))
