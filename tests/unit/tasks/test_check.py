"""What a run is told of the accounts that it will be billed to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from blocks.account import Balance
from runner.errors import KeyRefused
from runner.taskfile import parse_task_file
from tasks import check
from tasks.run import Order


class Account:
    """An account with so much left."""

    def __init__(self, answer: Balance | Exception) -> None:
        self.answer = answer

    def balance(self) -> Balance:
        """What is left."""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Any:
    """Asks all accounts and returns what was said."""
    monkeypatch.setattr(check, "get_run_logger", lambda: logging.getLogger("check"))
    caplog.set_level(logging.INFO, "check")

    def ask(**accounts: Account | None) -> list[str]:
        monkeypatch.setattr(check, "ACCOUNTS", {n: lambda a=a: a for n, a in accounts.items()})
        order = Order(parse_task_file("base_model: x\n", "x.yml"), (*accounts, "local"))
        caplog.clear()
        for cloud in order.clouds:
            check._say_balance(cloud, order)
        return [record.getMessage() for record in caplog.records]

    return ask


def test_each_account_is_told_alike(said: Any) -> None:
    """What is left, and a warning where it won't last an hour; nothing of a cloud without one."""
    poor, rich = Account(Balance(7.0, 2.5)), Account(Balance(100.0, 2.5))
    assert said(runpod=rich, vast=poor) == [
        "runpod account: $100.00 left",
        "vast account: $7.00 left",
        "vast account: $7.00 left, $2.50 per hour are spent already: it may not last an hour at "
        "max_price_per_hour: 5",
    ]
    assert said(runpod=None, vast=None) == []


def test_an_account_that_says_nothing_stops_no_run(said: Any) -> None:
    """The next cloud of the list may do."""
    assert said(vast=Account(KeyRefused("Vast refuses the API key"))) == [
        "Vast refuses the API key"
    ]
