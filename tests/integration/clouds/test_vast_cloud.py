"""Vast's traps (facts §10) and cases H14, H15, H17–H19, H21–H23, with the fault switched on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from blocks.account import Balance
from blocks.cloud import Pod, PodPhase
from blocks.vast.account import VastAccount
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
from tasks import standing, waiting
from tasks.spending import cost_of, cost_so_far
from tasks.waiting import wait_until_ready
from tests.emulators.testing import until
from tests.integration.clouds.vast_rig import A40, A5000, RTX_3090, RTX_4090, Rented, order, rented

STRANGE = "a\"b'c`d$e\\f\n{g}; echo 'h' é 日本 # <&>"


def alone(it: Rented, pod_id: str) -> bool:
    """Whether this is the only instance that lives."""
    return [str(made["id"]) for made in it.pods] == [pod_id]


# ---------------------------------------------------------------------------------- create


def test_a_pod_is_created_as_ordered() -> None:
    """What was asked for arrives, whatever characters it holds (H18)."""
    with rented() as it:
        asked = order(
            environment={"TOKEN": STRANGE, "EMPTY": ""},
            start_script=f"cat <<'END'\n{STRANGE}\nEND\nsleep 60",
            ports=("8888/http", "22/tcp"),
            disk_gb=30,
            volume_gb=40,
        )
        pod = it.cloud.create(asked)
        (made,) = it.pods
        it.emulator.advance(1)
        until(lambda: it.emulator.lines(pod.id))
        assert "\n".join(it.emulator.lines(pod.id)) == STRANGE
    assert made["label"] == pod.name == "axr-1"
    assert (made["env"]["TOKEN"], made["env"]["EMPTY"]) == (STRANGE, "")
    assert made["env"]["AXR_CLOUD_API"] == f"{it.emulator.url}/api/v0"
    assert (made["disk_space"], made["image_runtype"], made["is_bid"]) == (70, "args", False)
    assert ["-p 8888:8888", "1"] in made["extra_env"]
    # $0.19 an hour for the GPU; 70 GB at $0.15 a month.
    assert pod.price_per_hour == pytest.approx(0.22 + 70 * 0.15 / 720, abs=1e-4)
    assert pod.created.timestamp() == made["start_date"]


def test_the_same_run_never_gets_a_second_pod() -> None:
    """Create looks first, and by then a new one is listed (V6, V17)."""
    with rented(visibility_lag=12) as it:
        first = it.cloud.create(order())
        assert it.cloud.create(order()) == first
        assert len(it.creates) == 1


@pytest.mark.parametrize("fault", ["create_5xx_after", "create_timeout_after"])
@pytest.mark.parametrize("lag", [0, 12])
def test_a_create_call_that_failed_after_renting_costs_one_pod(fault: str, lag: int) -> None:
    """H14, V1: the SDK does not send it again, the pod is found by its label."""
    with rented(**{fault: 1, "visibility_lag": lag}) as it:
        pod = it.cloud.create(order())
        assert alone(it, pod.id)
        assert len(it.creates) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_the_sdk_does_not_send_a_create_call_again(status: int) -> None:
    """V1: with its own retries this would be three."""
    with rented(create_5xx_after=3, create_5xx=status) as it:
        it.cloud.create(order())
        assert len(it.creates) == len(it.pods) == 1


def test_an_unclear_create_is_not_followed_by_another_one_at_once() -> None:
    """What is not seen for half a minute may still come; then there are two, and one is ended."""
    with rented(create_5xx_after=1, visibility_lag=45) as it:
        with pytest.raises(CreateFailed):
            it.cloud.create(order())
        assert len(it.creates) == 1
        it.cloud.create(order())  # the task's next try
        it.emulator.advance(60)
        pod = it.cloud.create(order())
        assert alone(it, pod.id)


def test_what_a_refused_create_call_left_behind_is_destroyed() -> None:
    """H19, V2: 400 with new_contract."""
    with rented(create_fails_with_contract=1) as it:
        with pytest.raises(ConfigError, match="failed to start"):
            it.cloud.create(order())
        assert (it.pods, len(it.gone)) == ([], 1)


@pytest.mark.parametrize("low_bid", ["leaves", "waits", "refused", None])
def test_a_bid_that_no_longer_wins_leaves_nothing(low_bid: str | None) -> None:
    """H19, V2: the market moves between search and rent, and Vast may not heed cancel_unavail. The
    next bid is made from what a new search says.
    """
    with rented(low_bid=low_bid or "leaves", ignore_cancel_unavail=low_bid is not None) as it:
        client, search = it.cloud.client, it.cloud.client.offers

        def moving(*args: Any, **options: Any) -> list[dict[str, Any]]:
            found = search(*args, **options)
            it.emulator.set(market_price={A5000: 0.15})
            return found

        setattr(client, "offers", moving)  # noqa: B010
        pod = it.cloud.create(order(spot=True))
        assert alone(it, pod.id)
        assert it.pods[0]["bid"] == pytest.approx(0.15 * 1.2)
        assert len(it.creates) == 2
        it.emulator.advance(5)
        assert it.cloud.status(pod).phase is PodPhase.RUNNING


def test_an_offer_that_a_tenant_took_is_passed_over() -> None:
    """H15, V3: a 400 that says so; the other machines are asked."""
    with rented(snatch={A5000: 2}) as it:
        pod = it.cloud.create(order(gpus=(A5000, A40)))
        assert len(it.creates) == 3
        assert alone(it, pod.id)


@pytest.mark.parametrize("status", [400, 404, 410])
def test_a_gone_offer_is_known_by_its_words(status: int) -> None:
    """V3: the published status, the live one and the third."""
    with rented(snatch=1, gone_status=status) as it:
        assert alone(it, it.cloud.create(order()).id)


def test_the_market_is_looked_at_again_after_some_misses() -> None:
    """Its first answer is old by then."""
    with rented(snatch=6) as it:
        it.cloud.create(order(gpus=(RTX_4090,)))
        assert len(it.calls("POST", "bundles")) == 2
        asked = [call["path"] for call in it.creates]
        assert len(asked) == len(set(asked)) == 7


def test_no_capacity_at_all_is_said_with_what_was_tried() -> None:
    """Every offer is asked for once, and not for ever."""
    with rented(snatch=True) as it:
        with pytest.raises(
            NoCapacity, match=r"\d+ offers were tried, all taken; the last: .*no_such"
        ):
            it.cloud.create(order(gpus=(RTX_4090,)))
        assert it.pods == []


def test_nothing_that_fits_is_said_without_a_create_call() -> None:
    """The filters are Vast's."""
    with rented() as it:
        with pytest.raises(NoCapacity, match="no offer for 8 × RTX A5000"):
            it.cloud.create(order(gpu_count=8))
        assert it.creates == []


