"""Schedulers that SCEPTER brought beside torch's, under its names and keys.

The rate of each is a function of the position alone: `get_lr` and the closed form are the same, so that a hook can ask
for any position. Their numbers count updates, as their names say (`WARMUP_STEPS`, `TOTAL_STEPS`): the default of UNIT
is `update` for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt
from pydantic import AllowInfNan
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, PolynomialLR

_COUNT_UPDATES: Mapping[str, Any] = MappingProxyType({"UNIT": "update"})
Count = Annotated[int, Ge(0)]


class _OfPosition(LRScheduler):
    """A scheduler whose rates follow from the base rates and `last_epoch`, by `_rate`."""

    key_defaults: ClassVar[Mapping[str, Any]] = _COUNT_UPDATES

    def get_lr(self) -> list[Any]:
        """The groups' rates at `last_epoch`."""
        return self._get_closed_form_lr()

    def _get_closed_form_lr(self) -> list[Any]:
        return [self._rate(float(base)) for base in self.base_lrs]

    def _rate(self, base: float) -> float:
        raise NotImplementedError


class WarmupToConstantLR(_OfPosition):
    """A linear warm-up to the base rate, which then stands.

    The k-th update, from 1, has `k / WARMUP_STEPS` of the base rate: none is made at rate 0.

    Args:
        optimizer: whose rates it gives.
        warmup_steps: updates until the base rate is reached; 0: it stands from the first.
        last_epoch: torch's name for the position, one less.
    """

    def __init__(self, optimizer: Optimizer, warmup_steps: Count = 10000, last_epoch: int = -1) -> None:
        self.warmup_steps = warmup_steps
        super().__init__(optimizer, last_epoch)

    def _rate(self, base: float) -> float:
        return base * _warmup(self.last_epoch, self.warmup_steps)


class StepAnnealingLR(_OfPosition):
    """A linear warm-up as that of WarmupToConstantLR, and from its end to TOTAL_STEPS a fall to 0.

    No rate is below MIN_LR (or the base rate, where that is lower).

    Args:
        optimizer: whose rates it gives.
        warmup_steps: updates until the base rate is reached.
        total_steps: updates until the rate is at its lowest; `auto`: the length of the run.
        decay_mode: the shape of the fall: half a cosine, a line, or none.
        min_lr: the lowest rate.
        last_epoch: torch's name for the position, one less.

    Raises:
        ValueError: the warm-up leaves nothing to fall over.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        warmup_steps: Count = 0,
        total_steps: int | Literal["auto"] | None = "auto",
        decay_mode: Literal["cosine", "linear", "none"] = "cosine",
        min_lr: Annotated[float, Ge(0), AllowInfNan(False)] = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(total_steps, int):
            raise ValueError(f"TOTAL_STEPS must be an integer, not {total_steps}")
        if decay_mode != "none" and total_steps <= warmup_steps:
            raise ValueError(f"TOTAL_STEPS {total_steps} must be above WARMUP_STEPS {warmup_steps}")
        self.warmup_steps, self.total_steps = warmup_steps, total_steps
        self.decay_mode, self.min_lr = decay_mode, min_lr
        super().__init__(optimizer, last_epoch)

    def _rate(self, base: float) -> float:
        position = self.last_epoch
        factor = _warmup(position, self.warmup_steps)
        if self.decay_mode != "none" and position > self.warmup_steps:
            done = min(1.0, (position - self.warmup_steps) / (self.total_steps - self.warmup_steps))
            factor = (1 + math.cos(math.pi * done)) / 2 if self.decay_mode == "cosine" else 1 - done
        return max(base * factor, min(base, self.min_lr))


class LinoPolyLR(PolynomialLR):
    """torch's PolynomialLR under SCEPTER's name and keys: `base * (1 - e / END_EPOCH) ** POWER`, e in UNIT's unit.

    Args:
        optimizer: whose rates it gives.
        end_epoch: where the rate is 0.
        power: of the fall; 1 is a line.
        last_epoch: torch's name for the position, one less.
    """

    def __init__(
        self, optimizer: Optimizer, end_epoch: Annotated[int, Gt(0)], power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.end_epoch = end_epoch
        super().__init__(optimizer, total_iters=end_epoch, power=power, last_epoch=last_epoch)


def _warmup(position: float, steps: int) -> float:
    """The share of the base rate that the update after `position` others has."""
    return min(1.0, (position + 1) / steps) if steps > 0 else 1.0
