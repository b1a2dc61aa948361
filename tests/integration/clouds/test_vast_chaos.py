"""Whatever Vast does wrong: a run has one instance at most, and at its end none."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from blocks.cloud import Pod
from runner.errors import CreateFailed, RunEnded, TryAgain
from tests.integration.clouds.vast_rig import A40, A5000, RTX_4090, Rented, order, rented

FAULTS: list[dict[str, Any]] = [
    {"create_5xx_after": 1},
    {"create_timeout_after": 1},
    {"create_fails_with_contract": 1},
    {"create_false": 1},
    {"create_status": {"status": 502, "times": 1}},
    {"create_status": {"status": 429, "times": 2}},
    {"list_status": {"status": 503, "times": 2}},
    {"list_status": {"status": 429, "times": 2}},
    {"destroy_status": {"status": 429, "times": 4}},
    {"destroy_status": {"status": 200, "times": 2}},
    {"snatch_probability": 0.4},
    {"snatch": 3},
    {"visibility_lag": 8},
    {"destroy_lag": 15},
    {"missing_404": True},
    {"missing_destroy_200": True},
    {"no_start_date": True},
    {"ignore_cancel_unavail": True},
    {"limit_form": "detail"},
    {"market_price": {A5000: 0.2, A40: 0.3}},
]


def _create(it: Rented, run: str, spot: bool) -> Pod | None:
    """As the task does: some tries, and an end that decides."""
    for _ in range(6):
        try:
            return it.cloud.create(order(run, spot=spot, gpus=(A5000, A40, RTX_4090)))
        except (TryAgain, CreateFailed):
            it.emulator.advance(5)
        except RunEnded:
            return None
    return None


def _of(it: Rented, run: str) -> list[dict[str, Any]]:
    return [pod for pod in it.pods if pod["label"] == f"axr-{run}"]


@pytest.mark.parametrize("seed", range(25))
def test_never_two_instances_never_one_left(seed: int) -> None:
    """A run on a machine that is outbid or lost, with some of Vast's faults at once."""
    dice = random.Random(seed)
    switches: dict[str, Any] = {}
    for fault in dice.sample(FAULTS, 4):
        switches |= {name: dict(v) if isinstance(v, dict) else v for name, v in fault.items()}
    with rented(**switches) as it:
        for _ in range(3):
            pod = _create(it, "1", spot=bool(seed % 3))
            assert len(_of(it, "1")) <= 1, switches
            it.emulator.advance(60)
            if pod and _of(it, "1"):
                blow = "outbid" if _of(it, "1")[0]["is_bid"] else "host_lost"
                it.emulator.set(**{dice.choice([blow, "kill_pod"]): pod.id})
        for _ in range(6):  # teardown: every pod of the run, also an unseen one
            with suppress(TryAgain):
                for left in it.cloud.list_ours():
                    it.cloud.terminate(left)
                break
        assert it.pods == [], switches
        assert it.cloud.list_ours() == []


def test_what_the_account_can_still_spend() -> None:
    """`credit`; Vast's `balance` is something else."""
    with rented() as it:
        assert it.cloud.client.credit() == 100
