"""RunPod's traps (facts §6) and cases H14, H15, H17, H18, H21–H23, with the fault switched on."""

from __future__ import annotations

import pytest

from blocks.cloud import PodPhase
from runner.errors import (
    ConfigError,
    CreateFailed,
    KeyRefused,
    NoCapacity,
    OutOfFunds,
    PodLost,
    RunnerError,
    TryAgain,
)
from tests.integration.clouds.runpod_rig import A40, A5000, NOON, RTX_3090, order, rented

STRANGE = "a\"b'c`d$e\\f\n{g}; echo 'h' é 日本 # <&>"


# ---------------------------------------------------------------------------------- create


def test_a_pod_is_created_as_ordered() -> None:
    """What was asked for arrives, whatever characters it holds (H18)."""
    with rented() as it:
        asked = order(
            environment={"TOKEN": STRANGE, "EMPTY": ""},
            image="axolotlai/axolotl-cloud:main-py3.11-cu124-2.6.0",
            disk_gb=30,
            volume_gb=40,
            ports=("8888/http", "22/tcp"),
            ssh=True,
            jupyter=True,
        )
        pod = it.cloud.create(asked)
        (made,) = it.pods
        body = it.creates[0]["body"]
    assert made["name"] == pod.name == "axr-1"
    assert made["env"]["TOKEN"] == STRANGE
    assert made["env"]["EMPTY"] == ""
    assert made["env"]["AXR_CLOUD_API"].endswith("/v2")
    assert (made["disk"], made["ports"]) == (30, ["8888/http", "22/tcp"])
    assert made["mounts"]["persistent"] == {"size": 40, "path": "/workspace/data"}
    assert body["gpu"]["minCudaVersion"] == "12.4"
    assert (body["startSsh"], body["startJupyter"]) == (True, True)
    # $0.27 an hour for the GPU, 70 GB at $0.10 a month.
    assert pod.price_per_hour == pytest.approx(0.27 + 70 * 0.1 / 720, abs=1e-4)


def test_the_same_run_never_gets_a_second_pod() -> None:
    """Create looks first."""
    with rented() as it:
        first = it.cloud.create(order())
        assert it.cloud.create(order()) == first
        assert len(it.creates) == 1


@pytest.mark.parametrize("fault", ["create_5xx_after", "create_timeout_after"])
@pytest.mark.parametrize("lag", [0, 12])
def test_a_create_call_that_failed_after_making_the_pod_costs_one_pod(fault: str, lag: int) -> None:
    """H14, R1, R4: it is looked up by its name, also while lists do not show it yet."""
    with rented(**{fault: 1, "visibility_lag": lag}) as it:
        pod = it.cloud.create(order())
        assert [made["id"] for made in it.pods] == [pod.id]
        assert len(it.creates) == 1


def test_an_unclear_create_is_not_followed_by_another_one_at_once() -> None:
    """What is not seen for half a minute may still come; then there are two, and one is ended."""
    with rented(create_5xx_after=1, visibility_lag=45) as it:
        with pytest.raises(CreateFailed):
            it.cloud.create(order())
        assert len(it.creates) == 1
        it.cloud.create(order())  # the task's next try
        it.emulator.advance(60)
        assert len(it.pods) == 2
        pod = it.cloud.create(order())
        assert [made["id"] for made in it.pods] == [pod.id]


def test_a_server_error_that_made_nothing_is_asked_again_by_the_task() -> None:
    """Nothing is left behind."""
    with rented(create_status={"status": 500, "times": 1}) as it:
        with pytest.raises(CreateFailed):
            it.cloud.create(order())
        assert it.pods == []
        it.cloud.create(order())
        assert len(it.pods) == 1


@pytest.mark.parametrize("text", ["standard", "disk", "machine", "spot", "generic"])
def test_the_next_gpu_is_asked_for_when_one_is_full(text: str) -> None:
    """H15, R8: the refusal has many words, all of them a 400."""
    with rented(create_400_capacity={A5000: True, RTX_3090: True}, capacity_text=text) as it:
        pod = it.cloud.create(order(gpus=(A5000, RTX_3090, A40)))
        assert [made["gpu"]["id"] for made in it.pods] == [A40]
        assert pod.place.startswith(A40)


def test_no_capacity_at_all_is_said_with_what_was_tried() -> None:
    """Every candidate is asked once."""
    with rented(create_400_capacity=True) as it:
        with pytest.raises(NoCapacity, match=r"asked for \d+, all full"):
            it.cloud.create(order(gpus=(A5000, RTX_3090), cloud_type="ALL"))
        asked = [
            (call["body"]["gpu"]["id"], call["body"]["cloud"], *call["body"]["dataCenterIds"])
            for call in it.creates
        ]
        assert len(asked) == len(set(asked)) > 4
        assert it.pods == []


def test_stock_that_the_catalog_says_is_gone_is_not_asked_for() -> None:
    """No create call is spent on it."""
    with rented(stock={A5000: {"SECURE": 0}}) as it:
        with pytest.raises(NoCapacity, match="no free machine"):
            it.cloud.create(order())
        assert it.creates == []


