"""What a run asks of a cloud: the machine of its task file, and the variables of its pod."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

from blocks.cloud import INSTALLATION, PodOrder
from blocks.clouds import is_rented
from blocks.grants import granted
from runner.gateway import gateway_url
from runner.home import REPOSITORY, home
from runner.renting import volume_path
from runner.secrets import NAMES
from runner.settings import NEVER, RunnerSettings
from runner.task_secrets import named_secrets, registry_login
from runner.tokens import gateway_key, pod_token
from runner.wandb_run import OFF
from tasks.choosing import with_gpus
from tasks.lease import SECONDS
from tasks.run import Order, Run
from tasks.wandb_story import wandb_of
from tasks.whose_pods import installation_id

# What a run itself needs; nothing else of the control side's environment reaches a pod.
PASSED_ON = ("HF_TOKEN", "HF_ENDPOINT", "WANDB_API_KEY", "WANDB_BASE_URL")
PASSED_ON_FOR_S3 = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
)
# A pod that is being ended can still say so.
TOKEN_OUTLIVES = timedelta(hours=1)


def pod_order(
    run: Run,
    order: Order,
    cloud: str,
    *,
    avoid: frozenset[str] = frozenset(),
    gpu_count: int | None = None,
) -> PodOrder:
    """What this run asks of this cloud; `avoid` holds places whose machines did not start,
    `gpu_count` is one of the task file's (None: its first).
    """
    settings = order.settings
    wanted = PodOrder(
        run=run.id,
        environment=pod_environment(run, order, cloud),
        deadline=order.deadline(run),
        gpu_count=gpu_count or settings.gpu_count[0],
        max_price_per_hour=settings.max_price_per_hour,
        start_script=start_script() if is_rented(cloud) else "",
        image=settings.image,
        disk_gb=settings.container_disk_in_gb,
        volume_gb=settings.volume_in_gb,
        volume_path=volume_path(settings),
        network_volume=settings.network_volume,
        ports=tuple(settings.ports),
        ssh=settings.ssh or not settings.one_shot,  # what is kept is kept to look into
        jupyter=settings.jupyter and not settings.one_shot,
        template=settings.template_id,
        registry=registry_login(settings, granted(named_secrets(settings))),
        cloud_type=settings.cloud_type,
        data_centers=tuple(settings.data_centers),
        min_cuda=settings.min_cuda,
        avoid=avoid,
        spot=settings.spot,
        max_bid_per_gpu=settings.max_bid_per_gpu,
        min_vcpu=settings.min_vcpu_count,
        min_ram_gb=settings.min_memory_in_gb,
        min_download=settings.min_download,
        min_upload=settings.min_upload,
        hours=max(0.0, (order.deadline(run) - datetime.now(UTC)) / timedelta(hours=1)),
    )
    return with_gpus(run, order, wanted, cloud)


def pod_environment(run: Run, order: Order, cloud: str) -> dict[str, str]:
    """The variables that a pod gets: the API's address, the run's own secrets, the task file's
    `env`, and what that asks for by name.
    """
    settings = order.settings
    names = (*PASSED_ON, *(PASSED_ON_FOR_S3 if _stores_in_s3(settings) else ()))
    secrets = {name: os.environ[name] for name in names if os.environ.get(name)}
    asked = {name: value for name, value in settings.env.items() if value is not None}
    given = _given(settings)
    joined = wandb_of(run, order)
    wandb = joined.environment() if joined else OFF
    common = {
        "DO_NOT_TRACK": "1",
        # The default of 10 s would be the larger part of each step's latency.
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    if not is_rented(cloud):
        address = {"PREFECT_API_URL": str(PREFECT_API_URL.value())}
        return {**common, **address, **secrets, **asked, **given, **_for_guard(settings), **wandb}
    own = {**_for_guard(settings), **_rented(run, order, cloud), **wandb}
    return {**asked, **common, **secrets, **given, **own}


def start_script() -> str:
    """What the container of a rented pod runs, without its comments."""
    lines = (REPOSITORY / "pod" / "start.sh").read_text().splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _given(settings: RunnerSettings) -> dict[str, str]:
    """The secrets that the task file's `env` names, and their names, for they need not look like
    any.
    """
    given = granted([name for name, value in settings.env.items() if value is None])
    return {**given, NAMES: ",".join(given)} if given else {}


def _for_guard(settings: RunnerSettings) -> dict[str, str]:
    """When the pod ends itself, beside its deadline: seconds without a lease, and seconds since its
    creation; those that the task file sets to -1, or not at all, are never.
    """
    timers = {
        "AXR_STOP_AFTER": settings.stop_after,
        "AXR_TERMINATE_AFTER": settings.terminate_after,
    }
    return {
        "AXR_LEASE": str(SECONDS),
        **({} if settings.one_shot else {"AXR_KEEP": "yes"}),
        **{name: str(seconds) for name, seconds in timers.items() if seconds not in (None, NEVER)},
    }


def _rented(run: Run, order: Order, cloud: str) -> dict[str, str]:
    gateway = gateway_url(cloud)
    expires = order.deadline(run) + TOKEN_OUTLIVES
    token = pod_token(gateway_key(home().gateway_key), run.id, expires.timestamp())
    jupyter = order.settings.jupyter and not order.settings.one_shot
    optional = {
        "AXR_PACKAGES": "s3fs" if _stores_in_s3(order.settings) else "",
        "JUPYTER_DISABLE": "" if jupyter else "1",
        # The worker's log names each run's address in the UI, which the gateway does not have.
        "PREFECT_UI_URL": str(PREFECT_UI_URL.value() or ""),
    }
    return {
        **{name: value for name, value in optional.items() if value},
        "AXR_CLOUD": cloud,
        "AXR_RUN": run.id,
        INSTALLATION: installation_id(),
        "AXR_VOLUME": str(Path(volume_path(order.settings)) / "axr"),
        "AXR_DEADLINE": str(int(order.deadline(run).timestamp())),
        "AXR_GATEWAY": gateway,
        "AXR_TOKEN": token,
        "PREFECT_API_URL": f"{gateway}/api",
        "PREFECT_CLIENT_CUSTOM_HEADERS": json.dumps({"Authorization": f"Bearer {token}"}),
    }


def _stores_in_s3(settings: RunnerSettings) -> bool:
    return (settings.checkpoint_store or "").startswith("s3://")
