"""What the Trainer is given: a module whose training step is an iteration of the solver, and the solver's batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lightning.pytorch import LightningModule

from scepter_core import BaseSolver


class Batches:
    """The training batches, made by the solver: each pass from where it stands, `(number in the epoch, batch)`."""

    def __init__(self, solver: BaseSolver) -> None:
        self.solver = solver

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self.solver.train_batches()


class SolverModule(LightningModule):
    """A solver as the Trainer sees it: one of the Trainer's epochs is one of the solver's passes over its data.

    Args:
        solver: with its model and optimizer built.
        epoch: holds what stands around the epoch that is under way, so that an error closes it too.
    """

    def __init__(self, solver: BaseSolver, epoch: ExitStack) -> None:
        super().__init__()
        self.automatic_optimization = False  # hooks make backward, the optimizer's step and the rates
        self.model = solver.model
        self.solver = solver
        self.epoch = epoch
        self.sigterm = signal.getsignal(signal.SIGTERM)

    def configure_optimizers(self) -> Any:
        """The solver's optimizer itself, which the hooks step; not a wrapper of it."""
        return self.solver.optimizer

    def on_train_start(self) -> None:
        """Give SIGTERM back: the Trainer's handler, set just before, would end the run without a checkpoint."""
        if self.sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.sigterm)

    def on_train_epoch_start(self) -> None:
        """`before_epoch`, `before_all_iter`."""
        with _no_end_by_accident():
            self.epoch.enter_context(self.solver.train_epoch())
            self.solver.before_all_iter()

    def training_step(self, dataloader_iter: Iterator[Any]) -> None:
        """The next iteration. It fetches the batch itself: the Trainer would take the one after it beforehand."""
        (batch_idx, batch), *_ = next(dataloader_iter)  # its StopIteration ends the Trainer's epoch
        with _no_end_by_accident():
            self.solver.run_iteration(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        """`after_all_iter`, `on_metrics`, `after_epoch`; then the evals and tests that are due."""
        with _no_end_by_accident():
            self.solver.after_all_iter()
            self.epoch.close()
            if not self.solver.reach_next_epoch():
                self.trainer.should_stop = True


@contextmanager
def _no_end_by_accident() -> Iterator[None]:
    """To the Trainer a StopIteration, also one that a model or a hook lets slip, is an end in good order."""
    try:
        yield
    except StopIteration as error:
        raise RuntimeError("a StopIteration was raised and not handled in the run") from error
