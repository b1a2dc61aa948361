"""Get the run's pod: the one that it has, else a new one from the first cloud with room."""

from __future__ import annotations

import os

from prefect import task
from prefect.logging import get_run_logger
from prefect.settings import PREFECT_API_URL

from blocks.cloud import Cloud, Pod, PodOrder
from blocks.clouds import cloud as cloud_named
from runner.errors import NoCapacity
from runner.settings import RunnerSettings
from tasks.retrying import patiently
from tasks.run import Order, Run
from tasks.standing import remember, remember_pod
from tasks.sweeping import switch_sweep_on
from tasks.timing import timed

# Secrets of the run itself; nothing else of the control side's environment reaches a pod.
RUN_SECRETS = ("HF_TOKEN", "WANDB_API_KEY")


@task(**patiently(times=4, factor=1))
def provision(run: Run, order: Order) -> Pod:
    """The run's pod, running. Looks before it creates: one run never has two pods."""
    with timed(run.id, "provision"):
        return _provision(run, order)


def _provision(run: Run, order: Order) -> Pod:
    clouds = [cloud_named(name) for name in order.clouds]
    pod = next((pod for cloud in clouds if (pod := cloud.find(run.id))), None)
    if pod:
        clouds = [cloud for cloud in clouds if cloud.name == pod.cloud]
    switch_sweep_on()
    pod = _first_with_room(clouds, pod_order(run, order))
    remember_pod(pod)
    if not order.settings.one_shot:
        remember(run.id, {"keep_pod": "yes"})
    get_run_logger().info("Pod %s on %s at $%.2f per hour", pod.id, pod.cloud, pod.price_per_hour)
    return pod


def pod_order(run: Run, order: Order) -> PodOrder:
    """What the run asks of a cloud."""
    settings = order.settings
    return PodOrder(
        run=run.id,
        environment=pod_environment(settings),
        deadline=order.deadline(run),
        gpus=tuple(settings.gpu),
        gpu_count=settings.gpu_count,
        max_price_per_hour=settings.max_price_per_hour,
    )


def pod_environment(settings: RunnerSettings) -> dict[str, str]:
    """The variables that a pod gets: the API's address, the run's own secrets, the task file's
    `env`.
    """
    prefect = {
        "DO_NOT_TRACK": "1",
        "PREFECT_API_URL": str(PREFECT_API_URL.value()),
        # The default of 10 s would be the larger part of each step's latency.
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    secrets = {name: os.environ[name] for name in RUN_SECRETS if os.environ.get(name)}
    asked = {name: value for name, value in settings.env.items() if value is not None}
    return {**prefect, **secrets, **asked}


def _first_with_room(clouds: list[Cloud], order: PodOrder) -> Pod:
    refusals = []
    for cloud in clouds:
        try:
            return cloud.create(order)
        except NoCapacity as full:
            refusals.append(f"{cloud.name}: {full}")
    raise NoCapacity("; ".join(refusals))