def test_a_price_over_the_cap_is_never_paid() -> None:
    """V14: the whole machine with its storage; the message says what it would have cost."""
    with rented() as it:
        with pytest.raises(NoCapacity, match=r"max_price_per_hour: 0.2 .*RTX A5000 \$0.23"):
            it.cloud.create(order(max_price_per_hour=0.2))
        assert it.creates == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"status": 401, "detail": "Invalid user key"}, KeyRefused),
        ({"status": 401, "detail": "Two Factor Authentication"}, KeyRefused),
        ({"status": 403}, KeyRefused),
        ({"status": 400, "detail": "Your account lacks credit; see billing"}, OutOfFunds),
        ({"status": 411, "detail": "Insufficient credit"}, OutOfFunds),
        ({"status": 200, "detail": "Your account lacks credit"}, OutOfFunds),
        ({"status": 400, "detail": "Invalid args: image"}, ConfigError),
    ],
)
def test_what_will_not_change_is_asked_once(
    answer: dict[str, object], error: type[RunnerError]
) -> None:
    """No retry, no other offer; HTTP 200 with success false is a refusal too."""
    with rented(create_status=dict(answer)) as it:
        with pytest.raises(error):
            it.cloud.create(order(gpus=(A5000, A40)))
        assert (len(it.creates), it.pods) == (1, [])


