"""Where a run stands and how long it is, as hooks and subclasses read it."""

from __future__ import annotations

from typing import Any

from scepter_core.data import iterations_of
from scepter_core.solver.counters import Counters


class SolverPosition:
    """The counters of a run, each for the mode that is running, and what is known of its length."""

    counters: Counters
    datas: dict[str, Any]
    mode: str
    max_epochs: int
    max_steps: int
    accumulate_step: int
    _steps_per_epoch: int

    @property
    def is_train_mode(self) -> bool:
        """Whether the run is training just now."""
        return self.mode == "train"

    @property
    def is_eval_mode(self) -> bool:
        """Whether the run is evaluating just now."""
        return self.mode == "eval"

    @property
    def is_test_mode(self) -> bool:
        """Whether the run is testing just now."""
        return self.mode == "test"

    @property
    def epoch(self) -> int:
        """The training epoch under way or just done, from 1; 0 before the first."""
        return self.counters.epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self.counters.epoch = value

    @property
    def iter(self) -> int:
        """The iteration of the mode's epoch, from 0."""
        return self.counters.iter[self.mode]

    @property
    def total_iter(self) -> int:
        """The iteration of the mode's whole run, from 0."""
        return self.counters.total_iter[self.mode]

    @property
    def train_steps(self) -> int:
        """Training steps done, in every mode: in `after_iter` the present one counts."""
        return self.counters.train_steps

    @property
    def total_updates(self) -> int:
        """Updates that reached the weights."""
        return self.counters.total_updates

    @total_updates.setter
    def total_updates(self, value: int) -> None:
        self.counters.total_updates = value

    @property
    def epoch_max_iter(self) -> int:
        """Iterations in an epoch of the mode, -1 where its loader has no length."""
        return iterations_of(self.datas.get(self.mode))

    @property
    def training_done(self) -> bool:
        """Whether MAX_EPOCHS or MAX_STEPS is reached."""
        counters = self.counters
        if counters.in_epoch:
            return False  # its end is still owed, whatever the limits say
        return 0 < self.max_epochs <= counters.epoch - counters.cut or 0 < self.max_steps <= counters.train_steps

    @property
    def steps_per_epoch(self) -> int:
        """Training iterations in an epoch, -1 where the loader has no length."""
        return self._steps_per_epoch

    @property
    def updates_per_epoch(self) -> int:
        """Updates in an epoch, the shorter last window included; -1 where the loader has no length."""
        steps = self.steps_per_epoch
        return -(-steps // self.accumulate_step) if steps > 0 else -1

    @property
    def total_steps(self) -> int:
        """Training steps of the whole run, -1 where nobody knows."""
        steps = self.steps_per_epoch
        limits = []
        if self.max_steps > 0:
            limits.append(self.max_steps)
        if self.max_epochs > 0 and steps > 0:
            limits.append(self.max_epochs * steps)
        elif self.max_epochs > 0:
            return -1
        return min(limits, default=-1)

    @property
    def planned_updates(self) -> int:
        """Updates of the whole run, -1 where nobody knows."""
        steps, per_epoch = self.total_steps, self.steps_per_epoch
        if steps < 0:
            return -1
        if per_epoch < 1:
            return -(-steps // self.accumulate_step)
        epochs, rest = divmod(steps, per_epoch)
        return epochs * self.updates_per_epoch + -(-rest // self.accumulate_step)
