"""The batch of one device, and the next smaller one after it did not fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.values import plain_number


@dataclass(frozen=True)
class Batch:
    """`micro` rows at once, `accumulation` times for each optimizer step."""

    micro: int = 1
    accumulation: int = 1

    @property
    def effective(self) -> int:
        """Rows of one device in each optimizer step."""
        return self.micro * self.accumulation

    def smaller(self) -> Batch | None:
        """At most half the micro batch with the same effective batch; None when it is 1 already.

        The largest that divides the effective batch is taken: one that does not would change the
        gradient. So 7 rows at once become 1, not 3.
        """
        for micro in range(self.micro // 2, 0, -1):
            if self.effective % micro == 0:
                return Batch(micro, self.effective // micro)
        return None

    @property
    def inexact(self) -> str:
        """What to add to a message where the half of the micro batch can't be taken, else empty."""
        half = self.micro // 2
        if half < 1 or self.effective % half == 0:
            return ""
        return f" (a micro batch of {half} can't make up the effective batch of {self.effective})"


def batch_of(axolotl: Mapping[str, object]) -> Batch:
    """What axolotl makes of a task file's keys: 1 where nothing is said.

    `batch_size` (deprecated there) is the effective batch; with it the accumulation is the whole
    part of the quotient.
    """
    micro = _count(axolotl.get("micro_batch_size"))
    accumulation = _count(axolotl.get("gradient_accumulation_steps"), absent=0)
    if not accumulation:
        accumulation = max(1, _count(axolotl.get("batch_size")) // micro)
    return Batch(micro, accumulation)


def _count(value: object, *, absent: int = 1) -> int:
    number = plain_number(value)
    return int(number) if number is not None and number >= 1 else absent
