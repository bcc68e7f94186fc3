"""LightningEngine: one Trainer a run, whose fit loop goes through the solver's epochs and iterations."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import repeat
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]  # documented so
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from scepter_core import BaseSolver, ConfigError, Engine, Problem
from scepter_lightning.module import SolverModule

_OWN_LOOPS = ("solve_train", "run_train")


class LightningEngine(Engine):
    """`ENV.USE_PL: true`: training is `Trainer.fit`, under manual optimization.

    Attributes:
        trainer: the Trainer, from `set_up` on; each call of `train` has one of its own.
    """

    trainer: Trainer

    def set_up(self, solver: BaseSolver) -> None:
        """Make the Trainer.

        Raises:
            ConfigError: the solver has a training loop of its own, whose place the Trainer's would take; or the run has
                several processes.
        """
        _refuse_own_loops(solver)
        if solver.world_size > 1:
            raise ConfigError(
                [
                    Problem(
                        f"the Trainer runs in one process here, and the run has {solver.world_size}",
                        path="ENV.USE_PL",
                        found="true",
                        hint="set USE_PL to false: the core's own loop runs in many",
                    )
                ]
            )
        if not sys.warnoptions:
            # What Lightning uses of torch is its business.
            warnings.filterwarnings("ignore", category=FutureWarning, module=r"lightning\.pytorch")
        with _quiet():
            self.trainer = _make_trainer(solver.device)

    def place(self, solver: BaseSolver, model: nn.Module) -> nn.Module:
        """`model` on the Trainer's device."""
        return model.to(self.trainer.strategy.root_device)

    def train(self, solver: BaseSolver) -> None:
        """One `Trainer.fit` for all epochs that are left to train; without any, none."""
        if not solver.reach_next_epoch():
            return
        with ExitStack() as epoch, _quiet():
            self.trainer = _make_trainer(solver.device)  # one that was used would count on from where it was
            try:
                self.trainer.fit(SolverModule(solver, epoch), train_dataloaders=repeat(()))
            except SystemExit as error:
                if isinstance(error.__context__, KeyboardInterrupt):  # what the Trainer makes of it
                    raise error.__context__ from None
                raise


def _make_trainer(device: torch.device) -> Trainer:
    """A Trainer of one process on `device`, with nothing of its own to say or to write."""
    options: dict[str, Any] = {
        "accelerator": device.type,
        "devices": [device.index] if device.type == "cuda" else 1,
        "strategy": _InPlace(device),
        "plugins": [LightningEnvironment()],  # under SLURM it would take ranks and signals from there
        "max_epochs": -1,  # the solver says when it is done
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }
    # What is not given, the Trainer takes from variables of the environment (PL_TRAINER_MAX_STEPS), and says nothing.
    defaults = {name: parameter.default for name, parameter in inspect.signature(Trainer).parameters.items()}
    return Trainer(**{**defaults, **options})


class _InPlace(SingleDeviceStrategy):
    """Leaves the model and the optimizer where they are when `fit` ends: the run goes on with them."""

    def teardown(self) -> None:
        """As the base class's, which moves them to the CPU besides."""
        self.precision_plugin.teardown()
        if self.accelerator is not None:
            self.accelerator.teardown()
        self.checkpoint_io.teardown()


def _refuse_own_loops(solver: BaseSolver) -> None:
    own = [name for name in _OWN_LOOPS if getattr(type(solver), name) is not getattr(BaseSolver, name)]
    if own and solver.has("train"):
        raise ConfigError(
            [
                Problem(
                    f"{type(solver).__name__} has a {' and a '.join(own)} of its own, and the Trainer's loop would "
                    "take its place",
                    path="ENV.USE_PL",
                    found="true",
                    hint="set USE_PL to false; or override run_iteration or run_step_train instead, which both loops call",
                )
            ]
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning tells of devices and gives tips; a run's lines are its own. Warnings and errors pass."""
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        logger.setLevel(before)
