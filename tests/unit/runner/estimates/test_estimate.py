from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.estimates.estimate import Estimate, estimate
from runner.estimates.fitting import Fit
from runner.estimates.model import Model
from runner.estimates.telling import as_json, estimate_findings, lines, money, time
from runner.taskfile import TaskFile, parse_task_file
from tests.unit.runner.estimates.published import LLAMA_70B, MISTRAL

RUN = """base_model: mistralai/Mistral-7B-v0.1
adapter: lora
lora_r: 16
bf16: auto
sequence_len: 2048
sample_packing: true
gradient_checkpointing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 1200
hub_model_id: me/x
runner:
  cloud: runpod
"""


def _task(lines: str) -> TaskFile:
    return parse_task_file(RUN + lines, "x.yml")


def _estimate(
    task: TaskFile, model: Model | None = MISTRAL, prices: dict[str, float] | None = None
) -> Estimate:
    def ask(gpus: Sequence[str]) -> dict[str, float] | None:
        return None if prices is None else {gpu: prices[gpu] for gpu in gpus if gpu in prices}

    return estimate(task.axolotl, task.settings, model, unknown="it is gated", ask=ask)


def _found(task: TaskFile, model: Model | None = MISTRAL) -> list[tuple[str, str, str]]:
    findings = estimate_findings(task, _estimate(task, model), task.settings.cloud)
    return [(each.level, each.code, each.key) for each in findings]


def test_a_line_says_need_choice_steps_time_and_cost_and_the_next_what_they_rest_on() -> None:
    """For people."""
    told = lines(_estimate(_task("  gpu: NVIDIA A40\n"), prices={"NVIDIA A40": 0.42}))
    first, second = told
    assert first.startswith("needs about 18 GiB of VRAM (weights 13.6, ")
    assert "GB of disk (model 14.5, 5 checkpoints" in first
    assert " · fits NVIDIA A40 · 1,200 steps, " in first
    assert " h, $" in first
    assert "20 % more or less" in second
    assert "25% to 50% of the GPU's bf16 rate" in second
    assert "list price" not in second


def test_auto_takes_the_cheapest_that_fits_at_the_clouds_prices() -> None:
    """What is too small, too dear or not to be had is not taken, however cheap."""
    prices = {"NVIDIA RTX A4000": 0.1, "NVIDIA L40S": 0.9, "NVIDIA A40": 1.0, "NVIDIA H200": 4.9,
              "NVIDIA B200": 6.0}  # fmt: skip
    found = _estimate(_task("  gpu: auto\n"), prices=prices)
    assert [each.name for each in found.choices] == ["NVIDIA L40S", "NVIDIA A40", "NVIDIA H200"]
    assert found.best is not None
    assert (found.best.name, found.best.fit, found.best.asked) == ("NVIDIA L40S", Fit.YES, True)


def test_auto_goes_by_list_prices_where_no_cloud_is_asked_and_says_so() -> None:
    """As at a pull request, where nobody's key is."""
    found = _estimate(_task("  gpu: auto\n"))
    assert found.best is not None
    assert not found.best.asked
    assert "price: a list price of 2025; no cloud was asked" in found.notes


def test_what_the_cloud_does_not_have_has_no_price() -> None:
    """It was asked: a list price would be a guess."""
    (choice,) = _estimate(_task("  gpu: NVIDIA A40\n"), prices={}).choices
    assert (choice.price, choice.dollars) == (None, None)


def test_a_model_that_can_not_be_read_leaves_the_steps_and_says_why() -> None:
    """Nothing is made up."""
    told = lines(_estimate(_task("  gpu: NVIDIA A40\n"), None))
    assert told[0] == "VRAM and disk are unknown: it is gated · on NVIDIA A40 · 1,200 steps"


