from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from blocks.cloud import PodOrder
from runner.errors import ConfigError, NoCapacity, TryAgain
from runner.estimates.model import HubAway, UnknownModel
from runner.taskfile import parse_task_file
from tasks import choosing
from tasks.choosing import with_gpus
from tasks.run import Order, Run
from tests.unit.runner.estimates.published import MISTRAL

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("run", "x.yml", None, BEGAN)
PRICES = {"NVIDIA L40S": 0.9, "NVIDIA A40": 0.4, "NVIDIA RTX A4000": 0.1}
LORA = "adapter: lora\nbf16: true\ngradient_checkpointing: true\n"


class Market:
    """A cloud with prices, which counts how often it is asked."""

    def __init__(self, prices: Mapping[str, float]) -> None:
        self.known = prices
        self.asked: list[PodOrder] = []

    def prices(self, order: PodOrder) -> dict[str, float]:
        """Of the GPUs of the order."""
        self.asked.append(order)
        return {gpu: self.known[gpu] for gpu in order.gpus if gpu in self.known}


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The run's labels, in a dictionary."""
    kept: dict[str, str] = {}
    monkeypatch.setattr(choosing, "recall", lambda run: dict(kept))
    monkeypatch.setattr(choosing, "remember", lambda run, facts: kept.update(facts))
    monkeypatch.setattr(choosing, "model_of_run", lambda run, task: MISTRAL)
    return kept


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> Market:
    """The only cloud."""
    made = Market(PRICES)
    monkeypatch.setattr(choosing, "cloud_named", lambda name: made)
    return made


def _order(gpu: str = "auto", keys: str = LORA) -> Order:
    text = f"base_model: x\n{keys}runner: {{cloud: runpod, gpu: {gpu}}}\n"
    return Order(parse_task_file(text, "x.yml"), ("runpod",))


def _gpus(order: Order, cloud: str = "runpod") -> tuple[str, ...]:
    return with_gpus(RUN, order, PodOrder("run", {}, BEGAN), cloud).gpus


def test_named_gpus_are_asked_for_as_they_are_named(labels: dict[str, str], market: Market) -> None:
    """In the user's order, whatever they cost; nobody is asked."""
    order = _order("[NVIDIA L40S, NVIDIA A40]")
    assert _gpus(order) == ("NVIDIA L40S", "NVIDIA A40")
    assert (market.asked, labels) == ([], {})


def test_auto_is_the_cheapest_gpus_with_room(labels: dict[str, str], market: Market) -> None:
    """16 GB are too few for 7 billion weights in 16 bit."""
    assert _gpus(_order()) == ("NVIDIA A40", "NVIDIA L40S")
    assert "NVIDIA RTX A4000" not in market.asked[0].gpus


def test_a_revived_parent_asks_for_the_same_list(labels: dict[str, str], market: Market) -> None:
    """It is written down, for each cloud: prices that change meanwhile change nothing."""
    first = _gpus(_order())
    market.known = {"NVIDIA L40S": 0.1}
    assert _gpus(_order()) == first
    assert len(market.asked) == 1
    assert json.loads(labels["gpus.runpod"]) == list(first)
    assert "gpus.vast" not in labels


def test_on_vast_the_list_goes_on_with_what_is_not_on_offer_now(
    labels: dict[str, str], market: Market
) -> None:
    """A preempted run finds another market."""
    found = _gpus(_order(), "vast")
    assert found[:2] == ("NVIDIA A40", "NVIDIA L40S")
    assert "NVIDIA RTX A6000" in found
    assert len(set(found)) == len(found)


def test_this_machine_has_the_gpus_that_it_has(labels: dict[str, str], market: Market) -> None:
    """Nobody is asked."""
    assert _gpus(_order(), "local") == ()
    assert market.asked == []


@pytest.mark.parametrize(
    ("problem", "raised"),
    [(HubAway("503"), TryAgain), (UnknownModel("it is gated"), ConfigError)],
)
def test_without_the_models_size_nothing_is_chosen(
    labels: dict[str, str],
    market: Market,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    raised: type[Exception],
) -> None:
    """A hub that is away is waited for; a model that can't be read ends the run, with why."""

    def unknown(run: Run, task: object) -> None:
        raise problem

    monkeypatch.setattr(choosing, "model_of_run", unknown)
    with pytest.raises(raised, match=str(problem)):
        _gpus(_order())
    assert labels == {}


def test_no_gpu_with_room_within_the_price_is_no_capacity(
    labels: dict[str, str], market: Market
) -> None:
    """Another cloud may have one, so it is not written down."""
    market.known = {}
    with pytest.raises(NoCapacity, match=r"runpod has no GPU for about \d+ GiB of VRAM"):
        _gpus(_order())
    assert labels == {}
