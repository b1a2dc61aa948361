import pytest

from pod.lease import Lease, from_facts, read_labels


def test_only_a_change_of_the_label_renews() -> None:
    """The control side's clock may be set otherwise: its value is never compared with ours."""
    lease = Lease(100.0)
    lease = lease.heard({"axr.lease": 7}, 110.0)
    assert (lease.value, lease.seen) == (7.0, 110.0)
    lease = lease.heard({"axr.lease": 7, "axr.ends_at": 500}, 170.0)
    assert (lease.seen, lease.ends_at) == (110.0, 500.0)
    lease = lease.heard({"axr.lease": "8"}, 180.0)
    assert (lease.seen, lease.ends_at) == (180.0, 500.0)


@pytest.mark.parametrize("labels", [{}, {"axr.lease": ""}, {"axr.lease": "soon"}])
def test_an_answer_without_a_lease_renews_nothing(labels: dict[str, str]) -> None:
    """Parents that do not know of leases, or damage."""
    assert Lease(100.0, 7.0).heard(labels, 200.0) == Lease(100.0, 7.0)


def test_what_was_kept_comes_back() -> None:
    """Also after the pod's clock was set back: a lease from the future would never lapse."""
    lease = Lease(100.0, 7.0, 500.0)
    assert from_facts(lease.facts(), 200.0) == lease
    assert from_facts(lease.facts(), 50.0) == Lease(50.0, 7.0, 500.0)
    assert from_facts(None, 60.0) == Lease(60.0)
    assert from_facts({"seen": "x"}, 60.0) == Lease(60.0)


@pytest.mark.parametrize("api", ["", "http://127.0.0.1:9/api", "no address"])
def test_an_api_that_is_away_says_nothing(api: str) -> None:
    """H21: it is not the same as an answer without labels."""
    assert read_labels({"PREFECT_API_URL": api, "AXR_RUN": "run"}) is None