def test_the_estimate_as_data_is_plain_json() -> None:
    """null is unknown."""
    found = json.loads(json.dumps(as_json(_estimate(_task("  gpu: NVIDIA A40\n")))))
    assert found["vram_gib"]["total"] == pytest.approx(18, abs=1)
    assert found["vram_gib"]["weights"] == pytest.approx(13.6, abs=0.1)
    assert (found["gpu"], found["steps"], found["method"]) == ("NVIDIA A40", 1200, "lora")
    assert found["hours"][0] < found["hours"][1]
    unknown = as_json(_estimate(_task("  gpu: auto\n"), None))
    assert unknown["vram_gib"] is unknown["gpu"] is unknown["hours"] is unknown["dollars"] is None
    assert unknown["unknown"] == "it is gated"


@pytest.mark.parametrize(
    ("gpu", "model", "found"),
    [
        ("NVIDIA A40", MISTRAL, []),
        ("NVIDIA RTX A4000", MISTRAL, [("warn", "vram", "gpu")]),
        ("[NVIDIA RTX A4000, NVIDIA A40]", MISTRAL, [("warn", "vram", "gpu")]),
        ("[NVIDIA RTX A4000, NVIDIA A40]", None, []),
        ("Quantum X", MISTRAL, []),
        ("auto", MISTRAL, []),
        ("auto", None, [("warn", "gpu-auto", "gpu")]),
    ],
)
def test_a_gpu_that_is_likely_too_small_is_warned_about(
    gpu: str, model: Model | None, found: list[tuple[str, str, str]]
) -> None:
    """An estimate may be wrong, so it stops nothing."""
    assert _found(_task(f"  gpu: {gpu}\n"), model) == found


def test_only_a_gpu_without_room_for_the_weights_alone_is_a_stop() -> None:
    """That is sure: 129 GiB don't fit into 45. One of the list with room for them is enough."""
    big = "  volume_in_gb: 500\n"
    assert _found(_task(f"  gpu: NVIDIA A40\n{big}"), LLAMA_70B) == [("stop", "vram", "gpu")]
    both = _found(_task(f"  gpu: [NVIDIA A40, NVIDIA H200]\n{big}"), LLAMA_70B)
    assert {level for level, _, _ in both} == {"warn"}
    auto = _found(_task(f"  gpu: auto\n{big}"), LLAMA_70B)
    assert auto == [("stop", "gpu-auto", "gpu")]


def test_a_volume_that_is_too_small_is_warned_about() -> None:
    """H41: model, checkpoints and the rest, against what is rented; not on this machine."""
    task = _task("  gpu: NVIDIA A40\n  volume_in_gb: 15\n")
    assert _found(task) == [("warn", "disk", "volume_in_gb")]
    (finding,) = estimate_findings(task, _estimate(task), ["runpod"])
    assert "volume_in_gb: 15 is likely too small: the run needs about 19 GB" in finding.message
    assert finding.line == 15
    assert estimate_findings(task, _estimate(task), ["local"]) == []


def test_rows_of_local_data_make_steps(tmp_path: Path) -> None:
    """Files beside the task file."""
    (tmp_path / "d.jsonl").write_text('{"text": "x"}\n' * 80)
    text = "base_model: x\ndatasets: [{path: d.jsonl, type: completion}]\nnum_epochs: 2\n"
    task = parse_task_file(text, "x.yml")
    found = estimate(task.axolotl, task.settings, None, folders=[tmp_path])
    assert found.steps.count == 160


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ((0.1, 0.5), "6–30 min"),
        ((0.5, 1.5), "0.5–1.5 h"),
        ((9.6, 40), "9.6–40 h"),
        ((2, 2), "2.0 h"),
    ],
)
def test_spans_of_time_are_as_precise_as_they_deserve(
    span: tuple[float, float], words: str
) -> None:
    """Two digits."""
    assert time(span) == words


def test_money_is_said_as_a_span() -> None:
    """From best to worst."""
    assert money((1.5, 3.04)) == "$1.5–3.0"
