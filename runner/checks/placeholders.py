"""Words that were to be replaced before the file is used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from runner.axolotl_keys import places
from runner.block import dotted
from runner.finding import Finding, stop, warn
from runner.taskfile import TaskFile

ALSO = ("wandb_project", "wandb_entity", "wandb_name", "mlflow_tracking_uri")
_CERTAIN = re.compile(r"<[^<>]+>|(?<![\w.-])path/to/|\b(FIXME|TODO|CHANGE[_-]?ME|REPLACE[_-]?ME)\b")
_LIKELY = re.compile(
    r"(?i)\byour[-_ ]?(hf[-_])?(user(name)?|name|org(ani[sz]ation)?|model|data(set)?|repo|entity)\b"
)


def is_placeholder(value: str) -> bool:
    """Whether a value is certainly none that was meant."""
    return bool(_CERTAIN.search(value))


def placeholder_findings(task: TaskFile) -> Iterator[Finding]:
    """A stop for what is certainly one in a path or a name, a warning for what looks like it.

    $NAME, ~ and {{ }} are refused when the file is read.
    """
    named = [((key,), task.axolotl.get(key)) for key in ALSO]
    for path, value in (*places(task.axolotl), *named):
        if not isinstance(value, str):
            continue
        certain, likely = _CERTAIN.search(value), _LIKELY.search(value)
        found = certain or likely
        if found:
            key = dotted(path)
            message = f"{key}: {found.group()} looks like a placeholder"
            make = stop if certain else warn
            yield make("placeholder", message, "write what is meant", key=key, at=task.place(*path))
