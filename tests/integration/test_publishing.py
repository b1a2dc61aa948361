"""A model on its way to the hub, over real HTTP with the hub's own library, whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi, ModelCard

from flows import on_pod
from pod import events, hub_calls
from pod.publish.__main__ import publish_run
from pod.publish.card import CARD
from pod.publish.gather import gather
from pod.publish.hashes import LocalFile, local_files
from pod.publish.repository import ModelRepository
from pod.publish.upload import NotPublished, Published, publish
from pod.rescue import RescueFailed, rescue
from pod.rundir import RunDir, sha256_of, write_json
from pod.saving import NotSaved
from runner import secrets
from runner.errors import TrainingFailed
from runner.model_card import PICTURE
from tasks import publishing, safety
from tests.checkpoints import safetensors
from tests.emulators.hub import Emulator, running
from tests.emulators.hub.testing import environment, files, received, use_here
from tests.stores import RUN, trained_to_the_end
from tests.unit.runner.test_model_card import TOLD

REPO = "me/model"
SIZE = 40_000
TASK = """\
# what this is for
base_model: {base}
datasets:
  - path: {data}
    type: alpaca
learning_rate: 0.0002
hub_model_id: me/model
runner:
  cloud: local
  env: {{MY_TOKEN: "hf_FAKEFAKEFAKEFAKE1", DISCORD: "https://discord.com/api/webhooks/1/abcDEF123"}}
{more}"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    from huggingface_hub.utils import _http

    with running() as emulator:
        use_here(monkeypatch)
        monkeypatch.setitem(_http.http_backoff.__kwdefaults__ or {}, "base_wait_time", 0.001)
        monkeypatch.setattr(hub_calls, "WAIT_S", 0.001)
        yield emulator


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    """A completed training on a pod's volume."""
    made = RunDir(tmp_path / "vol" / RUN)
    made.path.mkdir(parents=True)
    write_task(made)
    trained_to_the_end(made, size=SIZE)
    events.append(made.events, "eval", 1, 20, eval_loss=0.75)
    write_json(made.path / "told.json", TOLD.plain())
    return made


def write_task(
    run_dir: RunDir, base: str = "meta/base", data: str = "org/rows", more: str = ""
) -> None:
    run_dir.task_file.write_text(TASK.format(base=base, data=data, more=more))


def write_fetched(run_dir: RunDir, base: str) -> None:
    """What the downloads of the pod leave."""
    repos = [
        {"repo": base, "type": "dataset", "revision": "fff", "asked": None},
        {"repo": base, "type": "model", "revision": "other", "asked": "v2"},
        {"repo": base, "type": "model", "revision": "abc123", "asked": None},
    ]
    write_json(run_dir.path / "fetched.json", {"cache": "/c", "offline": True, "repos": repos})


@contextlib.contextmanager
def unlearnt() -> Iterator[None]:
    """What a process learns of secrets it knows to its end; tests share one."""
    before = dict(secrets._learnt)
    try:
        yield
    finally:
        secrets._learnt.clear()
        secrets._learnt.update(before)


def to_hub(run_dir: RunDir, hub: Emulator, home: Path, token: str = "hf_write") -> Published:
    """What the process on the pod does."""
    gather(run_dir)
    with unlearnt():
        return publish_run(run_dir, REPO, {**os.environ, **environment(hub, home, token)})


def repository(
    hub: Emulator, slept: list[float] | None = None, token: str = "hf_write"
) -> ModelRepository:
    return ModelRepository(
        REPO,
        {"HF_ENDPOINT": hub.url, "HF_TOKEN": token},
        sleep=(slept if slept is not None else []).append,
    )


def assert_same(hub: Emulator, model: Path) -> None:
    """The hub lists exactly what lies here, by the hashes of both."""
    there = {name: (file["size"], file["oid"]) for name, file in files(hub, REPO).items()}
    here = {
        name: (file.size, file.sha256() if name.endswith((".safetensors", ".png")) else file.blob())
        for name, file in local_files(model).items()
    }
    assert there == here


def requests(hub: Emulator, path: str) -> list[dict[str, Any]]:
    return [each for each in hub.state["requests"] if re.search(path, each["path"])]


