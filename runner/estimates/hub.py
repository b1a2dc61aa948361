"""Reads the shape of a base model: from a folder, or from a Hugging Face hub without its weights.

The hub is asked for the repository's files and their sizes, for config.json, and for the headers of
the safetensors files where it has not counted their values itself. Each call has seconds, not more.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    NotASafetensorsRepoError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SafetensorsParsingError,
)

from runner.estimates.model import HubAway, Model, UnknownModel, model_of

TIMEOUT = 5.0
MOST_HEADER = 100_000_000  # bytes; the safetensors format allows no more
OUTPUT_LAYERS = ("lm_head.weight", "output.weight", "embed_out.weight")


def read_model(
    name: str, *, revision: str | None = None, folders: Sequence[Path] = (), offline: bool = False
) -> Model:
    """The model of this name: a folder below one of `folders`, else a repository of the hub that
    HF_ENDPOINT names; UnknownModel with the reason.
    """
    if not name:
        raise UnknownModel("no base_model is named")
    here = next((f / name for f in folders if (f / name / "config.json").is_file()), None)
    if here:
        return _of_folder(name, here)
    if offline:
        raise UnknownModel("the hub is not asked (--offline)")
    try:
        return _of_hub(name, revision, HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None))
    except GatedRepoError:
        raise UnknownModel("it is gated, and the token, if any, may not read it") from None
    except RevisionNotFoundError:
        raise UnknownModel(f"it has no revision {revision}") from None
    except (RepositoryNotFoundError, HFValidationError):
        raise UnknownModel("the hub has no such model, or a private one") from None
    except LocalEntryNotFoundError as error:
        raise HubAway(f"the hub does not answer: {_short(error)}") from None
    except EntryNotFoundError:
        raise UnknownModel("it has no config.json") from None
    except OfflineModeIsEnabled:
        raise UnknownModel("the hub is not asked (HF_HUB_OFFLINE)") from None
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        raise HubAway(f"the hub does not answer: {_short(error)}") from None
    except ValueError as error:
        raise UnknownModel(f"its config.json can't be read: {_short(error)}") from None


def _of_hub(name: str, revision: str | None, hub: HfApi) -> Model:
    found = hub.model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT)
    sizes = {each.rfilename: each.size or 0 for each in found.siblings or []}
    file = hub.hf_hub_download(name, "config.json", revision=found.sha, etag_timeout=TIMEOUT)
    config = _mapping(json.loads(Path(file).read_text("utf-8")))
    header, untied = _counted(name, found, hub)
    return model_of(name, config, header=header, untied=untied, download=_weights(sizes))


def _counted(name: str, found: Any, hub: HfApi) -> tuple[Mapping[str, int] | None, bool | None]:
    """Values by type, and whether there is an output layer; None where that is not known."""
    if found.safetensors is not None and found.safetensors.parameters:
        return dict(found.safetensors.parameters), None
    try:
        metadata = hub.get_safetensors_metadata(name, revision=found.sha, timeout=TIMEOUT)
    except (NotASafetensorsRepoError, SafetensorsParsingError):
        return None, None
    values = {str(kind): count for kind, count in metadata.parameter_count.items()}
    return values, any(each in metadata.weight_map for each in OUTPUT_LAYERS)


def _of_folder(name: str, folder: Path) -> Model:
    values: Counter[str] = Counter()
    tensors: set[str] = set()
    files = sorted(folder.glob("*.safetensors"))
    try:
        config = _mapping(json.loads((folder / "config.json").read_text("utf-8")))
        for file in files:
            for tensor, facts in _header(file).items():
                tensors.add(tensor)
                values[facts["dtype"]] += _product(facts["shape"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnknownModel(f"{folder} can't be read: {_short(error)}") from None
    untied = any(each in tensors for each in OUTPUT_LAYERS) if tensors else None
    sizes = {file.name: file.stat().st_size for file in folder.iterdir() if file.is_file()}
    return model_of(name, config, header=values, untied=untied, download=_weights(sizes))


def _header(file: Path) -> dict[str, Any]:
    """Name, type and shape of each tensor: 8 bytes of length, then JSON."""
    with file.open("rb") as data:
        length = int.from_bytes(data.read(8), "little")
        if length > MOST_HEADER:
            raise ValueError(f"{file.name} is no safetensors file")
        header = _mapping(json.loads(data.read(length)))
    return {name: facts for name, facts in header.items() if name != "__metadata__"}


def _weights(sizes: Mapping[str, int]) -> int | None:
    """Bytes of the weights, of one form where there are several; None without any."""
    for ending in (".safetensors", ".bin", ".pt", ".pth"):
        found = [size for name, size in sizes.items() if name.endswith(ending) and "/" not in name]
        if found:
            return sum(found)
    return None


def _mapping(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError("it is not a mapping")
    return found


def _product(shape: Sequence[int]) -> int:
    product = 1
    for each in shape:
        product *= each
    return product


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
