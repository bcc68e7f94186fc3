"""Top-k accuracy of a classifier."""

from __future__ import annotations

import torch
from torchmetrics import Metric


class AccuracyMetric(Metric):
    """The share of samples whose label is among the k highest of the logits.

    Args:
        topk: k, or a list of them.

    `update` takes logits (N × classes) and labels (N). `compute` gives `acc` for k = 1 and `acc@k` for any other.
    """

    full_state_update = False
    higher_is_better = True

    def __init__(self, topk: int | list[int] = 1) -> None:
        super().__init__()
        self.topk = [topk] if isinstance(topk, int) else list(topk)
        if not self.topk or min(self.topk) < 1:
            raise ValueError(f"TOPK must be >= 1, not {topk}")
        self.correct: torch.Tensor
        self.total: torch.Tensor
        self.add_state("correct", torch.zeros(len(self.topk), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: torch.Tensor, label: torch.Tensor) -> None:
        """Count a batch: logits N × classes, label N (class numbers)."""
        highest = logits.topk(min(max(self.topk), logits.shape[-1]), dim=-1).indices
        hits = highest == label.reshape(-1, 1)
        for place, k in enumerate(self.topk):
            self.correct[place] += hits[:, :k].sum()
        self.total += label.numel()

    def compute(self) -> dict[str, torch.Tensor]:
        """The accuracies so far, from 0 to 1."""
        shares = self.correct.double() / self.total
        return {("acc" if k == 1 else f"acc@{k}"): shares[place] for place, k in enumerate(self.topk)}
