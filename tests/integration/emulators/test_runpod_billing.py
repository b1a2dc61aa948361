"""Money in the emulator: rates, rounding, the records, the balance."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.emulators.clock import read_time, write_time
from tests.emulators.meter import Meter
from tests.emulators.runpod.billing import bucket_end, bucket_start, disk_rate
from tests.emulators.runpod.testing import RTX_4090, Rig, order, rig
from tests.emulators.testing import NOON

VOLUME = {"persistent": {"size": 100, "path": "/workspace"}}


def totals(one: Rig, **query: str) -> dict[str, float]:
    answer = one.api.get("/v2/billing/pods", params={"bucketSize": "hour", **query})
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["metadata"]["totals"])


def test_the_bill_is_what_the_times_of_the_pod_say() -> None:
    """Two GPUs for 2.5 h, then half an hour stopped, then the end: to a millionth of a dollar."""
    with rig() as one:
        pod = one.running(gpu={"id": RTX_4090, "count": 2}, disk=72, mounts=VOLUME)
        one.cloud.advance(2.5 * 3600 - 0.3)
        one.api.post(f"/v2/pods/{pod}/action", json={"action": "stop"})
        one.cloud.advance(1800)
        one.api.delete(f"/v2/pods/{pod}")
        one.cloud.advance(7200)

        sums = totals(one)
        assert sums["gpuAmount"] == pytest.approx(2 * 0.69 * 2.5, abs=1e-6)
        assert sums["diskAmount"] == pytest.approx(
            (172 * 0.10 * 2.5 + 100 * 0.20 * 0.5) / 720, abs=3e-6
        )
        state = one.cloud.state
        assert state["bill"] == {pod: sums["totalAmount"]}
        assert state["balance"] == pytest.approx(100 - sums["totalAmount"], abs=1e-9)
        (ended,) = state["ended"]
        assert read_time(ended["endedAt"]) - read_time(ended["createdAt"]) == 3 * 3600


def test_records_are_by_hour_and_pod_and_add_up_to_the_totals() -> None:
    """One a pod and hour that it was there for; a day's record is the sum of its hours."""
    with rig() as one:
        first, second = one.running(), one.running()
        one.cloud.advance(3600)
        one.api.delete(f"/v2/pods/{first}")
        one.cloud.advance(3600)
        answer = one.api.get("/v2/billing/pods", params={"bucketSize": "hour"}).json()
        assert [(each["podId"], each["startTime"][11:16]) for each in answer["records"]] == [
            *sorted([(first, "12:00"), (second, "12:00")]),
            *sorted([(first, "13:00"), (second, "13:00")]),
            (second, "14:00"),
        ]
        hours = sum(Decimal(str(each["totalAmount"])) for each in answer["records"])
        assert float(hours) == answer["metadata"]["totals"]["totalAmount"]
        assert answer["metadata"]["uniquePodCount"] == 2
        assert totals(one, bucketSize="day", podId=first)["totalAmount"] == pytest.approx(
            (0.69 + 50 * 0.1 / 720) * 3600.6 / 3600, abs=2e-6
        )
        assert totals(one, lastN="1")["gpuAmount"] == pytest.approx(0.69 * 0.6 / 3600, abs=1e-6)


def test_the_window_is_snapped_outwards_and_has_one_form() -> None:
    """To whole buckets; lastN excludes a start."""
    with rig() as one:
        query = {"startTime": "2026-11-30T12:20:00Z", "endTime": "2026-11-30T13:00:00Z"}
        answer = one.api.get("/v2/billing/pods", params={"bucketSize": "hour", **query}).json()
        assert answer["metadata"]["query"] == {
            "startTime": "2026-11-30T12:00:00.000Z",
            "endTime": "2026-11-30T13:00:00.000Z",
            "bucketSize": "hour",
            "podId": None,
        }
        both = one.api.get("/v2/billing/pods", params={**query, "lastN": "2"})
        assert both.status_code == 400


def test_the_billing_job_may_lag_behind() -> None:
    """Records stop at its last run; the balance does not wait for it."""
    with rig() as one:
        one.cloud.set(billing_lag=300)
        one.running()
        one.cloud.advance(299)
        assert totals(one)["totalAmount"] == 0
        one.cloud.advance(2)
        assert totals(one)["gpuAmount"] == pytest.approx(0.69 * 300 / 3600, abs=1e-6)


def test_an_hour_of_credit_is_needed_to_create() -> None:
    """402, no pod; and pods end when the money does, unless a network volume keeps them."""
    with rig(credit=1.0) as one:
        volume = one.api.post(
            "/v2/network-volumes", json={"name": "v", "size": 10, "dataCenter": "US-KS-2"}
        ).json()
        kept = one.running(
            mounts={"network": [{"volumeId": volume["id"], "path": "/w"}]}, gpu={"id": RTX_4090}
        )
        lost = one.running()
        one.cloud.advance(3000)
        assert one.api.get(f"/v2/pods/{lost}").status_code == 404
        assert one.pod(kept)["status"] == "EXITED"
        refused = one.api.post("/v2/pods", json=order())
        assert (refused.status_code, one.cloud.state["created_total"]) == (402, 2)
        one.cloud.set(balance=5)
        assert one.cloud.state["balance"] == 5
        one.create()


def test_rates_and_rounding() -> None:
    """A stopped volume costs double; each hour of a pod is rounded once, half to even."""
    assert disk_rate(10, 20, stopped=False) == Decimal("3.0") / 720
    assert disk_rate(10, 20, stopped=True) == Decimal("4.0") / 720
    meter = Meter()
    meter.switch(NOON + 3599, Decimal("0.0054"), Decimal(0))
    meter.close(NOON + 3602)
    assert [float(each.gpu) for _, each in meter.hours(NOON + 9999)] == [2e-06, 3e-06]
    assert meter.total(NOON + 3600) == Decimal("0.000002")


@pytest.mark.parametrize(
    ("size", "start", "end"),
    [
        ("hour", "2026-11-30T12:00", "2026-11-30T13:00"),
        ("day", "2026-11-30T00:00", "2026-12-01T00:00"),
        ("week", "2026-11-30T00:00", "2026-12-07T00:00"),
        ("month", "2026-11-01T00:00", "2026-12-01T00:00"),
        ("year", "2026-01-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_buckets(size: str, start: str, end: str) -> None:
    """Where the bucket of a Monday noon begins and ends."""
    begin = bucket_start(NOON + 1800, size)
    assert write_time(begin.timestamp())[:16] == start
    assert write_time(bucket_end(begin, size).timestamp())[:16] == end
