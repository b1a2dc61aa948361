"""Get the run's pod: the one that it has, else a new one from the first cloud with room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from prefect import task
from prefect.exceptions import ObjectAlreadyExists

from blocks.cloud import Cloud, Pod, PodOrder
from blocks.clouds import cloud as cloud_named
from blocks.clouds import cloud_of, is_rented, volume_price
from blocks.logs import log
from runner.errors import ConfigError, KeyRefused, NoCapacity, OutOfFunds, TrainingFailed
from runner.notice import dollars
from tasks.api import api, write
from tasks.budget import is_too_dear, left_of_budget, most_per_hour
from tasks.diagnosing import why_not_started
from tasks.installation import a_place
from tasks.limits import PUBLISHING_TAKES, Limits
from tasks.ordering import pod_order
from tasks.retrying import patiently
from tasks.run import Order, Run
from tasks.standing import attempts, pods_of, recall, remember, remember_pod
from tasks.sweep_switch import switch_sweep_on
from tasks.teardown import end_pod
from tasks.timing import timed
from tasks.waiting import DidNotStart, wait_until_ready

MOST_DEAD = 3  # machines that may fail to start before the run gives up


@task(**patiently(times=8, factor=2))  # a cloud that is away for minutes ends no run
def provision(run: Run, order: Order) -> Pod:
    """The run's pod, running. Looks before it creates: one run never has two pods."""
    with timed(run.id, "provision"):
        return _provision(run, order)


def _provision(run: Run, order: Order) -> Pod:
    """Dead machines are given back and passed over."""
    dead: dict[str, str] = {}
    limits = Limits(run, order, spare=_spare(run))
    limits.look()  # a parent that was away for long may come back to a run that is over
    switch_sweep_on()
    _make_queue(run.id)
    if not order.settings.one_shot:
        remember(run.id, {"keep_pod": "yes"})
    while True:
        known = pods_of(recall(run.id))
        pod = get_pod(run, order, frozenset(dead), look=limits)
        try:
            if pod.id not in known:  # one that has trained saves first: tasks.monitor
                _check_price(order, pod)
            if is_rented(pod.cloud):
                wait_until_ready(cloud_of(pod), pod, look=limits)
            return pod
        except DidNotStart as why:
            told = why_not_started(pod, str(why))
            words = "; ".join([str(why), *told.lines[-1:]])
            log().warning("Pod %s did not start (%s): it is given back", pod.id, words)
            end_pod(pod)
            limits.look()
            dead[pod.place or pod.id] = f"{pod.id} on {pod.cloud} ({pod.place}): {words}"
            if told.final:  # the next machine would get the same image and the same packages
                raise TrainingFailed(
                    told.outcome, f"the pod {pod.id} did not start: {words}"
                ) from why
            if len(dead) >= MOST_DEAD:
                raise NoCapacity(
                    f"{len(dead)} machines did not start: {'; '.join(dead.values())}"
                ) from why


def _make_queue(run_id: str) -> None:
    """The run's own work queue: a worker that finds none reports nothing."""
    with suppress(ObjectAlreadyExists):
        write(lambda: api().create_work_queue(f"axr-{run_id}", work_pool_name="pods"))


def get_pod(
    run: Run,
    order: Order,
    avoid: frozenset[str] = frozenset(),
    *,
    look: Callable[[], None] = lambda: None,
) -> Pod:
    """The pod that the run has, else a new one within what the run and the installation may spend;
    written down either way. `look` is called while it waits for its turn.
    """
    clouds = [cloud_named(name) for name in order.clouds]
    mine = find_pod(run, clouds)
    if mine:
        pod = _rent(run, order, [cloud for cloud in clouds if cloud.name == mine.cloud], avoid)
        write_down(order, pod)
    else:
        with a_place(run, look):
            pod = _rent(run, order, clouds, avoid)
            write_down(order, pod)
    log().info("Pod %s on %s at $%.2f per hour", pod.id, pod.cloud, pod.price_per_hour)
    return pod


def _rent(run: Run, order: Order, clouds: list[Cloud], avoid: frozenset[str]) -> Pod:
    """The run's pod on one of these clouds; TrainingFailed `budget` when what is left pays none."""
    left = left_of_budget(order, recall(run.id))
    most = most_per_hour(order, left)

    def asked(cloud: str, count: int) -> PodOrder:
        wanted = pod_order(run, order, cloud, avoid=avoid, gpu_count=count)
        return replace(wanted, max_price_per_hour=most) if is_rented(cloud) else wanted

    try:
        return with_fewer(
            order.settings.gpu_count,
            lambda count: first_with_room(clouds, lambda name: asked(name, count)),
        )
    except NoCapacity as none:
        if left is None or most >= order.settings.max_price_per_hour:
            raise
        raise TrainingFailed(
            "budget", f"{dollars(left)} of the budget is left, which pays for no pod: {none}"
        ) from none


def write_down(order: Order, pod: Pod) -> None:
    """Put the pod on the run's bill, with the network volume that it holds."""
    remember_pod(pod, volume_per_hour=volume_price(pod.cloud, order.settings.network_volume))


def _spare(run: Run) -> float:
    """A model that is trained is published, also when the budget has ended meanwhile."""
    done = attempts(run.id)
    return PUBLISHING_TAKES if done and done[-1].outcome == "completed" else 0.0


def _check_price(order: Order, pod: Pod) -> None:
    """A cloud may give another machine than its list of prices said."""
    if is_too_dear(order, pod):
        most = order.settings.max_price_per_hour
        raise DidNotStart(
            f"it costs ${pod.price_per_hour:.2f} per hour, more than max_price_per_hour: {most:g}"
        )


def find_pod(run: Run, clouds: list[Cloud]) -> Pod | None:
    """The pod that the run has now, None when successful listings do not hold one."""
    return next((pod for cloud in clouds if (pod := cloud.find(run.id))), None)


def with_fewer(counts: Sequence[int], rent: Callable[[int], Pod]) -> Pod:
    """A pod with the first number of GPUs that some cloud has; what was said of each when none."""
    refusals: list[str] = []
    for count in counts:
        try:
            return rent(count)
        except NoCapacity as full:
            if len(counts) == 1:
                raise
            refusals.append(f"with gpu_count {count}: {full}")
            log().warning("No pod with gpu_count %s: %s", count, full)
    raise NoCapacity("; ".join(refusals))


def first_with_room(clouds: list[Cloud], order: Callable[[str], PodOrder]) -> Pod:
    """A pod from the first cloud that gives one; what each said when none does.

    A cloud that has no room, no money left or no valid key is passed over while there is another.
    """
    refusals: list[NoCapacity | OutOfFunds | KeyRefused | ConfigError] = []
    for cloud in clouds:
        try:
            return cloud.create(order(cloud.name))
        except (NoCapacity, OutOfFunds, KeyRefused, ConfigError) as refused:
            refusals.append(refused)
            log().warning("%s: %s", cloud.name, refused)
    if len(refusals) == 1:
        raise refusals[0]
    names = [cloud.name for cloud in clouds]
    said = [f"{name}: {refused}" for name, refused in zip(names, refusals, strict=True)]
    raise NoCapacity("; ".join(said))
