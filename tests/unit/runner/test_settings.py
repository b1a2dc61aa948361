"""The runner block's settings: defaults, forgiving readers and refusals in sentences."""

import pytest
from pydantic import ValidationError

from pod.spikes import SpikeDetector
from runner.settings import NOTICES, NotifySettings, ResumeSettings, RunnerSettings, rung_factor


def refusal(**values: object) -> str:
    """The one sentence with which these values are refused."""
    with pytest.raises(ValidationError) as caught:
        RunnerSettings.model_validate(values)
    (error,) = caught.value.errors()
    return str(error["msg"])


def test_defaults_rent_nothing_and_have_a_price_limit() -> None:
    """An empty block trains locally, with a price limit, a deadline and three resumptions."""
    settings = RunnerSettings()
    assert settings.cloud == ["local"]
    assert settings.max_price_per_hour == 5.0
    assert settings.max_hours == 24
    assert settings.idle_minutes == 15
    assert settings.budget is None
    assert settings.one_shot
    assert settings.hub_private_repo
    assert not settings.merge
    assert not settings.spot
    assert settings.resume.max_attempts == 3
    assert settings.resume.ladder == ["replay", "skip", {"learning_rate": "x0.5"}]
    assert settings.notify.on == list(NOTICES)


@pytest.mark.parametrize(
    ("key", "written", "read"),
    [
        ("max_hours", "1e1", 10.0),
        ("max_price_per_hour", "2e0", 2.0),
        ("budget", "1_000", 1000.0),
        ("budget", ".5", 0.5),
        ("gpu_count", "2", [2]),
        ("gpu_count", "1e1", [10]),
        ("gpu_count", [4, "2"], [4, 2]),
        ("volume_in_gb", 0, 0),
        ("stop_after", "-1", -1),
        ("terminate_after", 86400, 86400),
        ("cloud", "runpod", ["runpod"]),
        ("cloud", ["runpod", "vast"], ["runpod", "vast"]),
        ("gpu", "NVIDIA A100 80GB PCIe", ["NVIDIA A100 80GB PCIe"]),
        ("gpu", 4090, ["4090"]),
        ("gpu", "Auto", ["auto"]),
        ("gpu", ["auto"], ["auto"]),
        ("cloud_type", "secure", "SECURE"),
        ("checkpoint_store", "hf://me/run-ckpt", "hf://me/run-ckpt"),
        ("checkpoint_store", "volume", "volume"),
        ("one_shot", "false", False),
        ("deepspeed", True, True),
        ("deepspeed", "zero2.json", "zero2.json"),
        ("callbacks", "mine.Callback", ["mine.Callback"]),
    ],
)
def test_values_are_read_as_they_are_meant(key: str, written: object, read: object) -> None:
    """Numbers may be text (H01), and one word stands for a list of one."""
    assert getattr(RunnerSettings.model_validate({key: written}), key) == read


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("max_hours", "abc", "expected a number above 0, found 'abc'"),
        ("max_hours", 0, "expected a number above 0, found 0"),
        ("max_hours", float("inf"), "expected a number above 0, found inf"),
        ("max_hours", "1:30", "expected a number above 0, found '1:30'"),
        ("max_hours", True, "expected a number above 0, found true"),
        ("max_price_per_hour", "-1", "expected a number above 0, found -1"),
        ("max_price_per_hour", None, "expected a number above 0, found nothing"),
        ("budget", "1__0", "expected a number above 0, found 1__0"),
        (
            "budget",
            10**400,
            "expected a number above 0, found 1000000000000000000000000000000000000000",
        ),
        ("gpu_count", 1.5, "expected a whole number of at least 1, found 1.5"),
        ("gpu_count", [], "expected a whole number or a list of them, found an empty list"),
        ("gpu_count", [4, 0], "expected a whole number of at least 1, found 0"),
        ("stop_after", -2, "expected a whole number of at least 1 (or -1), found -2"),
        ("cloud", [], "expected text or a list of texts, found an empty list"),
        ("cloud", "vst", "expected runpod | vast | local (did you mean vast?), found 'vst'"),
        ("gpu", {"name": "x"}, "expected text or a list of texts, found a mapping"),
        ("gpu", [""], "expected text, found ''"),
        ("gpu", ["auto", "NVIDIA A40"], "expected auto alone, or names of GPUs, found a list"),
        ("spot", "yes", "expected true or false, found 'yes'"),
        ("checkpoint_store", "me/run", "expected hf://user/repository, s3://bucket/path or volume"),
        ("volume_mount_path", "data", "expected an absolute path such as /workspace, found 'data'"),
        ("callbacks", "Callback", "expected a class as module.Class, found 'Callback'"),
        ("env", {"A-B": "x"}, "expected a variable name of letters, digits and _, found 'A-B'"),
        ("env", {"A": ["x"]}, "expected text, a number, true, false or null, found a list"),
        ("env", {"A": "x\0y"}, "expected text without NUL bytes"),
        ("resume", {"max_attempts": 0}, "expected a whole number of at least 1, found 0"),
        ("resume", {"ladder": ["retry"]}, "expected replay | skip | {learning_rate: x0.5, weight"),
        ("resume", {"ladder": [{"lr": "x0.5"}]}, "expected replay | skip | {learning_rate: x0.5"),
        ("resume", {"ladder": [{}]}, "expected replay | skip | {learning_rate: x0.5, weight_"),
        ("resume", {"ladder": [{"moments": "new"}]}, "expected keep | reset, found 'new'"),
        ("resume", {"warm_seconds": -1}, "expected a whole number of at least 0, found -1"),
        ("resume", {"hang_minutes": 0}, "expected a number above 0 (or -1), found 0"),
        ("resume", {"hang_minutes": -2}, "expected a number above 0 (or -1), found -2"),
        ("resume", {"ladder": [{"learning_rate": 0.5}]}, "expected a factor such as x0.5"),
        ("resume", {"ladder": [{"learning_rate": "x0"}]}, "expected a factor such as x0.5"),
        ("spike", {"patience": "abc"}, "expected a whole number of at least 1, found 'abc'"),
        ("notify", {"on": ["crashed"]}, "expected started | spike | resumed | idle | budget"),
    ],
)
def test_wrong_values_are_refused_in_a_sentence(key: str, value: object, sentence: str) -> None:
    """Each refusal says what was expected and what was found."""
    assert refusal(**{key: value}).startswith(sentence)


