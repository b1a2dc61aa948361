"""The table of pods in the UI: one Markdown artifact, key `pods`, that each sweep writes anew."""

from __future__ import annotations

from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort

from tasks.api import api, write

KEY = "pods"
DESCRIPTION = "All pods of ours on all clouds, at the last look of the sweep"


def show_pods(table: str) -> None:
    """Write the table; always into the same artifact, or a day would leave 1440 of them."""
    prefect = api()
    found = prefect.read_artifacts(
        artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=[KEY])),
        sort=ArtifactSort.CREATED_DESC,
        limit=1,
    )
    if found:
        change = ArtifactUpdate(data=table, description=DESCRIPTION)
        write(lambda: prefect.update_artifact(found[0].id, change))
    else:
        made = ArtifactCreate(key=KEY, type="markdown", data=table, description=DESCRIPTION)
        write(lambda: prefect.create_artifact(made))