def test_a_success_that_is_none_is_looked_up() -> None:
    """HTTP 200, success false, no reason: nothing is decided, and nothing was made."""
    with rented(create_false=1) as it:
        with pytest.raises(CreateFailed, match="success: false"):
            it.cloud.create(order())
        assert it.pods == []
        assert alone(it, it.cloud.create(order()).id)


@pytest.mark.parametrize("form", ["text", "detail", "json"])
def test_a_rate_limit_is_waited_for(form: str) -> None:
    """Whatever it looks like; another process of this account may have called just before."""
    with rented(limit_form=form) as it:
        it.cloud.find("0")
        with it.owner() as owner:
            owner.put("/asks/1/", json={"client_id": "me", "image": "x"})
            owner.get("/instances/")
        assert alone(it, it.cloud.create(order()).id)
        assert 429 in [call["status"] for call in it.creates]


def test_our_own_calls_keep_the_least_time_between_them() -> None:
    """So Vast never has to refuse them."""
    with rented() as it:
        for run in ("1", "2", "3"):
            it.cloud.create(order(run))
        for pod in it.cloud.list_ours():
            it.cloud.status(pod)
            it.cloud.terminate(pod)
        assert 429 not in [call["status"] for call in it.emulator.state["requests"]]


def test_a_used_up_search_quota_lets_the_next_cloud_have_the_run() -> None:
    """It is not waited for until midnight."""
    with rented(search_quota=0) as it, pytest.raises(NoCapacity, match="until midnight UTC"):
        it.cloud.create(order())


def test_a_volume_of_another_cloud_is_a_mistake_in_the_task_file() -> None:
    """Vast's own belong to one machine."""
    with rented() as it, pytest.raises(ConfigError, match="network_volume"):
        it.cloud.create(order(network_volume="vol_1"))


def test_variables_that_do_not_fit_are_refused_before_anything_is_rented() -> None:
    """256 characters, by name."""
    with rented() as it:
        with pytest.raises(ConfigError, match="LONG has 304"):
            it.cloud.create(order(environment={"LONG": "x" * 300}))
        assert it.creates == []


def test_a_start_script_that_does_not_fit_is_refused_in_words() -> None:
    """4096 characters, packed."""
    script = "".join(f"{number * 7919 % 100_003:x}" for number in range(4000))
    with rented() as it, pytest.raises(ConfigError, match=r"start script .* Vast takes 4096"):
        it.cloud.create(order(start_script=script))


# ---------------------------------------------------------------------------------- spot


def test_a_bid_is_a_margin_above_what_wins_now() -> None:
    """Bids are paid as they are; the storage comes on top."""
    with rented() as it:
        pod = it.cloud.create(order(spot=True))
        (made,) = it.pods
        assert (made["is_bid"], made["bid"]) == (True, pytest.approx(0.11 * 1.2))
        assert pod.price_per_hour == pytest.approx(0.11 * 1.2 + 40 * 0.15 / 720, abs=1e-4)
        assert it.creates[0]["body"]["cancel_unavail"] is True


def test_a_bid_stays_within_what_the_task_file_allows() -> None:
    """Per GPU, and with the storage within the price of the whole pod."""
    with rented() as it:
        it.cloud.create(order(spot=True, max_bid_per_gpu=0.12, gpu_count=2))
        assert it.pods[0]["bid"] == pytest.approx(0.24)
        with pytest.raises(NoCapacity, match=r"max_bid_per_gpu: 0.1 .*from \$0.11"):
            it.cloud.create(order("2", spot=True, max_bid_per_gpu=0.1))