def test_a_model_goes_up_with_its_card_and_is_compared(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that a pod starts; private, with the picture, each file by its hash."""
    said: list[str] = []
    log = SimpleNamespace(info=lambda text, *a: said.append(text % a), warning=said.append)
    monkeypatch.setattr(publishing, "log", lambda: log)
    (run_dir.out / CARD).write_text("axolotl's own card, with the raw file")
    gather(run_dir)
    known = {**os.environ, **environment(hub, tmp_path), "HF_HUB_OFFLINE": "1"}
    assert publishing.upload.fn(run_dir, REPO, TOLD.plain(), known) == REPO
    assert said == ["me/model holds the model: 4 files, 3 sent"]
    assert hub.state["repos"][REPO]["private"]
    assert_same(hub, run_dir.path / "model")
    assert set(files(hub, REPO)) == {"model.safetensors", "config.json", CARD, PICTURE}
    got = HfApi(endpoint=hub.url, token="hf_write").hf_hub_download(
        REPO, CARD, cache_dir=tmp_path / "cache"
    )
    card = ModelCard.load(got)
    assert card.data.base_model == "meta/base"
    assert card.data.datasets == ["org/rows"]
    for item in (
        "0.75",
        "0.05",
        "20 of",
        "# what this is for",
        "hub_model_id: me/model",
        "wandb.ai",
    ):
        assert item in card.text, item
    assert "runner:" not in card.text
    assert "raw file" not in card.text
    assert (run_dir.path / "model" / PICTURE).read_bytes().startswith(b"\x89PNG")


def test_what_the_hub_has_already_is_not_sent_again(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """A publishing that is repeated makes no commit; of a change only that goes over."""
    assert to_hub(run_dir, hub, tmp_path).sent == 3
    commits = hub.state["repos"][REPO]["commits"]
    puts = len(requests(hub, "/storage/upload"))
    assert to_hub(run_dir, hub, tmp_path).sent == 0
    assert hub.state["repos"][REPO]["commits"] == commits
    assert len(requests(hub, "/storage/upload")) == puts
    (run_dir.path / "model" / "config.json").write_text('{"changed": true}')
    assert to_hub(run_dir, hub, tmp_path).sent == 1
    assert len(requests(hub, "/storage/upload")) == puts


def test_a_transfer_that_breaks_off_goes_on_where_it_was(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """H50: after a second process has finished it, what is there is what lies here."""
    hub.set([{"match": "PUT /storage/", "drop_after": SIZE // 2, "times": 3}])
    assert to_hub(run_dir, hub, tmp_path).files == 4
    assert_same(hub, run_dir.path / "model")


# The flow on a rented pod, with everything real but Prefect


@pytest.fixture
def pod(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Its environment; `only_copy` in it is what the parent was told."""
    words = {**environment(hub, tmp_path), "AXR_CLOUD": "runpod", "AXR_STORE": ""}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    for name in ("gather_model", "merge_adapter", "upload"):
        monkeypatch.setattr(on_pod, name, getattr(on_pod, name).fn)
    quiet = SimpleNamespace(**dict.fromkeys(("info", "warning", "exception", "critical"), print))
    for module in (on_pod, publishing, safety):
        monkeypatch.setattr(module, "log", lambda: quiet)
    monkeypatch.setattr(on_pod, "alive", lambda run: contextlib.nullcontext(run_dir))
    monkeypatch.setattr(safety, "leave_words", lambda flow_run, said: words.update(said))

    # In this process: twenty new interpreters take a minute. Others start them for real.
    def outcome(folder: RunDir, repository: str, environment: Mapping[str, str]) -> dict[str, Any]:
        try:
            with unlearnt():
                return {"published": asdict(publish_run(folder, repository, environment))}
        except NotPublished as error:
            return {"error": str(error)}

    def save(folder: RunDir, run: str, environment: Mapping[str, str], *, within: float) -> str:
        try:
            return rescue(folder, run, environment)
        except RescueFailed as error:
            raise NotSaved(str(error)) from error

    monkeypatch.setattr(publishing, "_outcome", outcome)
    monkeypatch.setattr(safety, "save_only_copy", save)
    return words


def is_whole_elsewhere(store: Path, run_dir: RunDir) -> bool:
    """Whether the store holds the weights as they are here."""
    copy = store / RUN / "model" / "model.safetensors"
    return copy.is_file() and sha256_of(copy) == sha256_of(run_dir.out / "model.safetensors")


@pytest.mark.parametrize("tenth", range(10))
def test_an_upload_that_fails_at_any_byte_is_not_taken_for_one(
    hub: Emulator,
    run_dir: RunDir,
    tmp_path: Path,
    pod: dict[str, str],
    tenth: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H47, H49, H50: where the hub can't be written to, the model is in the store before the pod
    may go; where there is no store either, the parent is told that this pod has the only copy.
    """
    at = SIZE * tenth // 10
    hub.set([{"match": "PUT /storage/", "drop_after": at, "times": 10_000}])
    assert not is_whole_elsewhere(tmp_path / "store", run_dir)
    monkeypatch.setenv("AXR_STORE", str(tmp_path / "store"))
    state = on_pod.publish.fn(RUN, REPO, TOLD.plain())
    assert state.is_failed()
    assert "can't be uploaded to me/model" in str(state.message)
    assert "saved: the model in file://" in str(state.message)
    assert "only_copy" not in pod
    assert is_whole_elsewhere(tmp_path / "store", run_dir)
    assert not run_dir.finished.exists()
    assert "model.safetensors" not in files(hub, REPO)

    monkeypatch.setenv("AXR_STORE", "")
    state = on_pod.publish.fn(RUN, REPO, TOLD.plain())
    assert state.is_failed()
    assert "on this pod alone" in str(state.message)
    assert pod["only_copy"]


def test_an_upload_that_succeeds_is_completed(
    hub: Emulator, run_dir: RunDir, pod: dict[str, str]
) -> None:
    """The other side of the above: else it could not fail."""
    state = on_pod.publish.fn(RUN, REPO, TOLD.plain())
    assert state.is_completed()
    assert state.message == REPO
    assert run_dir.finished.exists()
    assert_same(hub, run_dir.path / "model")


def test_what_did_not_complete_is_never_published(
    hub: Emulator, run_dir: RunDir, pod: dict[str, str]
) -> None:
    """Whoever asks: an alarm on the volume is believed before the word of a parent."""
    events.append(run_dir.events, "alarm", 1, 20, alarm="jump", onset_step=12, reason="it jumped")
    state = on_pod.publish.fn(RUN, REPO, TOLD.plain())
    assert state.is_failed()
    assert "nothing is published of a training that did not complete: loss_spike" in str(
        state.message
    )
    assert REPO not in hub.state["repos"]


# What the hub refuses, and what it has no time for


@pytest.mark.parametrize("status", [401, 403, 413])
def test_what_the_hub_refuses_for_good_is_asked_twice_and_no_more(
    hub: Emulator, run_dir: RunDir, status: int
) -> None:
    """H49: a pod must not be paid for while it asks for ever."""
    hub.set(
        [
            {
                "match": "/commit/",
                "status": status,
                "message": "storage patterns tripped",
                "times": 99,
            }
        ]
    )
    slept: list[float] = []
    with pytest.raises(NotPublished, match=f"{status} storage patterns tripped"):
        publish(repository(hub, slept), gather(run_dir), private=True)
    assert len(requests(hub, "/commit/")) == 2
    assert len(slept) == 1


def test_a_refusal_by_mistake_is_asked_once_more(hub: Emulator, run_dir: RunDir) -> None:
    """A gateway may have said it."""
    hub.set([{"match": "/commit/", "status": 403}])
    publish(repository(hub), gather(run_dir), private=True)
    assert_same(hub, run_dir.path / "model")


@pytest.mark.parametrize(("token", "words"), [("hf_read", "write access"), ("hf_none", "HF_TOKEN")])
def test_a_token_that_opens_nothing_has_one_clear_reason(
    hub: Emulator, run_dir: RunDir, token: str, words: str
) -> None:
    """H47."""
    with pytest.raises(NotPublished, match=words):
        publish(repository(hub, token=token), gather(run_dir), private=True)


def test_a_busy_hub_says_how_long_to_wait(hub: Emulator, run_dir: RunDir) -> None:
    """H49: Retry-After, and the hub's own header, are believed."""
    hub.set(
        [
            {"match": "/commit/", "status": 429, "retry_after": 7},
            {"match": "/commit/", "status": 429, "retry_after": 55, "ratelimit": True},
        ]
    )
    slept: list[float] = []
    publish(repository(hub, slept), gather(run_dir), private=True)
    assert slept == [7.0, 55.0]
    assert_same(hub, run_dir.path / "model")


def test_a_hub_that_stays_away_is_given_up(
    hub: Emulator, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H49: after some tries, each later than the one before."""
    monkeypatch.setattr(hub_calls, "WAIT_S", 2.0)
    hub.set([{"match": "/commit/", "status": 503, "times": 999}])
    slept: list[float] = []
    with pytest.raises(NotPublished, match="503"):
        publish(repository(hub, slept), gather(run_dir), private=True)
    assert slept == [2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize(
    ("refusals", "said"),
    [(1, "with the least metadata: "), (2, "without metadata: "), (3, "no card, the hub did not")],
)
def test_a_card_that_the_hub_refuses_costs_no_weights(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, refusals: int, said: str
) -> None:
    """H48: it becomes plainer until it is taken; the weights have gone before."""
    hub.set([{"match": "validate-yaml", "status": 400, "times": refusals}])
    done = to_hub(run_dir, hub, tmp_path)
    assert done.card.startswith(said)
    there = files(hub, REPO)
    assert there["model.safetensors"]["oid"] == sha256_of(run_dir.out / "model.safetensors")
    assert (CARD in there) == (refusals < 3)
    if refusals < 3:
        assert_same(hub, run_dir.path / "model")


def test_local_paths_in_the_task_file_are_no_trouble(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """H48: the card is taken as it is, and says what they were."""
    write_task(run_dir, base="./models/local-llama", data="data/toy.jsonl")
    assert to_hub(run_dir, hub, tmp_path).card == ""
    text = (run_dir.path / "model" / CARD).read_text()
    assert "`./models/local-llama`" in text
    assert "`data/toy.jsonl`" in text


def test_the_licence_is_the_bases_and_its_revision_the_one_that_was_fetched(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """Not whatever the hub has by now."""
    api = HfApi(endpoint=hub.url, token="hf_write")
    api.create_repo("me/base")
    card = b"---\nlicense: mit\n---\n# Base\n"
    api.upload_file(path_or_fileobj=card, path_in_repo=CARD, repo_id="me/base")
    write_task(run_dir, base="me/base")
    write_fetched(run_dir, "me/base")
    to_hub(run_dir, hub, tmp_path)
    found = ModelCard.load(run_dir.path / "model" / CARD)
    assert found.data.license == "mit"
    assert "[me/base](https://huggingface.co/me/base), revision `abc123`" in found.text


def test_an_adapter_names_its_base_as_everybody_knows_it(hub: Emulator, tmp_path: Path) -> None:
    """Not the place where the pod had a copy of it, and at the revision that it was trained on."""
    run_dir = RunDir(tmp_path / "vol" / RUN)
    run_dir.path.mkdir(parents=True)
    write_task(run_dir)
    trained_to_the_end(run_dir, weights="adapter_model.safetensors")
    own = {"base_model_name_or_path": "/workspace/cache/base", "revision": None, "r": 8}
    (run_dir.out / "adapter_config.json").write_text(json.dumps(own))
    write_fetched(run_dir, "meta/base")
    to_hub(run_dir, hub, tmp_path)
    found = json.loads((run_dir.path / "model" / "adapter_config.json").read_text())
    assert found == {"base_model_name_or_path": "meta/base", "revision": "abc123", "r": 8}
    assert_same(hub, run_dir.path / "model")
    assert json.loads((run_dir.out / "adapter_config.json").read_text()) == own


# Whom it shows what


def test_no_secret_of_the_run_reaches_the_hub(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H46: wherever the trainer or a base model has left one, in whatever form."""
    token, given = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "a-secret-by-name-only"
    monkeypatch.setenv("WANDB_API_KEY", token)
    monkeypatch.setenv("GIVEN", given)
    monkeypatch.setenv("AXR_SECRETS", "GIVEN")
    write_task(run_dir, more=f"# my key is {token}\nwandb_name: {given}\n")
    out = run_dir.out
    (out / "config.json").write_text(json.dumps({"note": f"by {given}", "n": 1.5}))
    (out / "tokenizer.json").write_text(json.dumps({"vocab": {given: 1, "password": 12345678}}))
    (out / "chat_template.jinja").write_text("{# hf_FAKEFAKEFAKEFAKE1 #}{{ x }}")
    (out / "adapter.bin").write_bytes(b"\0" + given.encode() + b"\0")
    header = safetensors(bytes(64), name=f"w {token}")
    (out / "model.safetensors").write_bytes(header)
    to_hub(run_dir, hub, tmp_path)
    everything = received(hub, REPO)
    assert len(everything) > 8
    for secret in (token, given, "hf_FAKEFAKEFAKEFAKE1", "webhooks/1/abcDEF123"):
        assert [name for name, content in everything.items() if secret.encode() in content] == []
    model = run_dir.path / "model"
    assert json.loads((model / "config.json").read_text()) == {
        "note": "by [secret GIVEN]",
        "n": 1.5,
    }
    words = json.loads((model / "tokenizer.json").read_text())["vocab"]
    assert words == {"x" * len(given): 1, "password": 12345678}, "a vocabulary keeps its words"
    assert (model / "model.safetensors").stat().st_size == len(header)
    assert given in (out / "config.json").read_text(), "the trainer's own file is not touched"


@pytest.mark.parametrize(("more", "private"), [("", True), ("  hub_private_repo: false\n", False)])
def test_a_repository_is_private_unless_told_otherwise(
    hub: Emulator, run_dir: RunDir, tmp_path: Path, more: str, private: bool
) -> None:
    """When it is made."""
    write_task(run_dir, more=more)
    to_hub(run_dir, hub, tmp_path)
    assert hub.state["repos"][REPO]["private"] is private


def test_a_repository_that_exists_keeps_its_visibility_and_its_other_files(
    hub: Emulator, run_dir: RunDir, tmp_path: Path
) -> None:
    """But weights of an earlier model go: a loader would take them for this one's."""
    api = HfApi(endpoint=hub.url, token="hf_write")
    api.create_repo(REPO, private=False)
    for name in ("adapter_model.safetensors", "adapter_config.json", "notes.txt", "model.md"):
        api.upload_file(path_or_fileobj=b"old", path_in_repo=name, repo_id=REPO)
    to_hub(run_dir, hub, tmp_path)
    assert not hub.state["repos"][REPO]["private"]
    names = {"model.safetensors", "config.json", CARD, PICTURE, "notes.txt", "model.md"}
    assert set(files(hub, REPO)) == names


# What only a listing shows


def test_a_commit_that_did_nothing_is_found_out(
    hub: Emulator, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H50: an answer of success proves nothing."""
    monkeypatch.setattr(ModelRepository, "commit", lambda *args: None)
    with pytest.raises(NotPublished, match=r"does not hold config\.json, model\.safetensors as"):
        publish(repository(hub), gather(run_dir), private=True)


def test_a_file_that_the_repository_ignores_is_found_out(hub: Emulator, run_dir: RunDir) -> None:
    """H50: the library leaves it out without an error."""
    api = HfApi(endpoint=hub.url, token="hf_write")
    api.create_repo(REPO)
    api.upload_file(path_or_fileobj=b"*.safetensors\n", path_in_repo=".gitignore", repo_id=REPO)
    with pytest.raises(NotPublished, match=r"does not hold model\.safetensors as it is"):
        publish(repository(hub), gather(run_dir), private=True)


def test_many_files_go_in_several_commits(
    hub: Emulator, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repetition then has less to do."""
    for number in range(6):
        (run_dir.out / f"extra-{number}.txt").write_text(str(number))
    monkeypatch.setattr("pod.publish.upload.MOST_FILES", 3)
    publish(repository(hub), gather(run_dir), private=True)
    assert hub.state["repos"][REPO]["commits"][1:] == ["Upload the trained model"] * 3
    assert_same(hub, run_dir.path / "model")


def test_a_process_that_says_nothing_has_published_nothing(
    hub: Emulator, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed; one that takes too long is ended."""
    gather(run_dir)
    monkeypatch.setattr(publishing.sys, "executable", "/bin/true")
    with pytest.raises(TrainingFailed, match=r"left no word, see publish\.log"):
        publishing.upload.fn(run_dir, REPO, None, {})
    slow = run_dir.path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(publishing.sys, "executable", str(slow))
    monkeypatch.setattr(publishing, "LEAST_SECONDS", 0.2)
    with pytest.raises(TrainingFailed, match="did not end within 0 s"):
        publishing.upload.fn(run_dir, REPO, None, {})


def test_hashes_are_git_s_and_the_files(tmp_path: Path) -> None:
    """Known ones: `git hash-object` of a file with `hello\\n`, and its SHA-256."""
    path = tmp_path / "x"
    path.write_text("hello\n")
    file = LocalFile.of(path)
    assert file.blob() == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert file.sha256() == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
