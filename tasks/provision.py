"""Get the run's pod: the one that it has, else a new one from the first cloud with room."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from prefect import task
from prefect.exceptions import ObjectAlreadyExists

from blocks.cloud import Cloud, Pod, PodOrder
from blocks.clouds import cloud as cloud_named
from blocks.clouds import cloud_of, is_rented
from blocks.logs import log
from runner.errors import ConfigError, KeyRefused, NoCapacity, OutOfFunds
from tasks.api import api, write
from tasks.limits import check_deadline
from tasks.ordering import pod_order
from tasks.retrying import patiently
from tasks.run import Order, Run
from tasks.standing import remember, remember_pod
from tasks.sweeping import switch_sweep_on
from tasks.teardown import end_pod
from tasks.timing import timed
from tasks.waiting import DidNotStart, wait_until_ready

MOST_DEAD = 3  # machines that may fail to start before the run gives up


@task(**patiently(times=4, factor=1))
def provision(run: Run, order: Order) -> Pod:
    """The run's pod, running. Looks before it creates: one run never has two pods."""
    with timed(run.id, "provision"):
        return _provision(run, order)


def _provision(run: Run, order: Order) -> Pod:
    """Dead machines are given back and passed over."""
    dead: dict[str, str] = {}
    check_deadline(run, order)
    switch_sweep_on()
    _make_queue(run.id)
    if not order.settings.one_shot:
        remember(run.id, {"keep_pod": "yes"})
    while True:
        pod = get_pod(run, order, frozenset(dead))
        if not is_rented(pod.cloud):
            return pod
        try:
            wait_until_ready(cloud_of(pod), pod)
            return pod
        except DidNotStart as why:
            log().warning("Pod %s did not start (%s): it is given back", pod.id, why)
            end_pod(pod)
            check_deadline(run, order)
            dead[pod.place or pod.id] = f"{pod.id} on {pod.cloud} ({pod.place}): {why}"
            if len(dead) >= MOST_DEAD:
                raise NoCapacity(
                    f"{len(dead)} machines did not start: {'; '.join(dead.values())}"
                ) from why


def _make_queue(run_id: str) -> None:
    """The run's own work queue: a worker that finds none reports nothing."""
    with suppress(ObjectAlreadyExists):
        write(lambda: api().create_work_queue(f"axr-{run_id}", work_pool_name="pods"))


def get_pod(run: Run, order: Order, avoid: frozenset[str] = frozenset()) -> Pod:
    """The pod that the run has, else a new one; written down either way."""
    clouds = [cloud_named(name) for name in order.clouds]
    pod = find_pod(run, clouds)
    if pod:
        clouds = [cloud for cloud in clouds if cloud.name == pod.cloud]
    pod = first_with_room(clouds, lambda name: pod_order(run, order, name, avoid=avoid))
    remember_pod(pod)
    log().info("Pod %s on %s at $%.2f per hour", pod.id, pod.cloud, pod.price_per_hour)
    return pod


def find_pod(run: Run, clouds: list[Cloud]) -> Pod | None:
    """The pod that the run has now, None when successful listings do not hold one."""
    return next((pod for cloud in clouds if (pod := cloud.find(run.id))), None)


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
