"""How the model does on each sample of a batch, from the logits that the evaluation has anyway.

The loss of a sample is the plain cross entropy of its labels, each predicted by the logits one
token before, averaged over its own tokens: what the model's own loss is for that sample alone,
without label smoothing or weights. In a packed row samples are told apart by positions that begin
anew or by the numbers in the attention mask, and the first token of a sample, which only the end
of the sample before could predict, counts for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch
from torch.nn.functional import cross_entropy

from pod.eval_rows import EXCERPT, Sample

IGNORED = -100
# Logits are made float32 in portions of 128 MB, less than the model's own loss has just needed.
MOST_NUMBERS = 2**25


@dataclass(frozen=True)
class Part:
    """A sample in a batch: it begins at token `first` of row `row` and is the `nth` one in it.

    `losses` holds one number for each of `labelled`, the places in the row that have a label.
    """

    row: int
    nth: int
    first: int
    labelled: torch.Tensor
    losses: torch.Tensor

    @property
    def loss(self) -> float:
        return float(self.losses.double().mean())


def parts_of(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    position_ids: torch.Tensor | None = None,
    attention_mask: torch.Tensor | None = None,
) -> list[Part]:
    """The samples of a batch that have labels; logits are [rows, length, vocabulary]."""
    begins = sample_starts(labels, position_ids, attention_mask)
    rows, places = ((labels[:, 1:] != IGNORED) & ~begins[:, 1:]).nonzero(as_tuple=True)
    losses = token_losses(logits, labels, rows, places)
    # One copy to the host for the whole batch; sums there have the same order each time.
    numbers = (begins.flatten().cumsum(0).reshape(begins.shape) - 1)[rows, places + 1].tolist()
    starts = begins.nonzero().tolist()
    first_of_row = {row: number for number, (row, first) in enumerate(starts) if first == 0}
    places = places.cpu() + 1
    found: list[Part] = []
    at = 0
    for number, same in groupby(numbers):
        count = len(list(same))
        row, first = starts[number]
        found.append(
            Part(
                row=row,
                nth=number - first_of_row[row],
                first=first,
                labelled=places[at : at + count],
                losses=losses[at : at + count],
            )
        )
        at += count
    return found


def sample_starts(
    labels: torch.Tensor, position_ids: torch.Tensor | None, attention_mask: torch.Tensor | None
) -> torch.Tensor:
    """Where a sample (or padding) begins, as flags of the shape of `labels`."""
    begins = torch.zeros_like(labels, dtype=torch.bool)
    begins[:, 0] = True
    if position_ids is not None and position_ids.shape == labels.shape:
        begins[:, 1:] |= position_ids[:, 1:] != position_ids[:, :-1] + 1
    if attention_mask is not None and attention_mask.shape == labels.shape:
        before, here = attention_mask[:, :-1], attention_mask[:, 1:]
        begins[:, 1:] |= (before != here) & (before != 0) & (here != 0)
    return begins


def token_losses(
    logits: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """The loss of each label at `places` + 1, on the host."""
    portion = max(1, MOST_NUMBERS // logits.shape[-1])
    found = [
        cross_entropy(logits[row, place].float(), labels[row, place + 1], reduction="none")
        for row, place in zip(rows.split(portion), places.split(portion), strict=True)
    ]
    return torch.cat(found).cpu() if found else torch.zeros(0)


def sample_of(
    part: Part,
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    index: int | None = None,
) -> Sample:
    """The sample with what the model would have said. Of a long one: the end of what stands before
    the labels, and the labels around the worst.
    """
    row, places = part.row, part.labelled.to(labels.device)
    wanted, said = labels[row, places], logits[row, places - 1].argmax(-1)
    before = input_ids[row, part.first : int(part.labelled[0])]
    if attention_mask is not None and attention_mask.shape == labels.shape:
        before = before[attention_mask[row, part.first : int(part.labelled[0])] != 0]
    # argmax takes a NaN for the highest, as is right here.
    worst = int(part.losses.argmax())
    shown = slice(max(0, min(worst - EXCERPT // 2, len(places) - EXCERPT)), None)
    return Sample(
        loss=part.loss,
        tokens=len(places),
        right=round(float((wanted == said).double().mean()), 4),
        peak=float(part.losses[worst]),
        index=index,
        input=tuple(before[-EXCERPT:].tolist()),
        label=tuple(wanted[shown][:EXCERPT].tolist()),
        prediction=tuple(said[shown][:EXCERPT].tolist()),
    )