def test_a_price_over_the_cap_is_never_paid() -> None:
    """The message says what it would have cost."""
    with rented() as it:
        with pytest.raises(NoCapacity, match=r"max_price_per_hour: 0.2 .*A5000 \(secure\) \$0.29"):
            it.cloud.create(order(max_price_per_hour=0.2))
        assert it.creates == []


def test_the_cheaper_tier_is_asked_first() -> None:
    """`cloud_type: ALL` is two attempts, since RunPod has no such word any more."""
    with rented() as it:
        it.cloud.create(order(cloud_type="ALL"))
        assert [made["cloud"] for made in it.pods] == ["COMMUNITY"]


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, KeyRefused), (402, OutOfFunds), (403, KeyRefused), (422, ConfigError)],
)
def test_what_will_not_change_is_asked_once(status: int, error: type[RunnerError]) -> None:
    """No retry, no other candidate."""
    with rented(create_status=status) as it:
        with pytest.raises(error):
            it.cloud.create(order(gpus=(A5000, A40)))
        assert len(it.creates) == 1


def test_a_rate_limit_is_waited_for_as_long_as_it_says() -> None:
    """The pause is in the error, for the task that tries again."""
    with rented(create_status={"status": 429, "times": 1, "retry_after": 7}) as it:
        with pytest.raises(TryAgain) as busy:
            it.cloud.create(order())
        assert busy.value.after == 7


def test_an_unknown_gpu_is_named_with_those_that_exist() -> None:
    """A wrong name costs nothing."""
    with rented() as it:
        with pytest.raises(ConfigError, match=r"no GPU 'RTX 9999'; it has .*NVIDIA A40"):
            it.cloud.create(order(gpus=("RTX 9999",)))
        assert it.creates == []


def test_a_stopped_pod_of_the_run_is_started_again() -> None:
    """Its volume has the checkpoints."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.advance(1)
        assert it.cloud.client.act(pod.id, "stop")
        assert it.cloud.status(pod).phase is PodPhase.STOPPED
        assert it.cloud.create(order()).id == pod.id
        it.emulator.advance(1)
        assert it.pods[0]["status"] == "RUNNING"


def test_a_stopped_pod_whose_host_is_full_is_replaced() -> None:
    """R9: starting it is refused, so it is ended and another one made."""
    with rented(resume_full=1) as it:
        old = it.cloud.create(order())
        it.emulator.advance(1)
        it.cloud.client.act(old.id, "stop")
        new = it.cloud.create(order())
        assert [made["id"] for made in it.pods] == [new.id]
        assert new.id != old.id


def test_a_pod_that_came_back_without_gpus_is_broken() -> None:
    """R9: it runs, bills, and can train nothing."""
    with rented(zero_gpus=1) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(1)
        it.cloud.client.act(pod.id, "stop")
        it.cloud.create(order())
        it.emulator.advance(5)
        assert it.cloud.status(pod).phase is PodPhase.BROKEN


def test_places_whose_machines_did_not_start_are_passed_over() -> None:
    """The next candidate is another data center."""
    with rented() as it:
        first = it.cloud.create(order(gpus=(RTX_3090,)))
        it.cloud.terminate(first)
        second = it.cloud.create(order(gpus=(RTX_3090,), avoid=frozenset({first.place})))
        assert second.place != first.place


def test_a_pod_goes_where_its_network_volume_lies() -> None:
    """It can be mounted nowhere else; one that does not exist is a mistake in the task file."""
    with rented() as it:
        wanted = {"name": "v", "size": 10, "dataCenter": "CA-MTL-1", "type": "STANDARD"}
        volume = it.post("network-volumes", wanted)["id"]
        it.cloud.create(order(gpus=(A5000, A40), network_volume=volume))
        (made,) = it.pods
        assert (made["gpu"]["id"], made["dataCenterId"]) == (A40, "CA-MTL-1")
        assert made["mounts"]["network"] == [{"volumeId": volume, "path": "/workspace/data"}]
        with pytest.raises(ConfigError, match="no network volume 'vol_none'"):
            it.cloud.create(order("2", network_volume="vol_none"))


# ---------------------------------------------------------------------------------- status


def test_a_pod_is_not_running_before_its_container_says_so() -> None:
    """R5, R6: RunPod says RUNNING while the image is fetched; null and {} are no telemetry."""
    with rented(boot_seconds=5, image_pull_seconds=60, runtime_null_for=30) as it:
        pod = it.cloud.create(order())
        seen = [it.cloud.status(pod).phase]
        for seconds in (6, 61, 31):
            it.emulator.advance(seconds)
            seen.append(it.cloud.status(pod).phase)
    queued, starting, running = PodPhase.QUEUED, PodPhase.STARTING, PodPhase.RUNNING
    assert seen == [queued, starting, starting, running]


def test_missing_telemetry_is_unknown_not_idle() -> None:
    """R15."""
    with rented(telemetry_null=True) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5)
        it.emulator.advance(5)
        status = it.cloud.status(pod)
        assert status.phase is PodPhase.RUNNING
        assert (status.gpu_percent, status.cpu_percent, status.ram_percent) == (None, None, None)


def test_telemetry_is_in_percent() -> None:
    """0 to 100, not fractions."""
    with rented(telemetry={"gpu": 97, "gpu_memory": 41, "cpu": 12, "memory": 33}) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5)
        status = it.cloud.status(pod)
        assert (status.gpu_percent, status.vram_percent) == (97, 41)
        assert (status.cpu_percent, status.ram_percent) == (12, 33)


@pytest.mark.parametrize(
    ("ports", "words"), [((), "@ssh.runpod.io -p 22"), (("22/tcp",), "ssh root@127.0.0.1 -p ")]
)
def test_a_running_pod_shows_the_way_in(ports: tuple[str, ...], words: str) -> None:
    """Its own port where that is open, for only that copies files; nothing before it runs."""
    with rented() as it:
        pod = it.cloud.create(order(ssh=True, ports=ports))
        assert it.cloud.status(pod).ssh is None
        for _ in range(2):
            it.emulator.advance(5)
        assert words in str(it.cloud.status(pod).ssh)


def test_a_new_pod_that_is_not_shown_yet_is_queued_not_lost() -> None:
    """R3."""
    with rented(visibility_lag=10) as it:
        pod = it.cloud.create(order())
        assert it.cloud.status(pod).phase is PodPhase.QUEUED


def test_a_pod_that_its_owner_ended_elsewhere_is_lost() -> None:
    """H23."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.advance(60)
        it.emulator.set(kill_pod=pod.id)
        with pytest.raises(PodLost):
            it.cloud.status(pod)


