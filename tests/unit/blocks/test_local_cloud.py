import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blocks.cloud import PodOrder, PodPhase
from blocks.local import cloud as local
from blocks.local import processes
from blocks.local.cloud import LocalCloud
from runner.errors import NoCapacity, PodLost
from runner.home import Home

RUN = "3f0c8e0a-0000-4000-8000-000000000001"

# A stand-in for the boot script: notes its environment, leaves a detached child, and stays.
BOOT = """
env > "$AXR_VOLUME/environment"
setsid sleep 300 &
exec sleep 300
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalCloud:
    """A local cloud in an empty home whose pods run the stand-in."""
    repository = tmp_path / "repository"
    (repository / "pod").mkdir(parents=True)
    (repository / "pod" / "boot.sh").write_text(BOOT)
    monkeypatch.setattr(local, "REPOSITORY", repository)
    cloud = LocalCloud(Home(tmp_path / "home"), price_per_hour=1.5)
    yield cloud
    for pod in cloud.list_ours():
        processes.kill_all(pod.id)


def _order(*, run: str = RUN, **environment: str) -> PodOrder:
    return PodOrder(
        run=run, environment=environment, deadline=datetime.now(UTC) + timedelta(hours=1)
    )


def _environment(cloud: LocalCloud, pod_id: str) -> dict[str, str]:
    file = cloud.where.pods / pod_id / "volume" / "environment"
    deadline = time.monotonic() + 10
    while not (file.exists() and "AXR_VOLUME" in file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if "=" in line)


def test_a_machine_that_is_said_to_cost_too_much_is_not_taken(here: LocalCloud) -> None:
    """max_price_per_hour holds here as elsewhere; the next cloud of the list may be asked."""
    dear = LocalCloud(here.where, price_per_hour=6.0)
    with pytest.raises(NoCapacity, match=r"\$6.00 per hour .* max_price_per_hour: 5"):
        dear.create(_order())
    assert dear.list_ours() == []


def test_a_run_never_has_two_pods(here: LocalCloud) -> None:
    """Create looks first, so asking twice gives the same pod."""
    first = here.create(_order())
    again = here.create(_order())
    assert first == again
    assert [pod.run for pod in here.list_ours()] == [RUN]


def test_a_pod_has_a_clean_environment_and_a_home_of_its_own(
    here: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the control side leaks in: no token, no PYTHONPATH, no home of the user."""
    monkeypatch.setenv("SOME_SECRET", "of the control side")
    pod = here.create(_order(NOTE='say "hi"\ttab', EMPTY=""))
    environment = _environment(here, pod.id)
    assert "SOME_SECRET" not in environment
    assert environment["HOME"].startswith(str(here.where.pods / pod.id))
    assert environment["NOTE"] == 'say "hi"\ttab'
    assert environment["AXR_POD"] == pod.id


def test_the_folder_for_temporary_files_has_a_short_path_and_goes_with_the_pod(
    here: LocalCloud,
) -> None:
    """However deep the home lies: axolotl binds sockets there (paths of at most 107 bytes)."""
    pod = here.create(_order())
    scratch = Path(_environment(here, pod.id)["TMPDIR"])
    assert scratch.is_dir()
    assert len(str(scratch)) < 60
    here.terminate(pod)
    assert not scratch.exists()


def test_ending_a_pod_ends_every_process_of_it_also_detached_ones(here: LocalCloud) -> None:
    """H53: processes in a session of their own carry the pod's mark too."""
    pod = here.create(_order())
    deadline = time.monotonic() + 10
    while len(marked := processes.marked(pod.id)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(marked) >= 2, "the stand-in and its detached child"
    here.terminate(pod)
    assert here.list_ours() == []
    assert processes.marked(pod.id) == []
    assert not any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in marked)


def test_ending_a_pod_twice_is_no_error_and_keeps_the_run_folder(here: LocalCloud) -> None:
    """The volume outlives the pod: what the run wrote is still there."""
    pod = here.create(_order())
    (here.where.run(RUN) / "checkpoint").write_text("precious")
    here.terminate(pod)
    here.terminate(pod)
    assert (here.where.runs / RUN / "checkpoint").read_text() == "precious"
    with pytest.raises(PodLost):
        here.status(pod)


def test_a_pod_whose_processes_died_is_stopped_and_started_again_as_the_same_pod(
    here: LocalCloud,
) -> None:
    """As clouds restart a container whose main process ended."""
    pod = here.create(_order())
    _environment(here, pod.id)
    assert here.status(pod).phase is PodPhase.RUNNING
    processes.kill_all(pod.id)
    assert here.status(pod).phase is PodPhase.STOPPED
    assert here.create(_order()) == pod
    assert processes.marked(pod.id)


def test_its_processors_are_measured_from_look_to_look(
    here: LocalCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look can't tell; one that comes too soon says what the one before said."""
    now, used = [1000.0], [5.0]
    monkeypatch.setattr(local.time, "time", lambda: now[0])
    monkeypatch.setattr(local.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(processes, "usage", lambda pod_id: processes.Usage(1, used[0], 10_000_000))
    pod = here._make(_order())
    seen = []
    for seconds, cpu in ((0, 5), (10, 10), (1, 10), (9, 10)):
        now[0] += seconds
        used[0] = cpu
        seen.append(here.status(pod).cpu_percent)
    assert seen == [None, 25.0, 25.0, 0.0]


def test_only_the_pod_asked_for_is_ended(here: LocalCloud) -> None:
    """Two runs side by side do not touch each other."""
    other_run = "3f0c8e0a-0000-4000-8000-000000000002"
    first, other = here.create(_order()), here.create(_order(run=other_run))
    _environment(here, other.id)
    here.terminate(first)
    assert [pod.run for pod in here.list_ours()] == [other_run]
    assert processes.marked(other.id)


def test_processes_of_others_are_never_counted(here: LocalCloud) -> None:
    """A process without the mark, or with a longer id that begins alike, is not the pod's."""
    environment = {**os.environ, "AXR_POD": "local-1-longer"}
    bystander = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)"], env=environment
    )
    try:
        assert processes.marked("local-1") == []
    finally:
        bystander.kill()
        bystander.wait()


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
