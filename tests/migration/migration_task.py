"""A small task without any randomness, so that a plain loop of torch can do the same training."""

from __future__ import annotations

import torch
from torch import nn

from scepter_core import DATASETS, MODELS


@DATASETS.register_class()
class MigrationRows(torch.utils.data.Dataset):
    """Twelve rows of four numbers, each with one of two labels."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(12, 4, generator=generator)
        self.label = torch.randint(0, 2, (12,), generator=generator)

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.x[index], "label": self.label[index]}


@MODELS.register_class()
class MigrationNet(nn.Module):
    """Two layers that always begin with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, label), "logits": logits}