def test_a_look_that_fails_never_means_that_a_pod_is_gone() -> None:
    """H21: 401 and 5xx are unknown."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.set(status={"path": "/v2/pods/.*", "method": "GET", "status": 503})
        with pytest.raises(TryAgain):
            it.cloud.status(pod)
        it.emulator.set(status={"path": "/v2/pods/.*", "method": "GET", "status": 401})
        with pytest.raises(KeyRefused):
            it.cloud.status(pod)


# ---------------------------------------------------------------------------------- terminate


def test_a_pod_is_gone_when_a_list_says_so() -> None:
    """R3: RunPod may list it for a while; a second time is no error."""
    with rented(delete_lag=20) as it:
        pod = it.cloud.create(order())
        it.cloud.terminate(pod)
        assert it.pods == []
        assert it.cloud.list_ours() == []
        it.cloud.terminate(pod)


def test_a_rate_limit_does_not_save_a_pod() -> None:
    """H22: 429 to the first ten deletes of six runs that end together."""
    with rented(delete_status={"status": 429, "times": 10, "retry_after": 3}) as it:
        for pod in [it.cloud.create(order(str(n))) for n in range(6)]:
            it.cloud.terminate(pod)
        assert it.pods == []
        assert it.emulator.clock.now() - NOON < 120


def test_not_seeing_a_pod_is_not_its_absence() -> None:
    """H21: delete and list are both refused, so nothing is known."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.set(delete_status=401, list_status=401)
        with pytest.raises(KeyRefused):
            it.cloud.terminate(pod)
        it.emulator.set(delete_status={"status": 503, "times": 0}, list_status=503)
        with pytest.raises(TryAgain, match="not confirmed gone"):
            it.cloud.terminate(pod)


def test_pods_of_others_are_neither_listed_nor_touched() -> None:
    """Also over several pages of them."""
    with rented(pages=2) as it:
        for n in range(5):
            body = {"name": f"mine-{n}", "image": "x", "gpu": {"id": A5000, "count": 1}}
            it.cloud.client.create(body)
        ours = [it.cloud.create(order(str(n))) for n in range(3)]
        assert [pod.id for pod in it.cloud.list_ours()] == [pod.id for pod in ours]
        for pod in ours:
            it.cloud.terminate(pod)
        assert sorted(pod["name"] for pod in it.pods) == [f"mine-{n}" for n in range(5)]


def test_the_bill_is_the_price_times_the_time() -> None:
    """The report's sum and RunPod's agree to the cent."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5000)
        it.cloud.terminate(pod)
        assert it.cloud.client.billed(pod.id) == pytest.approx(
            pod.price_per_hour * 5000 / 3600, abs=0.005
        )


@pytest.mark.parametrize("status", [418, 410, 404])
def test_other_refusals_are_one_sentence_without_what_was_sent(status: int) -> None:
    """The body holds secrets."""
    with rented(create_status=status) as it:
        with pytest.raises(RunnerError) as refused:
            it.cloud.create(order(environment={"HF_TOKEN": "hf_secret"}))
        text = str(refused.value)
        assert "hf_secret" not in text
        assert "\n" not in text
