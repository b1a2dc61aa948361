"""Whose pod it is: one random id for each Prefect server, kept there as a variable.

Several installations may rent with one account of a cloud. Each pod carries the id of its own, and
clouds show a pod's variables in their listings; so none ends the pods of another.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from uuid import UUID, uuid4

from prefect.client.schemas.actions import VariableCreate
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL

from blocks.cloud import Pod
from tasks.api import api

VARIABLE = "axr_installation"


def installation_id() -> str:
    """This installation's id; made at the first question."""
    return _of(str(PREFECT_API_URL.value()))


def is_foreign(pod: Pod, *, run_is_known: bool, own: str) -> bool:
    """Whether a pod named like ours belongs to somebody else.

    A run that this server knows is ours, whatever the pod says. One without the id of an
    installation counts as ours too: somebody has to end it.
    """
    if not names_a_run(pod):
        return True
    return not run_is_known and pod.installation not in ("", own)


def names_a_run(pod: Pod) -> bool:
    """Whether the pod's name is one that we give: `axr-` and the id of a flow run."""
    try:
        return str(UUID(pod.run)) == pod.run
    except ValueError:
        return False


@cache
def _of(server: str) -> str:
    known = api().read_variable_by_name(VARIABLE)
    if known is None:
        made = VariableCreate(name=VARIABLE, value=uuid4().hex[:12])
        with suppress(ObjectAlreadyExists):  # another process was quicker: its id holds
            api().create_variable(made)
        known = api().read_variable_by_name(VARIABLE)
    assert known is not None, "a variable that was created or exists can be read"
    return str(known.value)
