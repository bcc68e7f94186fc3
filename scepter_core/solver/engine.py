"""What runs the training of a solver: the core's own loop, or that of another framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from torch import nn

from scepter_core.config import Named
from scepter_core.runconfig import EnvConfig

if TYPE_CHECKING:
    from scepter_core.solver.base import BaseSolver


class Engine(ABC):
    """Places a solver's model and goes through its training epochs.

    What happens in an epoch and in an iteration stays the solver's: an engine that brings a loop of its own calls
    `solver.train_epoch()` around each epoch and `solver.run_iteration()` for each batch of `solver.train_batches()`, and
    so has the events, the counters and the weights of every other engine. Evals and tests are the solver's own loops
    under every engine: they come between two epochs, between two steps, or out of a hook.

    Others than `native` come from plugins, by entry points of the group `scepter.engines`.
    """

    class Config(Named):
        """An engine has no keys of its own: ENV says what it has to know."""

    def __init__(self, cfg: EnvConfig, logger: Any = None) -> None:
        """Keep `cfg`, the validated section ENV, and `logger`; nothing is set up yet."""
        self.cfg = cfg
        self.logger = logger

    def set_up(self, solver: BaseSolver) -> None:  # noqa: B027  # most have nothing to do
        """Once, at the end of `solver.set_up_pre`: the device and the hooks are known, nothing else is built.

        Raises:
            ConfigError: the run asks for what this engine cannot give.
        """

    def place(self, solver: BaseSolver, model: nn.Module) -> nn.Module:
        """`model` where the run computes; by default moved to `solver.device`."""
        return model.to(solver.device)

    @abstractmethod
    def train(self, solver: BaseSolver) -> None:
        """Train from where the solver stands to the end of training, evals and tests that fall due included.

        Whatever is raised on the way (Stopped among it) leaves this call as it was raised.
        """


class NativeEngine(Engine):
    """The core's own loop."""

    def train(self, solver: BaseSolver) -> None:
        """Epoch after epoch, as `solver.solve_train` says."""
        while solver.reach_next_epoch():
            solver.solve_train()
