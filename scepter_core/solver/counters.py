"""Where a run stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scepter_core.sections import MODES


@dataclass
class Counters:
    """Every count of a run. All but `epoch` count what is completed.

    Attributes:
        epoch: the training epoch that is under way, or the last one; from 1, 0 before the first.
        iter: by mode, iterations of its present epoch.
        total_iter: by mode, iterations of the run.
        train_steps: training steps whose forward is done.
        total_updates: optimizer steps that reached the weights.
        window: micro-batches in the accumulation window that is open.
        in_epoch: a training epoch has begun and not ended.
        cut: the present epoch ended because MAX_STEPS was reached, and goes on where that is raised.
        under_way: the eval or test that has begun and not ended; a resume begins it anew.
        closing: the mode whose epoch is over but for its `after_epoch`.
        pending: the modes that are to come before the next training epoch, in order.
    """

    epoch: int = 0
    iter: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))
    total_iter: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))
    train_steps: int = 0
    total_updates: int = 0
    window: int = 0
    in_epoch: bool = False
    cut: bool = False
    under_way: str | None = None
    closing: str | None = None
    pending: list[str] = field(default_factory=list)

    def state_dict(self, mode: str) -> dict[str, Any]:
        """The counters as a checkpoint has them: at rest, between two iterations of training."""
        steps = self.train_steps
        inside = steps - self.total_iter["train"]  # 1 within the after_iter of a training step
        total_iter = {**self.total_iter, "train": steps}
        if self.under_way is not None:
            total_iter[self.under_way] -= self.iter[self.under_way]
        return {
            "epoch": self.epoch,
            "iter": self.iter["train"] + inside,
            "total_iter": total_iter,
            "total_updates": self.total_updates,
            "position": {
                "mode": mode,
                "in_epoch": self.in_epoch,
                "cut": self.cut,
                "closing": self.closing,
                "pending": list(self.pending),
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave. Raises ValueError or TypeError where it is something else."""
        position = state["position"]
        if not {position["closing"] or "train", *position["pending"]} <= set(MODES):
            raise ValueError(f"position {position['closing']}, {position['pending']}")
        self.epoch = int(state["epoch"])
        self.iter["train"] = int(state["iter"])
        self.total_iter.update({mode: int(state["total_iter"][mode]) for mode in MODES})
        self.train_steps = self.total_iter["train"]
        self.total_updates = int(state["total_updates"])
        self.in_epoch, self.cut = bool(position["in_epoch"]), bool(position["cut"])
        self.closing = position["closing"]
        self.pending = list(position["pending"])
