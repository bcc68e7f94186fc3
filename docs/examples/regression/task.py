"""A regression task in one file: the decorators make its classes known to the YAML that lists it under PLUGINS."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from scepter_core import DATASETS, MODELS


@DATASETS.register_class()
class NoisySine(Dataset[dict[str, Tensor]]):
    """Points (x, sin x + noise) with x in [-π, π]."""

    def __init__(self, samples: int = 512, noise: float = 0.1, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = (torch.rand(samples, 1, generator=generator) * 2 - 1) * torch.pi
        self.y = self.x.sin() + noise * torch.randn(samples, 1, generator=generator)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "y": self.y[index]}


@MODELS.register_class()
class Curve(nn.Module):
    """A perceptron with one hidden layer. Its forward takes the entries of a batch by name."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        prediction = self.layers(x)
        return {"prediction": prediction, "loss": nn.functional.mse_loss(prediction, y)}