def test_an_outbid_pod_is_told_from_one_that_we_stopped() -> None:
    """V11: Vast shows both alike."""
    with rented() as it:
        outbid = it.cloud.create(order("1", spot=True))
        stopped = it.cloud.create(order("2", spot=True, gpus=(A40,)))
        on_demand = it.cloud.create(order("3", gpus=(RTX_3090,)))
        it.emulator.advance(5)
        it.emulator.set(outbid=outbid.id)
        it.cloud.stop(stopped)
        it.cloud.stop(on_demand)
        phases = [it.cloud.status(pod).phase for pod in (outbid, stopped, on_demand)]
        assert phases == [PodPhase.OUTBID, PodPhase.STOPPED, PodPhase.STOPPED]
        assert [pod.run for pod in it.cloud.list_ours()] == ["1", "2", "3"]
        assert it.cloud.create(order("2")) == stopped
        it.emulator.advance(5)
        assert it.cloud.status(stopped).phase is PodPhase.RUNNING
        assert it.cloud.find("2") == stopped


def test_an_outbid_pod_is_destroyed_before_the_next_one_is_rented() -> None:
    """V11: it would come back by itself, and two would write the same run."""
    with rented() as it:
        old = it.cloud.create(order(spot=True))
        it.emulator.advance(5)
        it.emulator.set(outbid=old.id)
        new = it.cloud.create(order(spot=True))
        assert new.id != old.id
        assert alone(it, new.id)
        gone, asked = it.gone[0]["ended_at"], it.creates[-1]["t"]
        assert gone <= asked
        it.emulator.set(rival_leaves="all")
        it.emulator.advance(60)
        assert alone(it, new.id)


def test_a_broken_pod_is_replaced() -> None:
    """V5: exited, offline and unknown never run again by themselves."""
    with rented() as it:
        asked = order(gpus=(RTX_4090,))
        old = it.cloud.create(asked)
        it.emulator.advance(5)
        it.emulator.set(host_lost=old.id)
        assert it.cloud.status(old).phase is PodPhase.BROKEN
        new = it.cloud.create(replace(asked, avoid=frozenset({old.place})))
        assert alone(it, new.id)
        assert new.place != old.place


# ---------------------------------------------------------------------------------- status


def test_phases_follow_the_life_of_an_instance() -> None:
    """Null, created, loading, running."""
    with rented(provision_seconds=10, created_seconds=10, image_pull_seconds=60) as it:
        pod = it.cloud.create(order())
        seen = [it.cloud.status(pod).phase]
        for seconds in (10, 10, 61):
            it.emulator.advance(seconds)
            seen.append(it.cloud.status(pod).phase)
    queued, starting, running = PodPhase.QUEUED, PodPhase.STARTING, PodPhase.RUNNING
    assert seen == [queued, starting, starting, running]


@pytest.mark.parametrize(
    ("stuck", "phase"),
    [
        ("null", PodPhase.QUEUED),
        ("created", PodPhase.STARTING),
        ("loading", PodPhase.STARTING),
    ],
)
def test_a_stuck_instance_never_looks_running(stuck: str, phase: PodPhase) -> None:
    """V5: the deadline is the caller's."""
    with rented(stuck=stuck, stuck_times=1) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(3000)
        assert it.cloud.status(pod).phase is phase


def test_an_image_that_can_not_be_pulled_is_broken() -> None:
    """The status stays `loading`, the message says it."""
    with rented(pull_error=1) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(60)
        assert it.cloud.status(pod).phase is PodPhase.BROKEN


