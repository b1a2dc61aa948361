"""A gathered model onto the hub, and proved to be there.

The weights go first and by themselves, in commits of some files each, so that a card that the hub
refuses costs no model, and a transfer that breaks off goes on where it was. "Published" means one
thing: the hub lists every file with the hash that it has here. No exit code, no answer to a commit
and no setting of the trainer is taken for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from pod.hub_calls import status_of, words_of
from pod.publish.card import CARD
from pod.publish.hashes import LocalFile, RemoteFile, local_files
from pod.publish.repository import ModelRepository
from pod.rundir import replace_text
from runner.card_metadata import plainer

MOST_FILES = 50  # of one commit
MOST_BYTES = 20e9
# Weights of an earlier upload that this model does not have: a loader might take them for its own.
_WEIGHTS = re.compile(
    r"(adapter/)?((adapter_|pytorch_)?model(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?"
    r"|adapter_config\.json)"
)
_ADVICE = {
    401: "HF_TOKEN is missing, wrong or has run out",
    402: "the account's storage is used up",
    403: "HF_TOKEN needs write access to it",
    404: "there is no such repository for HF_TOKEN",
    413: "the hub takes no file of this size",
}
ERRORS = (HfHubHTTPError, HFValidationError, httpx2.HTTPError, OSError, RuntimeError, ValueError)


class NotPublished(RuntimeError):
    """The hub does not have the model as it is here; the text is the one reason."""


@dataclass(frozen=True)
class Published:
    """The model is on the hub, verified file by file; `sent` counts what went over this time.

    `card` is empty when the hub took the card as it was, else what became of it.
    """

    repository: str
    files: int
    sent: int
    card: str = ""


def publish(repository: ModelRepository, model: Path, *, private: bool) -> Published:
    """Bring the folder onto the hub; NotPublished with one reason when that can't be, or is not
    proved.
    """
    files = local_files(model)
    card = files.pop(CARD, None)
    try:
        repository.make(private=private)
        sent = _send_all(repository, files)
        said = "" if card is None else _send_card(repository, card)
        if card is not None and not said.startswith("no card"):
            files[CARD] = LocalFile.of(card.path)
        wrong = _differing(files, repository.tree())
    except ERRORS as error:
        raise NotPublished(_reason(repository.name, error)) from error
    if wrong:
        raise NotPublished(_unlike(repository.name, wrong))
    return Published(repository.name, len(files), sent, said)


def _send_all(repository: ModelRepository, files: Mapping[str, LocalFile]) -> int:
    """Send what the hub does not list as it is here; how many files that were."""
    there = repository.tree()
    wanted = _differing(files, there)
    for batch in _batches(wanted):
        repository.commit("Upload the trained model", batch)
    stale = [name for name in there if name not in files and _WEIGHTS.fullmatch(name)]
    if stale:
        repository.commit("Delete weights of an earlier model", {}, stale)
    return len(wanted)


def _send_card(repository: ModelRepository, card: LocalFile) -> str:
    """Send the card, plainer and plainer while the hub refuses it; what became of it, empty when it
    went as it was. The file here is as the one there.
    """
    versions = plainer(card.path.read_text(encoding="utf-8"))
    names = ("", "with the least metadata", "without metadata")
    refusals: list[str] = []
    for text, name in zip(versions, names, strict=False):
        replace_text(card.path, text)
        fresh = LocalFile.of(card.path)
        try:
            if not _differing({CARD: fresh}, repository.tree()):
                return name and f"{name}: {refusals[0]}"
            repository.commit("Describe the model", {CARD: fresh})
        except ERRORS as error:
            refusals.append(" ".join(str(error).split())[:300])
            if not _is_refused(error):
                break
        else:
            return name and f"{name}: {refusals[0]}"
    replace_text(card.path, versions[0])
    return f"no card, the hub did not take it: {refusals[-1]}"


def _is_refused(error: Exception) -> bool:
    """Whether it is the card itself that the hub does not like: the library says so as
    ValueError.
    """
    return isinstance(error, ValueError) or status_of(error) == 400


def _differing(
    files: Mapping[str, LocalFile], there: Mapping[str, RemoteFile]
) -> dict[str, LocalFile]:
    return {
        name: file
        for name, file in files.items()
        if name not in there or not there[name].is_same(file)
    }


def _batches(files: Mapping[str, LocalFile]) -> Iterator[dict[str, LocalFile]]:
    batch: dict[str, LocalFile] = {}
    for name, file in files.items():
        size = sum(each.size for each in batch.values())
        if batch and (len(batch) == MOST_FILES or size + file.size > MOST_BYTES):
            yield batch
            batch = {}
        batch[name] = file
    if batch:
        yield batch


def _unlike(repository: str, wrong: Mapping[str, LocalFile]) -> str:
    named = ", ".join([*wrong][:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    return f"{repository} on the hub does not hold {named} as it is here"


def _reason(repository: str, error: Exception) -> str:
    status = status_of(error)
    advice = f"; {_ADVICE[status]}" if status in _ADVICE else ""
    return f"the model can't be uploaded to {repository}: {words_of(error)}{advice}"
