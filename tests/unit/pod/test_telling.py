from collections.abc import Callable
from typing import Any

import pytest

from pod import telling
from pod.asking import Answer
from pod.telling import tell

POD = {"PREFECT_API_URL": "http://control/api/", "AXR_TOKEN": "t", "AXR_RUN": "run"}
STEPS = [
    {"id": "parent", "work_queue_name": "default"},
    {"id": "train", "work_queue_name": "axr-run"},
    {"id": "prepare", "work_queue_name": "axr-run"},
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    """What the control side was asked; it knows STEPS and takes everything."""
    seen: list[tuple[str, str, Any]] = []

    def ask(method: str, url: str, key: str, body: Any = None, *, timeout: float) -> Answer:
        assert key == "t"
        seen.append((method, url.removeprefix("http://control/api"), body))
        return Answer(200, STEPS) if url.endswith("filter") else Answer(204)

    monkeypatch.setattr(telling, "ask", ask)
    return seen


def test_the_newest_step_of_the_pod_says_it(asked: list[tuple[str, str, Any]]) -> None:
    """Not the run itself: a pod may not write there."""
    assert tell(POD, "axr.only_copy", "x" * 5000)
    assert [path for _, path, _ in asked] == [
        "/flow_runs/filter",
        "/flow_runs/train/labels",
        "/logs/",
    ]
    assert asked[1][2] == {"axr.only_copy": "x" * 1000}
    (line,) = asked[2][2]
    assert (line["level"], line["flow_run_id"]) == (50, "train")


def test_what_is_over_is_taken_back_without_a_word(asked: list[tuple[str, str, Any]]) -> None:
    """The label is emptied."""
    assert tell(POD, "axr.only_copy", "")
    assert [method for method, _, _ in asked] == ["POST", "PATCH"]


@pytest.mark.parametrize(
    "answer",
    [lambda *_, **__: Answer("TimeoutError"), lambda *_, **__: Answer(200, [])],
    ids=["away", "no step yet"],
)
def test_nobody_to_tell_is_no_error(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[..., Answer]
) -> None:
    """H21: the guard goes on."""
    monkeypatch.setattr(telling, "ask", answer)
    assert not tell(POD, "axr.only_copy", "words")
    assert not tell({}, "axr.only_copy", "words")
