"""Every event of the core: when it is emitted, what the counters hold then, and what a hook may do.

A run of two epochs emits, in this order:

    before_solve
    epoch 1   train   before_epoch, before_all_iter, (before_iter, the step, after_iter) × n, after_all_iter,
                      on_metrics, after_epoch
              eval    the same, to the eval hooks, if this epoch has an eval
    epoch 2   the same
    test              the same, to the test hooks
    on_exception      only if the run ends by an error or a signal
    after_solve

Scope *mode*: the event goes to the hooks of the mode that is running. Scope *run*: it goes to every hook of the run,
once, whatever its mode. Within an event hooks run in ascending PRIORITY, ties in the order of the YAML, for `after_*`
too. A hook implements an event by a method of its name, which may leave out arguments it does not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scepter_core.bus.markers import hookspec

if TYPE_CHECKING:
    from scepter_core.solver import BaseSolver

API_VERSION = 1
"""Version of this contract. Taking away or changing an event or its arguments raises it; new events do not."""


class CoreEvents:
    """The events that every run has. As methods they do nothing, which is what a hook does that leaves them out."""

    @hookspec(scope="run")
    def before_solve(self, solver: BaseSolver) -> None:
        """The run begins: everything is built, nothing has run.

        A checkpoint is loaded in the very first implementation (`tryfirst`), so all others see the counters as they
        stand: 0 in a new run, where it was saved in a resumed one. Set up what needs the solver here; a hook's own
        state is made in `__init__` and never reset here.
        """

    @hookspec(scope="run", isolated=True)
    def after_solve(self, solver: BaseSolver) -> None:
        """The run is over, well or after an error or a signal (then it follows `on_exception`).

        Close files and writers. Every hook is called though another's fails.
        """

    @hookspec
    def before_epoch(self, solver: BaseSolver) -> None:
        """An epoch of the mode begins; `mode` is set and `epoch` counts it, from 1 (in eval and test it is the epoch
        just trained).

        `iter` is 0, and more when a run is resumed inside the epoch: reset per-epoch state only when it is 0.
        """

    @hookspec
    def after_epoch(self, solver: BaseSolver) -> None:
        """An epoch of the mode has ended, after its `on_metrics`; `epoch` still counts it."""

    @hookspec
    def before_all_iter(self, solver: BaseSolver) -> None:
        """The loop over the batches is about to start, after `before_epoch`; counters as there."""

    @hookspec
    def after_all_iter(self, solver: BaseSolver) -> None:
        """The loop over the batches has ended; the epoch's metrics are not made yet."""

    @hookspec
    def before_iter(self, solver: BaseSolver) -> None:
        """A batch is here and about to go through the model.

        In the k-th iteration of the mode, from 0, `total_iter` is k, here and in `after_iter`; `iter` is the same
        within the epoch; `train_steps` counts the training steps before this one. This is the place to set what the
        step uses, such as a learning rate.
        """

    @hookspec
    def after_iter(self, solver: BaseSolver) -> None:
        """A batch went through the model; `iter_outputs` has what it returned, `loss` included when training.

        `iter` and `total_iter` are those of `before_iter`; `train_steps` counts this step too. In training the
        backward hook makes the gradient here, first of all, and updates the weights where a window closes. Do not ask
        the device for a value here: it would make every step wait for it.
        """

    @hookspec(scope="run")
    def on_metrics(self, solver: BaseSolver, mode: str, metrics: Mapping[str, float]) -> None:
        """The epoch metrics of `mode` are final: after its `after_all_iter`, before its `after_epoch`.

        `metrics` are numbers on the host, the same on every rank; they stay in `solver.epoch_outputs[mode]`.
        """

    @hookspec(scope="run", isolated=True)
    def on_exception(self, solver: BaseSolver, error: BaseException) -> None:
        """The run is about to end by `error`: a failure, or `Stopped` after a signal. `after_solve` follows.

        Counters are as they were when it happened. Every hook is called though another's fails.
        """
