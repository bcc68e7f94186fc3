"""A GAN: two networks, two optimizers, and a solver and a hook of its own. `scepter run docs/examples/gan/gan.yaml`"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from scepter_core import DATASETS, HOOKS, MODELS, SOLVERS, Hook, Probing, SolverConfig, TrainValSolver

PLACES = torch.tensor([[math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)] for k in range(8)])
SPREAD = 0.05


@DATASETS.register_class()
class EightSpots(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Points around eight places on a circle of radius 1."""

    def __init__(self, points: int = 4096) -> None:
        draw = torch.Generator().manual_seed(0)
        places = PLACES[torch.randint(8, (points,), generator=draw)]
        self.points = places + SPREAD * torch.randn(points, 2, generator=draw)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"real": self.points[index]}


@MODELS.register_class()
class Gan(Probing, nn.Module):
    """A generator of points from noise, and a critic that tells them from real ones."""

    def __init__(self, noise: int = 8, width: int = 64) -> None:
        super().__init__()
        self.noise = noise
        self.generator = _network(noise, width, 2)
        self.critic = _network(2, width, 1)

    def make(self, points: int) -> Tensor:
        """So many new points."""
        return self.generator(torch.randn(points, self.noise, device=next(self.parameters()).device))  # type: ignore[no-any-return]

    def forward(self, real: Tensor) -> dict[str, Any]:
        """In training the points made and the critic's loss; else how good new points are.

        `near` is the share of them within four standard deviations of a place, `spots` the number of places that have some.
        """
        made = self.make(len(real))
        if self.training:
            loss = functional.softplus(-self.critic(real)).mean() + functional.softplus(self.critic(made.detach())).mean()
            return {"made": made, "critic_loss": loss}
        distance, place = torch.cdist(made, PLACES.to(made.device)).min(dim=1)
        near = distance < 4 * SPREAD
        self.register_probe({"points": made})
        return {"near": near.float().mean(), "spots": len(place[near].unique())}


def _network(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs)
    )


@SOLVERS.register_class()
class GanSolver(TrainValSolver):
    """The standard solver with a second optimizer, which its checkpoints hold too."""

    class Config(SolverConfig):
        """The keys of SOLVER, and one more."""

        critic_rate: float = Field(2e-3, gt=0, description="The critic's learning rate.")

    critic_optimizer: torch.optim.Optimizer

    def init_opti(self) -> None:
        """OPTIMIZER is the generator's; the critic has one of the same kind."""
        whole, self.model = self.model, self.model.generator
        try:
            super().init_opti()
        finally:
            self.model = whole
        if self.optimizer is not None:
            options = {**self.optimizer.defaults, "lr": self.cfg.critic_rate}
            self.critic_optimizer = type(self.optimizer)(self.model.critic.parameters(), **options)

    def save_checkpoint(self) -> dict[str, Any]:
        """The run's state, with that of the critic's optimizer."""
        return {**super().save_checkpoint(), "critic_optimizer": self.critic_optimizer.state_dict()}

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Put the run where `checkpoint` was taken."""
        super().load_checkpoint(checkpoint)
        if self.has("train"):
            self.critic_optimizer.load_state_dict(checkpoint["critic_optimizer"])


@HOOKS.register_class()
class TwoPlayerHook(Hook):
    """One update of the critic, then one of the generator; what BackwardHook is for a single loss."""

    role = "backward"

    def after_iter(self, solver: GanSolver) -> None:
        """The critic learns from what the step gave, and the generator from the critic that it has become."""
        if not solver.is_train_mode:
            return
        outputs, critic = solver.iter_outputs, solver.model.critic
        solver.critic_optimizer.zero_grad()
        outputs["critic_loss"].backward()
        solver.critic_optimizer.step()
        loss = functional.softplus(-critic(outputs["made"])).mean()
        solver.optimizer.zero_grad()
        loss.backward()
        solver.optimizer.step()
        outputs["generator_loss"] = loss.detach()
        solver.total_updates += 1
