"""Limits around W&B, with a wandb that is a script."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.wandb_open import Opened, bounded, open_wandb


class FakeWandb(ModuleType):
    """Refuses to open in the modes of `refused`."""

    def __init__(self, *refused: str) -> None:
        super().__init__("wandb")
        self.refused = refused
        self.calls: list[str] = []

    def Settings(self, **settings: Any) -> SimpleNamespace:
        return SimpleNamespace(**settings)

    def init(self, settings: SimpleNamespace, **_: Any) -> SimpleNamespace:
        self.calls.append(settings.mode)
        if settings.mode in self.refused:
            raise RuntimeError(f"no {settings.mode}")
        return SimpleNamespace(url="https://wandb.ai/me/toy/runs/x", finish=lambda exit_code: None)

    def teardown(self, exit_code: int) -> None:
        self.calls.append("teardown")


def _with(monkeypatch: pytest.MonkeyPatch, *refused: str) -> FakeWandb:
    fake = FakeWandb(*refused)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_it_is_opened_as_it_was_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Online it has an address."""
    fake = _with(monkeypatch)
    opened = open_wandb({"mode": "shared"})
    assert (opened.mode, opened.trouble, opened.url[:8]) == ("shared", "", "https://")
    assert fake.calls == ["shared"]


def test_what_is_refused_is_written_offline_else_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """H43: each refusal is said, and wandb's service forgets the id before the next try."""
    fake = _with(monkeypatch, "shared", "offline")
    opened = open_wandb({"mode": "shared"})
    assert (opened.mode, opened.url) == ("disabled", "")
    assert opened.trouble == "RuntimeError: no shared; RuntimeError: no offline"
    assert fake.calls == ["shared", "teardown", "offline", "teardown", "disabled"]


def test_a_finish_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """H31: the upload waits for ever; nobody waits for it."""
    for_ever = threading.Event()
    run = SimpleNamespace(finish=lambda exit_code: for_ever.wait())
    assert not Opened(run, "shared").leave(0, within=0.02)
    for_ever.set()


def test_an_error_of_finish_is_no_error_of_the_run() -> None:
    """It is told as not finished."""

    def fail(exit_code: int) -> None:
        raise ConnectionError("gone")

    assert not Opened(SimpleNamespace(finish=fail), "shared").leave(0)


def test_a_bounded_call_passes_on_what_comes_of_it() -> None:
    """A value, an error, or that there was no answer."""
    assert bounded(lambda: 3, 5) == 3
    with pytest.raises(KeyError):
        bounded(lambda: {}["x"], 5)
    never = threading.Event()
    with pytest.raises(TimeoutError):
        bounded(never.wait, 0.01)
    never.set()
