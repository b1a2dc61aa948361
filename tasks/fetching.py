"""What the training reads from the hub is on the volume before axolotl starts, and shown on its
way; then axolotl.yml names the commits, and where the tokenised data lie.

Written down in fetched.json of the run's folder: {cache, offline, prepared, repos: [{repo, type,
revision, asked, files, bytes, seconds, way}]}. A trainer of this run is told by it
(`hub_environment`), and a later fetch takes the same commits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx
import yaml
from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from blocks.logs import log
from pod import events
from pod.fetch import prepared
from pod.fetch.cache import Cache
from pod.fetch.fetching import Fetched, Standing, fetch, list_files
from pod.fetch.inputs import Input, inputs, may_load_more
from pod.fetch.troubles import Busy, DiskFull, NoWay, Refused
from pod.rundir import RunDir, read_json, replace_text, write_json
from runner.adapt import adapt
from runner.errors import ConfigError, TrainingFailed
from runner.pinning import known, name_of, pins
from runner.secrets import scrub
from runner.sources import source_root
from runner.taskfile import TaskFile

SHOW_EVERY, TELL_EVERY = 2.0, 30.0  # seconds: on a screen, in events.jsonl
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
ASKED = ("HF_HUB_CACHE", "HF_HOME")  # a task file's `env` may want its own cache


@task
def fetch_inputs(
    folder: RunDir,
    run: str,
    task_file: TaskFile,
    commits: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Bring what the training reads from the hub to the volume, and write axolotl.yml for it; the
    commits by what was asked for. `commits` are those of an earlier pod.

    ConfigError for what the hub refuses or what does not fit on the volume, TrainingFailed when no
    way brings it.
    """
    root = _root(folder, environment)
    axolotl = yaml.safe_load(_adapted(folder, task_file, root, {}, {}))
    before = read_json(folder.fetched) or {}
    pinned = {**known(before.get("repos", [])), **(commits or {})}
    cache = hub_cache(task_file.settings.env, environment)
    wanted = [] if _is_offline(environment) else inputs(axolotl, root)
    wanted = [replace(each, commit=pinned.get(_name(each))) for each in wanted]
    fetched = _fetched(wanted, Cache(cache), environment, Shown(folder, run))
    for each in fetched:
        log().info("%s", _sentence(each))
    records = [asdict(each) for each in fetched]
    note = {
        "cache": str(cache) if fetched else None,
        "offline": bool(fetched) and _has_all(axolotl, root, fetched, Cache(cache)),
        "prepared": before.get("prepared"),
        "repos": records,
    }
    write_json(folder.fetched, note)
    write_adapted(folder, task_file, environment)
    key = prepared.key_of(_axolotl(folder), root, Path(environment["AXR_AXOLOTL_ENV"]))
    if key is not None:
        write_json(
            folder.fetched, {**note, "prepared": str(_shared(environment) / "prepared" / key)}
        )
        write_adapted(folder, task_file, environment)
    return known(records)


def write_adapted(
    folder: RunDir,
    task_file: TaskFile,
    environment: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
) -> None:
    """Write axolotl.yml, with what was fetched for this run and what an attempt overrides."""
    note = read_json(folder.fetched) or {}
    root = _root(folder, environment)
    replace_text(folder.axolotl_file, _adapted(folder, task_file, root, note, overrides or {}))


