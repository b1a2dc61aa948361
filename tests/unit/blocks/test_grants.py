"""Secrets that a run asks for by name: only what was meant for runs."""

from __future__ import annotations

import pytest

from blocks.grants import granted
from runner import secrets
from runner.secrets import scrub

HERE = {
    "AXR_SECRET_MY_TOKEN": "for-the-runs-1",
    "MY_OTHER": "of-the-control-side",
    "AXR_SECRET_RUNPOD_API_KEY": "rented-out-1",
}
BLOCKS = {"axr-my-block": "of-a-block-12", "axr-my-token": "a-block-comes-second"}


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test teaches, it teaches to itself."""
    monkeypatch.setattr(secrets, "_learnt", {})


def test_a_name_is_filled_in_from_the_environment_or_a_block() -> None:
    """The environment first; what nobody granted is absent, as H18 wants of a null."""
    names = ["MY_TOKEN", "MY_BLOCK", "EMPTY"]
    assert granted(names, HERE, BLOCKS.get) == {
        "MY_TOKEN": "for-the-runs-1",
        "MY_BLOCK": "of-a-block-12",
    }


def test_a_task_file_can_t_reach_for_what_was_not_meant_for_it() -> None:
    """Neither other variables of the control side nor keys of the installation."""
    assert granted(["MY_OTHER", "RUNPOD_API_KEY", "HOME"], HERE, BLOCKS.get) == {}


def test_what_was_granted_is_scrubbed() -> None:
    """Though nothing in its name says that it is a secret."""
    granted(["MY_BLOCK"], HERE, BLOCKS.get)
    assert scrub("uses of-a-block-12", {}) == "uses [secret MY_BLOCK]"


def test_blocks_are_asked_for_only_where_there_is_an_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking would start a server for the moment."""
    monkeypatch.setattr("blocks.grants.PREFECT_API_URL", type("Unset", (), {"value": lambda: None}))
    assert granted(["MY_BLOCK"], {}) == {}
