"""What the clouds ask for a machine with each of some GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from blocks.cloud import PodOrder
from blocks.clouds import cloud as cloud_named
from runner.errors import RunnerError
from runner.settings import RunnerSettings


def prices_of(
    clouds: Sequence[str], settings: RunnerSettings, gpus: Sequence[str]
) -> dict[str, float] | None:
    """USD per hour of the pod with each of these GPUs, as the first of these clouds says that can
    be asked; None when none can.
    """
    order = PodOrder(
        run="check",
        environment={},
        deadline=datetime.now(UTC),
        gpus=tuple(gpus),
        gpu_count=settings.gpu_count[0],
        max_price_per_hour=settings.max_price_per_hour,
        image=settings.image,
        disk_gb=settings.container_disk_in_gb,
        volume_gb=settings.volume_in_gb,
        network_volume=settings.network_volume,
        cloud_type=settings.cloud_type,
        data_centers=tuple(settings.data_centers),
        min_cuda=settings.min_cuda,
        spot=settings.spot,
        max_bid_per_gpu=settings.max_bid_per_gpu,
        min_vcpu=settings.min_vcpu_count,
        min_ram_gb=settings.min_memory_in_gb,
        min_download=settings.min_download,
        min_upload=settings.min_upload,
        hours=settings.max_hours,
    )
    for name in clouds:
        try:
            return cloud_named(name).prices(order)
        except RunnerError:  # no account, a refused key, an outage: the next one may say
            continue
    return None
