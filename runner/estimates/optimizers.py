"""What an optimizer keeps for each weight that it trains.

`same` states have the type of the weight, `fixed` bytes come on top whatever that is, `scratch`
copies of the trained weights exist while it steps (torch's foreach implementation holds one more
copy of the parameters: https://docs.pytorch.org/docs/stable/optim.html).

Sources: Adam's two moments, arXiv 1412.6980; 8-bit states with one 32-bit constant per 256 values,
arXiv 2110.02861; Adafactor's rows and columns instead of a matrix, arXiv 1804.04235; Lion's one
moment, arXiv 2302.06675; Muon's one moment, https://kellerjordan.github.io/posts/muon/; the paged
and 32-bit ones of bitsandbytes keep 4 bytes a state whatever the weight's type.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Keeps:
    """States for each trained weight; `known` is False where Adam's are assumed."""

    same: int = 0
    fixed: float = 0.0
    scratch: int = 0
    known: bool = True

    def bytes_each(self, weight_bytes: int) -> float:
        """Bytes of state for one weight of so many bytes."""
        return self.same * weight_bytes + self.fixed


EIGHT_BIT = 1 + 4 / 256
ADAM = Keeps(same=2)
DEFAULT = "adamw_torch_fused"  # axolotl 0.19

_TABLE = {
    "adamw_torch": Keeps(same=2, scratch=1),
    "adamw_hf": Keeps(same=2, scratch=1),
    "adamw_torch_fused": ADAM,
    "adamw_torch_4bit": Keeps(fixed=1 + 2 * 4 / 128),
    "adamw_torch_8bit": Keeps(fixed=2 * EIGHT_BIT),
    "adamw_apex_fused": ADAM,
    "adamw_anyprecision": ADAM,
    "optimi_adamw": Keeps(same=3),  # Kahan's compensation in 16 bit
    "adopt_adamw": Keeps(same=2, scratch=1),
    "adamc": Keeps(same=2, scratch=1),
    "adamw_bnb_8bit": Keeps(fixed=2 * EIGHT_BIT),
    "adamw_8bit": Keeps(fixed=2 * EIGHT_BIT),
    "paged_adamw_8bit": Keeps(fixed=2 * EIGHT_BIT),
    "ademamix_8bit": Keeps(fixed=3 * EIGHT_BIT),
    "paged_ademamix_8bit": Keeps(fixed=3 * EIGHT_BIT),
    "ademamix": Keeps(fixed=12),
    "paged_ademamix_32bit": Keeps(fixed=12),
    "paged_adamw_32bit": Keeps(fixed=8),
    "lion_8bit": Keeps(fixed=EIGHT_BIT),
    "paged_lion_8bit": Keeps(fixed=EIGHT_BIT),
    "lion_32bit": Keeps(fixed=4),
    "paged_lion_32bit": Keeps(fixed=4),
    "lion_pytorch": Keeps(same=1),
    "ao_adamw_4bit": Keeps(fixed=1 + 2 * 4 / 128),
    "ao_adamw_8bit": Keeps(fixed=2 * EIGHT_BIT),
    "ao_adamw_fp8": Keeps(fixed=2 * EIGHT_BIT),
    "adafactor": Keeps(fixed=0.01),
    "came_pytorch": Keeps(same=1, fixed=0.01),
    "schedule_free_adamw": Keeps(same=2),
    "schedule_free_radam": Keeps(same=2),
    "schedule_free_sgd": Keeps(same=1),
    "muon": Keeps(same=1),
    "dion": Keeps(same=1),
    "rmsprop": Keeps(same=1),
    "rmsprop_bnb_8bit": Keeps(fixed=EIGHT_BIT),
    "adagrad": Keeps(same=1),
    "sgd": Keeps(),
}


def keeps(optimizer: str) -> Keeps:
    """What the optimizer of this name keeps; Adam's two moments for one that is not known here."""
    return _TABLE.get(optimizer.lower(), Keeps(same=2, known=False))
