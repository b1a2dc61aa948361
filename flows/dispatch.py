"""One push event → one `finetune` run for each changed task file."""

from __future__ import annotations

from typing import Any, cast

from prefect import flow
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.logging import get_run_logger


@flow(name="dispatch")
def dispatch(repository: str, commit: str, files: list[dict[str, Any]]) -> int:
    """Start one run for each pushed task file; the same commit, path and content never start twice.

    Args:
        repository: owner/name.
        commit: the pushed commit.
        files: one {path, content} for each changed task file.
    """
    for file in files:
        parameters = {
            "task_file": file["path"],
            "repository": repository,
            "commit": commit,
            "content": file.get("content"),
        }
        started = run_deployment(
            "finetune/finetune",
            parameters=parameters,
            idempotency_key=f"{commit}:{file['path']}",
            as_subflow=False,
            timeout=0,
        )
        get_run_logger().info("%s → run %s", file["path"], cast(FlowRun, started).id)
    return len(files)
