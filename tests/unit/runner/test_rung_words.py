"""Words and factors of rungs."""

import pytest

from runner.report import Rung
from runner.rungs import Factors, factors_in_force, scaled, words
from runner.settings import Rung as RungSetting


@pytest.mark.parametrize(
    ("rung", "said"),
    [
        (None, "replay"),
        ({"kind": "replay"}, "replay"),
        ({"kind": "skip", "first": 24, "last": 28}, "skipping steps 24-28"),
        ({"kind": "skip", "first": 24, "last": 24}, "skipping step 24"),
        ({"kind": "scale", "learning_rate": 0.5}, "learning_rate x0.5"),
        (
            {"kind": "scale", "learning_rate": 0.25, "weight_decay": 2.0, "moments": "reset"},
            "learning_rate x0.25, weight_decay x2, moments reset",
        ),
        (
            {"kind": "smaller_batch", "micro_batch_size": 4, "gradient_accumulation_steps": 2},
            "micro_batch_size 4, gradient_accumulation_steps 2",
        ),
        (
            {"kind": "skip", "first": 2, "last": 3, "micro_batch_size": 4,
             "gradient_accumulation_steps": 2},
            "skipping steps 2-3, micro_batch_size 4, gradient_accumulation_steps 2",
        ),
    ],
)  # fmt: skip
def test_a_rung_is_said_in_words(rung: Rung | None, said: str) -> None:
    """One sentence for the notice, the UI and the report."""
    assert words(rung) == said


@pytest.mark.parametrize(
    ("setting", "in_force", "wanted"),
    [
        ({"learning_rate": "x0.5"}, (1.0, 1.0), {"learning_rate": 0.5}),
        ({"learning_rate": "x0.25"}, (0.5, 1.0), {"learning_rate": 0.25}),
        ({"learning_rate": "x0.5"}, (0.5, 1.0), {"learning_rate": 0.25}),
        ({"learning_rate": "x0.5"}, (0.25, 1.0), {"learning_rate": 0.125}),
        ({"weight_decay": "x2"}, (0.5, 1.0), {"learning_rate": 0.5, "weight_decay": 2.0}),
        ({"weight_decay": "x2"}, (1.0, 2.0), {"weight_decay": 4.0}),
        ({"weight_decay": "x4"}, (1.0, 2.0), {"weight_decay": 4.0}),
        ({"moments": "reset"}, (0.5, 1.0), {"learning_rate": 0.5, "moments": "reset"}),
        ({"moments": "keep", "learning_rate": "x0.5"}, (1.0, 1.0), {"learning_rate": 0.5}),
    ],
)
def test_factors_are_absolute_and_never_nothing_new(
    setting: RungSetting, in_force: tuple[float, float], wanted: Rung
) -> None:
    """They count from the task file; one as strong that is in force already comes on top."""
    factors: Factors = {"learning_rate": in_force[0], "weight_decay": in_force[1]}
    assert scaled(setting, factors) == {"kind": "scale", **wanted}


def test_factors_stay_until_a_later_rung_changes_them() -> None:
    """A replay or a skip keeps them."""
    rungs: list[Rung | None] = [
        None,
        {"kind": "scale", "learning_rate": 0.5},
        {"kind": "skip", "first": 1, "last": 2},
    ]
    assert factors_in_force(rungs) == {"learning_rate": 0.5, "weight_decay": 1.0}
    rungs.append({"kind": "scale", "learning_rate": 0.5, "weight_decay": 2.0})
    assert factors_in_force(rungs) == {"learning_rate": 0.5, "weight_decay": 2.0}
    assert factors_in_force([]) == {"learning_rate": 1.0, "weight_decay": 1.0}