@pytest.mark.parametrize("status", ["exited", "unknown", "offline", "frozen"])
def test_states_without_a_way_back_are_broken(status: str) -> None:
    """Fail fast."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5)
        it.emulator.set(set_status={"id": pod.id, "status": status})
        assert it.cloud.status(pod).phase is PodPhase.BROKEN


def test_fields_over_which_the_sdk_falls_may_be_missing() -> None:
    """V9."""
    with rented(no_start_date=True) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5)
        assert it.cloud.status(pod).phase is PodPhase.RUNNING
        assert it.cloud.find("1") is not None


def test_missing_telemetry_is_unknown_not_idle() -> None:
    """Null is no zero."""
    with rented(telemetry_null=True) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5)
        status = it.cloud.status(pod)
        assert (status.phase, status.gpu_percent, status.ram_percent) == (
            PodPhase.RUNNING,
            None,
            None,
        )


def test_a_success_that_never_becomes_an_instance_is_lost() -> None:
    """V6: the caller gives it back, and destroys what may yet come."""
    with rented(create_ghost=1) as it:
        pod = it.cloud.create(order())
        with pytest.raises(PodLost):
            it.cloud.status(pod)
        it.cloud.terminate(pod)


@pytest.mark.parametrize("missing_404", [False, True])
def test_a_pod_that_its_owner_ended_elsewhere_is_lost(missing_404: bool) -> None:
    """H23, V7: null and 404 are both absence."""
    with rented(missing_404=missing_404) as it:
        pod = it.cloud.create(order())
        it.emulator.advance(60)
        it.emulator.set(kill_pod=pod.id)
        with pytest.raises(PodLost):
            it.cloud.status(pod)


@pytest.mark.parametrize("status", [400, 401, 200, 503])
def test_a_look_that_fails_never_means_that_a_pod_is_gone(status: int) -> None:
    """H21, V7."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.advance(60)
        path = r"/instances/\d+/$"
        it.emulator.set(status={"path": path, "method": "GET", "status": status})
        with pytest.raises((TryAgain, KeyRefused)):
            it.cloud.status(pod)


def test_a_container_that_ends_is_started_again() -> None:
    """H17, V10: on the same disk, so that a marker on it can end the loop."""
    with rented() as it:
        script = 'if [ -e "$HOME/done" ]; then echo again; sleep 60; fi; touch "$HOME/done"'
        pod = it.cloud.create(order(start_script=script))
        it.emulator.advance(1)

        def has_come_again() -> bool:
            it.emulator.advance(0.3)
            return it.emulator.lines(pod.id) == ["again"]

        until(has_come_again)
        assert it.pods[0]["boots"] >= 2
        assert it.cloud.status(pod).phase is PodPhase.RUNNING


# ---------------------------------------------------------------------------------- terminate


@pytest.mark.parametrize("missing_200", [False, True])
def test_a_pod_is_gone_when_a_list_says_so(missing_200: bool) -> None:
    """Vast may list it for a while; a second time is no error."""
    with rented(destroy_lag=20, missing_destroy_200=missing_200) as it:
        pod = it.cloud.create(order())
        it.cloud.terminate(pod)
        assert it.pods == []
        assert it.cloud.list_ours() == []
        it.cloud.terminate(pod)


def test_a_rate_limit_does_not_save_a_pod() -> None:
    """H22, V4: 429 to the first ten."""
    with rented(destroy_status={"status": 429, "times": 10}) as it:
        pod = it.cloud.create(order())
        it.cloud.terminate(pod)
        assert it.pods == []


def test_a_refusal_with_http_200_does_not_save_a_pod() -> None:
    """H20: success false."""
    with rented(destroy_status={"status": 200, "times": 2, "detail": "try later"}) as it:
        pod = it.cloud.create(order())
        it.cloud.terminate(pod)
        assert it.pods == []


