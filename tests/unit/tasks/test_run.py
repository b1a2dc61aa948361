import pytest

from runner.taskfile import parse_task_file
from tasks.run import asked_clouds


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ("{}", ("local",)),
        ("{cloud: [runpod, vast]}", ("runpod", "vast")),
        ("{cloud: [runpod, vast], spot: true}", ("vast", "runpod")),
        ("{cloud: [vast, runpod], spot: true}", ("vast", "runpod")),
        ("{cloud: [runpod, local, vast], pod_type: INTERRUPTABLE}", ("local", "vast", "runpod")),
        ("{cloud: [runpod, local], spot: true}", ("runpod", "local")),
        ("{cloud: runpod, spot: true}", ("runpod",)),
    ],
)
def test_clouds_are_asked_as_listed_but_for_interruptible_machines(
    settings: str, asked: tuple[str, ...]
) -> None:
    """RunPod has none any more; on demand there is what is left when the others have no room."""
    task = parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml")
    assert asked_clouds(task.settings) == asked
