"""What a run will need and cost, for its log, before it asks for a machine."""

from __future__ import annotations

from blocks.clouds import is_rented
from blocks.prices import prices_of
from runner.estimates.estimate import Estimate, estimate
from runner.estimates.model import Model, UnknownModel
from tasks.choosing import model_of_run, source_folders
from tasks.run import Order, Run


def estimate_run(run: Run, order: Order) -> Estimate:
    """The run's estimate; what the hub or the clouds don't say now is unknown in it.

    For a run on this machine nobody is asked: it uses the GPUs that are here.
    """
    rented = [cloud for cloud in order.clouds if is_rented(cloud)]
    model: Model | None = None
    unknown = ""
    try:
        model = model_of_run(run, order.task, offline=not rented)
    except UnknownModel as error:
        unknown = str(error)
    return estimate(
        order.task.axolotl,
        order.settings,
        model,
        unknown=unknown,
        folders=source_folders(run),
        ask=lambda gpus: prices_of(rented, order.settings, gpus),
    )
