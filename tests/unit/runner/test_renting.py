import pytest

from runner.errors import ConfigError
from runner.gateway import gateway_url
from runner.renting import renting_findings, volume_path
from runner.taskfile import TaskFile, parse_task_file

PUBLIC = {"AXR_GATEWAY_URL": "https://runner.example.com/"}
GOOD = "base_model: x\nhub_model_id: me/x\nrunner:\n  cloud: runpod\n  gpu: NVIDIA A40\n"


def _task(text: str = GOOD) -> TaskFile:
    return parse_task_file(text, "x.yml")


def _found(text: str, environment: dict[str, str] | None = None) -> list[tuple[str, str, int]]:
    task = _task(text)
    findings = renting_findings(
        task, task.settings.cloud, PUBLIC if environment is None else environment
    )
    return [(finding.level, finding.code, finding.line) for finding in findings]


def test_nothing_is_said_of_a_run_on_this_machine() -> None:
    """It needs no gateway and loses no model."""
    assert _found("base_model: x\nrunner: {cloud: local}\n", {}) == []


def test_nothing_is_said_of_a_rented_run_that_has_all_it_needs() -> None:
    """The usual case."""
    assert _found(GOOD) == []


def test_several_counts_of_gpus_are_for_checkpoints_that_can_go_on_with_any() -> None:
    """H39: DeepSpeed's can't; it is said before anything is rented."""
    several = GOOD + "  gpu_count: [4, 2]\n"
    assert _found(several) == []
    assert _found("deepspeed: zero2.json\n" + several) == [("stop", "gpu-count", 7)]
    assert _found("deepspeed: zero2.json\n" + GOOD + "  gpu_count: 4\n") == []


@pytest.mark.parametrize(
    "address",
    ["", "http://127.0.0.1:4280", "http://localhost", "http://[::1]:1", "0.0.0.0:80", "runner"],
)
def test_pods_must_be_able_to_reach_the_gateway(address: str) -> None:
    """No address, or one that only this machine can reach, is stopped with what to do."""
    assert _found(GOOD, {"AXR_GATEWAY_URL": address}) == [("stop", "gateway", 4)]
    with pytest.raises(ConfigError, match=r"AXR_GATEWAY_URL.* down` and `up`"):
        gateway_url("runpod", {"AXR_GATEWAY_URL": address})


def test_an_emulator_on_this_machine_may_use_this_machines_gateway() -> None:
    """Its pods are processes of this machine."""
    emulated = {
        "AXR_RUNPOD_URL": "http://127.0.0.1:9/v2",
        "AXR_GATEWAY_LOCAL": "http://127.0.0.1:4280",
    }
    assert gateway_url("runpod", emulated) == "http://127.0.0.1:4280"
    assert gateway_url("runpod", emulated | PUBLIC) == "https://runner.example.com"
    with pytest.raises(ConfigError):
        gateway_url("vast", emulated)


@pytest.mark.parametrize(
    ("lines", "stopped"),
    [
        ("", True),
        ("  checkpoint_store: volume\n", True),
        ("  checkpoint_store: volume\n  network_volume: vol_1\n", False),
        ("  checkpoint_store: hf://me/ckpt\n", False),
        ("  one_shot: false\n", False),
    ],
)
def test_a_model_must_have_somewhere_to_go(lines: str, stopped: bool) -> None:
    """A rented pod's disk ends with it (no model is lost)."""
    text = "base_model: x\nrunner:\n  cloud: runpod\n  gpu: NVIDIA A40\n" + lines
    codes = [code for level, code, _ in _found(text) if level == "stop"]
    assert codes == (["model-lost"] if stopped else [])


def test_what_runpod_can_not_do_any_more_is_said() -> None:
    """Each key at its line, and the run goes on."""
    text = GOOD + "  spot: true\n  min_download: 500\n"
    assert _found(text) == [("warn", "spot", 6), ("warn", "no-filter", 7)]


def test_a_gpu_must_be_named() -> None:
    """There is no default for other people's money."""
    text = "base_model: x\nhub_model_id: me/x\nrunner: {cloud: runpod}\n"
    assert ("stop", "gpu", 3) in _found(text)


def test_a_volume_never_hides_axolotl_in_its_image() -> None:
    """The proof of concept's files mount at /workspace, where the image now has its Python."""
    task = _task(GOOD + "  volume_mount_path: /workspace/\n")
    assert volume_path(task.settings) == "/workspace/data"
    assert [found.code for found in renting_findings(task, ["runpod"], PUBLIC)] == ["volume-path"]
    other = _task(GOOD + "  volume_mount_path: /workspace\n  image: me/mine\n")
    assert volume_path(other.settings) == "/workspace"
    assert renting_findings(other, ["runpod"], PUBLIC) == []


VAST = GOOD.replace("cloud: runpod", "cloud: vast")


def test_nothing_is_said_of_a_run_on_vast_that_has_all_it_needs() -> None:
    """Vast can choose by what RunPod can't, and makes a bid from the market."""
    wishes = "  spot: true\n  min_vcpu_count: 8\n  min_memory_in_gb: 64\n  min_download: 500\n"
    assert _found(VAST + wishes) == []


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("network_volume: vol_1", ("stop", "network-volume", 6)),
        ("registry: my-login", ("stop", "registry", 6)),
        ("ssh: true", ("warn", "no-access", 6)),
        ("jupyter: true", ("warn", "no-access", 6)),
    ],
)
def test_what_vast_can_not_do_is_said(line: str, finding: tuple[str, str, int]) -> None:
    """At its line."""
    assert _found(f"{VAST}  {line}\n") == [finding]


def test_a_login_of_a_registry_is_vasts_own_form() -> None:
    """Three words without blanks."""
    assert _found(VAST + "  registry: -u me -p token ghcr.io\n") == []


@pytest.mark.parametrize("cloud", ["runpod", "vast"])
def test_the_timers_hold_on_every_cloud(cloud: str) -> None:
    """H16: the guard and the sweep keep them, whatever the provider does with its own."""
    text = GOOD.replace("cloud: runpod", f"cloud: {cloud}")
    assert _found(text + "  stop_after: 900\n  terminate_after: 1800\n") == []
