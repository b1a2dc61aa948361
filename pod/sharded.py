"""Checkpoints that several ranks write together: FSDP's and DeepSpeed's folders.

FSDP (torch.distributed.checkpoint): `pytorch_model_fsdp_0/` and `optimizer_0/`, each with one
`__RANK_N.distcp` a rank, many torch.save archives one after the other, and a `.metadata`, written
last, that says which of them lies where.

DeepSpeed: `global_stepN/` with `mp_rank_00_model_states.pt` (ZeRO 3: one a rank) and one
`…zero_pp_rank_R_mp_rank_00_optim_states.pt` a rank, and `latest`, written last, with the folder's
name. The model states tell how many ranks there were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pod import pickles

FSDP_WEIGHTS = "pytorch_model_fsdp*"
_RANKED = re.compile(r".*zero_pp_rank_(\d+)_mp_rank_(\d+)_(model|optim)_states\.pt")


class Part(NamedTuple):
    """A file of weights, or a part of one, by its name in messages."""

    name: str
    path: Path
    offset: int = 0
    length: int | None = None


def holds_weights(checkpoint: Path) -> bool:
    """Return whether the folder holds weights in one of these forms, whole or not."""
    patterns = ("global_step*/*model_states.pt", f"{FSDP_WEIGHTS}/*.distcp", "*.distcp")
    return any(any(checkpoint.glob(pattern)) for pattern in patterns)


def flaw(checkpoint: Path) -> str | None:
    """Return what is missing, cut off or must not be loaded in such folders, None if nothing."""
    written = [*checkpoint.rglob("*.distcp"), *checkpoint.rglob(".metadata")]
    for folder in sorted({path.parent for path in written}):
        found = _fsdp_flaw(folder)
        if found is not None:
            return found if folder == checkpoint else f"{folder.relative_to(checkpoint)}/{found}"
    if any(checkpoint.glob("global_step*")):
        return _deepspeed_flaw(checkpoint)
    return None


def weight_parts(checkpoint: Path) -> Iterator[Part]:
    """Yield each torch archive with weights; the folders are whole.

    DeepSpeed's optimizer states are among them: with ZeRO 3 the true weights are in there.
    """
    for folder in sorted([checkpoint, *checkpoint.glob(FSDP_WEIGHTS)]):
        for piece in _pieces(folder) if (folder / ".metadata").is_file() else []:
            if not piece.raw:
                yield Part(piece.name, folder / piece.file, piece.offset, piece.length)
    if (checkpoint / "latest").is_file():
        for path in sorted((checkpoint / _latest(checkpoint)).glob("*_states.pt")):
            yield Part(path.name, path)


@dataclass(frozen=True)
class _Piece:
    """A part of a tensor, or an object (`raw`), and where it lies."""

    name: str
    file: str
    offset: int
    length: int
    raw: bool


def _fsdp_flaw(folder: Path) -> str | None:
    if not (folder / ".metadata").is_file():
        return ".metadata is missing"
    try:
        pieces = _pieces(folder)
    except pickles.Refused as reason:
        return f".metadata {reason}"
    for piece in pieces:
        path = folder / piece.file
        if Path(piece.file).name != piece.file:
            return f".metadata names {piece.file}, which is outside"
        if not path.is_file():
            return f"{piece.file} is missing"
        if path.stat().st_size < piece.offset + piece.length:
            return f"{piece.file} is cut off"
    for piece in pieces:
        # Objects are unpickled without a limit, tensors with one.
        where = (folder / piece.file, piece.offset, piece.length)
        refusal = pickles.refusal(*where) if piece.raw else None
        if refusal is not None:
            return f"{piece.file} {refusal}"
    return None


def _pieces(folder: Path) -> list[_Piece]:
    with (folder / ".metadata").open("rb") as file:
        metadata = pickles.read(file).value
    try:
        kinds = {name: type(kind).__name__ for name, kind in metadata.state_dict_metadata.items()}
        return [
            _Piece(
                name=str(index.fqn),
                file=str(info.relative_path),
                offset=int(info.offset),
                length=int(info.length),
                raw=kinds[index.fqn].endswith("BytesStorageMetadata"),
            )
            for index, info in metadata.storage_data.items()
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise pickles.Refused(f"cannot be read: {error}") from error


def _deepspeed_flaw(checkpoint: Path) -> str | None:
    if not (checkpoint / "latest").is_file():
        return "latest is missing"
    folder = checkpoint / _latest(checkpoint)
    models = sorted(folder.glob("*model_states.pt"))
    if folder.parent != checkpoint or not models:
        return f"{folder.name} is missing"
    name = models[0].relative_to(checkpoint)
    try:
        with pickles.opened(models[0]) as archive:
            state = pickles.read_archive(archive).value
    except pickles.Refused as reason:
        return f"{name} {reason}"
    missing = _missing_rank(folder, state if isinstance(state, dict) else {})
    return None if missing is None else f"{folder.name}/{missing} is missing"


def _missing_rank(folder: Path, state: dict[str, Any]) -> str | None:
    """The name of a rank's file that should be there."""
    ranked = [match for path in sorted(folder.iterdir()) if (match := _RANKED.fullmatch(path.name))]
    there = {(match[3], int(match[1]), int(match[2])) for match in ranked}
    ranks = max([state.get("dp_world_size") or 0, *(rank + 1 for _, rank, _ in there)])
    parallel = max([state.get("mp_world_size") or 0, *(part + 1 for _, _, part in there)])
    kinds = {kind for kind, _, _ in there}
    if state.get("param_shapes") is not None:  # set with ZeRO only
        kinds.add("optim")
    for kind in sorted(kinds):
        for rank in range(ranks):
            for part in range(parallel):
                if (kind, rank, part) not in there:
                    return f"zero_pp_rank_{rank}_mp_rank_{part:02}_{kind}_states.pt"
    return None


def _latest(checkpoint: Path) -> str:
    return (checkpoint / "latest").read_text(encoding="utf-8", errors="replace").strip()
