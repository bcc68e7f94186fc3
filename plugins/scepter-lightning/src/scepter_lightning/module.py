"""A solver as the Trainer sees it: a module whose training step is an iteration of the solver."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from lightning.pytorch import LightningModule

from scepter_core import BaseSolver

SKIP_THE_REST = -1
"""What `on_train_batch_start` returns to end the Trainer's epoch."""


class SolverModule(LightningModule):
    """One of the Trainer's epochs is one of the solver's passes over its data, one of its steps an iteration.

    The solver makes the batches itself, when their turn comes: the Trainer would ask for each of them one step too
    early. It is given an endless stream of empty turns instead, and told when the pass is over.

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
        self.batches: Iterator[tuple[int, Any]] = iter(())
        self.turn: tuple[int, Any] | None = None
        self.sigterm = signal.getsignal(signal.SIGTERM)

    def configure_optimizers(self) -> Any:
        """The solver's optimizer itself, which the hooks step; not a wrapper of it."""
        return [self.solver.optimizer] if self.solver.optimizer is not None else []

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: the Trainer clears gradients before it begins, and a resumed window has some already."""

    def on_train_start(self) -> None:
        """Give SIGTERM back: the Trainer's handler, set just before, would end the run without a checkpoint."""
        if self.sigterm is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self.sigterm)

    def on_train_epoch_start(self) -> None:
        """`before_epoch`, `before_all_iter`."""
        with _NoEndByAccident():
            self.epoch.enter_context(self.solver.train_epoch())
            self.solver.before_all_iter()
            self.batches = self.solver.train_batches()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """Fetch the next batch; where there is none, the pass is over."""
        self.turn = next(self.batches, None)
        return SKIP_THE_REST if self.turn is None else None

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """An iteration of the solver, with the batch that was just fetched."""
        assert self.turn is not None
        batch_idx, batch = self.turn
        with _NoEndByAccident():
            self.solver.run_iteration(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        """`after_all_iter`, `on_metrics`, `after_epoch`; then the evals and tests that are due."""
        with _NoEndByAccident():
            self.solver.after_all_iter()
            self.epoch.close()
            if not self.solver.reach_next_epoch():
                self.trainer.should_stop = True


class _NoEndByAccident:
    """To the Trainer a StopIteration, also one that a model or a hook lets slip, is an end in good order."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, StopIteration):
            raise RuntimeError(f"StopIteration raised and not handled: {error}") from error