def test_unknown_keys_are_refused() -> None:
    """A typo must not mean a default, in no block (H04)."""
    assert "Extra inputs" in refusal(max_pric_per_hour=1)
    assert "Extra inputs" in refusal(spike={"patient": 1})


def test_settings_are_frozen() -> None:
    """A run's settings don't change under way."""
    with pytest.raises(ValidationError):
        RunnerSettings().max_hours = 1


def test_environment_values_stay_byte_for_byte() -> None:
    """Quotes, newlines and backslashes pass; truth values become words; null stays absent (H18)."""
    written = {"NOTE": 'say "hi"', "MULTI": "a\nb", "WIN": r"C:\new", "NONE": None, "FLAG": True}
    read = RunnerSettings.model_validate({"env": {**written, "N": 3}}).env
    assert read == {**written, "FLAG": "true", "N": "3"}


def test_environment_is_not_shown() -> None:
    """A settings object in a log line tells no secret."""
    assert "hf_secret" not in repr(RunnerSettings(env={"TOKEN": "hf_secret"}))


@pytest.mark.parametrize("word", ["INTERRUPTABLE", "interruptable", "INTERRUPTIBLE"])
def test_interruptable_pod_type_means_spot(word: str) -> None:
    """The proof of concept's pod_type is another word for spot."""
    assert RunnerSettings.model_validate({"pod_type": word}).spot


def test_pod_type_and_spot_must_agree() -> None:
    """A contradiction is refused rather than decided."""
    assert refusal(pod_type="INTERRUPTABLE", spot=False).startswith("expected spot: true")


def test_blocks_can_be_switched_by_a_truth_value() -> None:
    """`spike: false` and `resume: false` switch the whole block off."""
    settings = RunnerSettings.model_validate({"spike": False, "resume": False})
    assert not settings.spike.enabled
    assert not settings.resume.enabled


def test_detector_gets_only_what_was_set() -> None:
    """What the file leaves out keeps the detector's own default."""
    assert RunnerSettings().spike.detector_arguments() == {}
    written = {"threshold": "5e0", "patience": 2, "strict_grad_norm": True}
    arguments = RunnerSettings.model_validate({"spike": written}).spike.detector_arguments()
    assert arguments == {"threshold": 5.0, "patience": 2, "strict_grad_norm": True}


def test_detector_knows_every_argument() -> None:
    """Each spike setting is a keyword of the detector, under the same name."""
    values = {"sensitivity": 1, "patience": 2, "warmup": 3, "strict_grad_norm": False}
    values |= {"threshold": 4, "threshold_patience": 5}
    spike = RunnerSettings.model_validate({"spike": values}).spike
    SpikeDetector(**spike.detector_arguments())  # type: ignore[arg-type]
    assert spike.detector_arguments() == values
    assert set(type(spike).model_fields) == {"enabled", *values}


@pytest.mark.parametrize(
    ("written", "rung", "rate", "decay"),
    [
        ("replay", "replay", 1.0, 1.0),
        ("skip", "skip", 1.0, 1.0),
        ({"learning_rate": "x0.50"}, {"learning_rate": "x0.5"}, 0.5, 1.0),
        ({"learning_rate": "x1e-1"}, {"learning_rate": "x0.1"}, 0.1, 1.0),
        ({"weight_decay": "x2"}, {"weight_decay": "x2"}, 1.0, 2.0),
        ({"moments": "reset"}, {"moments": "reset"}, 1.0, 1.0),
        (
            {"moments": "reset", "weight_decay": "x2", "learning_rate": "x0.5"},
            {"learning_rate": "x0.5", "weight_decay": "x2", "moments": "reset"},
            0.5,
            2.0,
        ),
    ],
)
def test_rungs_have_one_spelling_and_factors(
    written: object, rung: object, rate: float, decay: float
) -> None:
    """A ladder may also be a single rung, and a rung may change several things."""
    (read,) = ResumeSettings.model_validate({"ladder": written}).ladder
    assert read == rung
    assert rung_factor(read) == rate
    assert rung_factor(read, "weight_decay") == decay


def test_waiting_for_the_next_attempt_can_be_switched_off() -> None:
    """A waiting trainer is billed; 0 means a new process for each attempt."""
    assert ResumeSettings().warm_seconds == 300
    assert ResumeSettings.model_validate({"warm_seconds": "0"}).warm_seconds == 0


def test_notify_takes_one_event() -> None:
    """`on: failed` is a list of one."""
    assert NotifySettings.model_validate({"on": "failed"}).on == ["failed"]


@pytest.mark.parametrize(("written", "read"), [(-1, -1.0), ("0.5", 0.5), (90, 90.0)])
def test_the_limit_of_a_hang_may_be_given_or_lifted(written: object, read: float) -> None:
    """In minutes; by default it is learned."""
    assert ResumeSettings().hang_minutes is None
    assert ResumeSettings.model_validate({"hang_minutes": written}).hang_minutes == read