def test_not_seeing_a_pod_is_not_its_absence() -> None:
    """H21, V8: destroy and list are both refused, so nothing is known."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.set(destroy_status=401, list_status=401)
        with pytest.raises(KeyRefused):
            it.cloud.terminate(pod)
        it.emulator.set(destroy_status=503, list_status=503)
        with pytest.raises(TryAgain, match="not confirmed gone"):
            it.cloud.terminate(pod)
        assert alone(it, pod.id)


def test_pods_of_others_are_neither_listed_nor_touched() -> None:
    """V15: also over several pages."""
    with rented(page_size=2, gaps=False) as it:
        with it.owner() as owner:
            for ask in (3100510, 3100511, 3100512, 3100513, 3100514):
                body = {"client_id": "me", "image": "x", "label": f"mine-{ask}"}
                assert owner.put(f"/asks/{ask}/", json=body).status_code == 200
        ours = [it.cloud.create(order(str(number))) for number in range(3)]
        assert it.cloud.list_ours() == ours
        for pod in ours:
            it.cloud.terminate(pod)
        assert len(it.pods) == 5
        assert all(pod["label"].startswith("mine-") for pod in it.pods)


def test_the_bill_is_the_price_times_the_time() -> None:
    """The report's sum and Vast's agree to the cent; loading costs no GPU."""
    with rented() as it:
        pod = it.cloud.create(order())
        it.emulator.advance(5000)
        it.cloud.terminate(pod)
        cost = it.emulator.state["bill"][pod.id]
        assert cost == pytest.approx(pod.price_per_hour * 5000 / 3600, abs=0.005)


@pytest.mark.parametrize("spot", [False, True])
def test_the_bill_of_the_report_leaves_out_what_vast_does_not_take_while_loading(
    monkeypatch: pytest.MonkeyPatch, spot: bool
) -> None:
    """20 minutes of image: the disk alone. The report is never below Vast, nor more than some looks
    above it; before that was seen it counts as running.
    """
    facts: dict[str, str] = {}
    for module in (standing, waiting):
        monkeypatch.setattr(module, "remember", lambda run, new: facts.update(new))
    monkeypatch.setattr(standing, "recall", lambda run: facts)
    with rented(image_pull_seconds=1200) as it:
        pod = it.cloud.create(order(spot=spot))
        standing.remember_pod(pod)

        def has_come(_: Pod) -> bool:
            return it.cloud.now() - pod.created >= timedelta(seconds=1500)

        wait_until_ready(it.cloud, pod, has_come, sleep=it.emulator.advance, now=it.cloud.now)
        it.emulator.advance(3600)
        standing.remember_pod(pod)
        it.cloud.terminate(pod)
        standing.remember_pod(pod, terminated=it.cloud.now())
        billed = float(it.emulator.state["bill"][pod.id])
        said = cost_so_far(facts, it.cloud.now())
        assert billed <= said + 1e-4
        assert said <= billed + pod.price_per_hour * 20 / 3600
        assert said < pod.price_per_hour * 4900 / 3600
        (bill,) = standing.pods_of(facts).values()
        unseen = {**bill, "loading_until": None}
        assert cost_of(unseen, it.cloud.now()) > pod.price_per_hour * 5000 / 3600


def test_the_account_tells_what_is_left_and_what_is_spent() -> None:
    """As RunPod's does: a stopped instance costs its disk."""
    with rented() as it:
        account = VastAccount(api_key=SecretStr(it.emulator.key), base_url=it.emulator.url)
        assert account.balance() == Balance(100.0, 0.0)
        one, two = it.cloud.create(order("1")), it.cloud.create(order("2"))
        it.cloud.stop(two)
        found = account.balance()
        disk = two.loading_per_hour
        assert disk is not None
        assert found.spend_per_hour == pytest.approx(one.price_per_hour + disk, abs=1e-4)


def test_hosts_whose_contract_ends_too_soon_are_passed_over() -> None:
    """V16: the cheapest machine is there for five hours, and the run needs eight."""
    with rented() as it:
        pod = it.cloud.create(order(min_cuda="12.4", hours=8))
        assert pod.place != "machine 31012"
        short = it.cloud.create(order("2", min_cuda="12.4", hours=1))
        assert short.place == "machine 31012"


def test_refusals_do_not_hold_what_was_sent() -> None:
    """The body holds secrets."""
    for status in (418, 500, 400, 404):
        with rented(create_status=status) as it:
            with pytest.raises(RunnerError) as refused:
                it.cloud.create(order(environment={"HF_TOKEN": "hf_secret"}))
            text = str(refused.value)
            assert "hf_secret" not in text
            assert "\n" not in text


def test_a_cloud_that_can_not_be_reached_is_tried_again() -> None:
    """Nothing was sent, so nothing is looked up."""
    with rented() as it:
        it.emulator.set(gaps=False)
        found = it.cloud.client.offers({}, bid=False, storage_gb=10)
        it.cloud.client.base_url = "http://127.0.0.1:9"
        it.cloud.client.__dict__.pop("_sdk")
        with pytest.raises(TryAgain, match="can't be reached: ConnectionError"):
            it.cloud.client.create(found[0]["id"], {"image": "x"})