def hub_environment(folder: RunDir, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for a trainer of this run: where the downloads lie, and that all are there."""
    note = read_json(folder.fetched) or {}
    if not note.get("cache"):
        return {}
    offline = note.get("offline") and not any(environment.get(name) for name in OFFLINE)
    return {"HF_HUB_CACHE": note["cache"], **({"HF_HUB_OFFLINE": "1"} if offline else {})}


def drop_half_prepared(folder: RunDir) -> None:
    """See that no data set is left of which a trainer that died wrote only a part."""
    place = _axolotl(folder).get("dataset_prepared_path")
    for name in prepared.drop_halves(Path(str(place))) if place else []:
        log().warning("A half-written tokenised data set was taken away: %s", name)


def hub_cache(asked: Mapping[str, str | None], environment: Mapping[str, str]) -> Path:
    """The folder of downloads: on the volume, shared by its runs, unless the task file's `env`
    names another.
    """
    if asked.get("HF_HUB_CACHE"):
        return Path(environment["HF_HUB_CACHE"])
    if asked.get("HF_HOME"):
        return Path(environment["HF_HOME"]) / "hub"
    return _shared(environment) / "hub"


@dataclass
class Shown:
    """Shows a download: `fetching me/model: 3.2 of 15.0 GB · 210 MB/s · 0:56 left`."""

    folder: RunDir
    run: str
    clock: Callable[[], float] = time.monotonic
    _artifact: UUID | None = None
    _show_at: float = field(default=float("-inf"), init=False)
    _tell_at: float = field(default=float("-inf"), init=False)

    def __call__(self, standing: Standing) -> None:
        """Show it when it is time to, on the screen and in events.jsonl."""
        now, over = self.clock(), standing.bytes >= standing.total
        if now >= self._show_at or over:
            self._show_at = now + SHOW_EVERY
            self._show(standing)
        if now >= self._tell_at:
            self._tell_at = now + TELL_EVERY
            told = {key: value for key, value in asdict(standing).items() if key != "speed"}
            events.append(
                self.folder.events, "fetch", 0, 0, **told, bytes_per_second=round(standing.speed)
            )

    def _show(self, standing: Standing) -> None:
        done = 100 * standing.bytes / standing.total if standing.total else 100.0
        text = scrub(line(standing))
        try:
            if self._artifact is None:
                made = create_progress_artifact(done, key=key(self.run), description=text)
                self._artifact = cast(UUID, made)  # a coroutine only where an event loop runs
            else:
                update_progress_artifact(self._artifact, done, description=text)
        except httpx.HTTPError as away:
            log().warning("The download can't be shown now: %s", away)


def key(run: str) -> str:
    """The artifact's key."""
    return f"fetch-{run}"


def line(standing: Standing) -> str:
    """How a download stands, for people."""
    text = f"fetching: {_size(standing.bytes, standing.total)} of {_size(standing.total)}"
    if standing.speed:
        text += f" · {standing.speed / 1e6:.1f} MB/s"
    if standing.eta is not None and standing.bytes < standing.total:
        minutes, seconds = divmod(round(standing.eta), 60)
        text += f" · {minutes}:{seconds:02} left"
    return text


def _fetched(
    wanted: Sequence[Input], cache: Cache, environment: Mapping[str, str], show: Shown
) -> list[Fetched]:
    if not wanted:
        return []

    def note(text: str) -> None:
        log().warning("%s", text)

    try:
        return fetch(list_files(wanted, environment), cache, environment, show=show, note=note)
    except (Refused, DiskFull) as error:
        raise ConfigError(str(error)) from error
    except (Busy, NoWay) as error:
        raise TrainingFailed("crash", str(error)) from error


def _has_all(
    axolotl: Mapping[str, object], root: Path, fetched: Sequence[Fetched], cache: Cache
) -> bool:
    """Whether the trainer can do without the hub: an adapter as base_model names its own base."""
    adapters = cache.folder.glob("models--*/snapshots/*/adapter_config.json")
    commits = {each.revision for each in fetched if each.repo == axolotl.get("base_model")}
    is_adapter = any(path.parent.name in commits for path in adapters)
    return not is_adapter and not may_load_more(axolotl, root)


def _adapted(
    folder: RunDir,
    task_file: TaskFile,
    root: Path,
    note: Mapping[str, Any],
    overrides: Mapping[str, object],
) -> str:
    return adapt(
        task_file,
        run_dir=str(folder.path),
        source_dir=str((root / task_file.name).parent),
        root=str(root),
        overrides=overrides,
        pins=pins(task_file.axolotl, note.get("repos", [])),
        prepared=note.get("prepared"),
    ).text


def _axolotl(folder: RunDir) -> dict[str, Any]:
    found = yaml.safe_load(folder.axolotl_file.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def _root(folder: RunDir, environment: Mapping[str, str]) -> Path:
    return source_root(folder.path, Path(environment["AXR_REPOSITORY"]))


def _shared(environment: Mapping[str, str]) -> Path:
    """What the runs of a volume share. The real path: the next local pod is another folder."""
    return (Path(environment["AXR_VOLUME"]) / "cache").resolve()


def _is_offline(environment: Mapping[str, str]) -> bool:
    return environment.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true")


def _name(wanted: Input) -> str:
    return name_of(wanted.kind, wanted.repo, wanted.revision)


def _sentence(each: Fetched) -> str:
    what = f"{each.type} {each.repo} at {each.revision[:12]}: {each.files} files"
    if each.way == "cache":
        return f"{what}, on the volume already"
    speed = f", {each.bytes / each.seconds / 1e6:.1f} MB/s" if each.seconds else ""
    return f"{what}, {_size(each.bytes)} fetched in {each.seconds:.1f} s{speed} ({each.way})"


def _size(size: float, of: float | None = None) -> str:
    """In the unit that fits; of a part, in the whole's, which is written beside it."""
    unit, word = (1e9, "GB") if (of or size) >= 1e9 else (1e6, "MB")
    return f"{size / unit:.1f}" + ("" if of is not None else f" {word}")
