"""LrHook: sets the learning rate before the iterations that use it, and is the only one to change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from scepter_core import LR_SCHEDULERS, Hook, HookConfig, RunError

if TYPE_CHECKING:
    from scepter_core import BaseSolver, RunConfig
    from scepter_lr.schedule import Plateau, Schedule


class LrHook(Hook):
    """The learning rate by epoch, by step or by update, after an optional linear warm-up.

    With e the position in epochs, W = WARMUP_EPOCHS and s(e) the scheduler's rate, a group's rate is
    `start + (s(W) - start) * e / W` for e < W and s(e) from there on: the scheduler's clock starts at 0, not after the
    warm-up. Where LR_SCHEDULER has `UNIT: update`, the scheduler's clock is the number of updates.
    """

    class Config(HookConfig):
        """The keys of LrHook."""

        priority: int = Field(200, description="Hooks of the same event run in ascending priority.")
        warmup_func: Literal["linear"] | None = Field(
            "linear", description="The warm-up's shape; null: no warm-up."
        )
        warmup_epochs: float = Field(
            1, ge=0, allow_inf_nan=False, description="Epochs of warm-up, fractions allowed; 0: no warm-up."
        )
        warmup_start_lr: float = Field(
            1e-4,
            ge=0,
            allow_inf_nan=False,
            description="The rate of the first parameter group at the start of the warm-up; the others' are scaled.",
        )
        set_by_epoch: bool = Field(
            True,
            description="Count epochs in whole numbers: one rate an epoch. No: fractions, a rate each window.",
        )

    role: ClassVar[str | None] = "lr"

    def __init__(self, cfg: Any, logger: Any = None) -> None:
        super().__init__(cfg, logger)
        self._by_epoch: bool = cfg.SET_BY_EPOCH
        self._start_lr: float = cfg.WARMUP_START_LR
        self._warmup_epochs: float = cfg.WARMUP_EPOCHS if cfg.WARMUP_FUNC else 0.0
        self._counts_updates = False
        self._schedule: Schedule | None = None  # None as long as there is nothing to drive
        self._state: dict[str, Any] = {}
        self._starts: list[float] = []  # the groups' rates at the start of the warm-up
        self._targets: list[float] = []  # and at its end
        self._set_at: tuple[float, float] | None = None  # epochs and position of the rates in force
        self._plateau: Plateau | None = None
        self._monitor = ""
        self._monitored_mode = "train"

    @classmethod
    def check(cls, cfg: Any, run: RunConfig) -> Iterable[tuple[str, str]]:
        """What the configuration alone shows to be impossible, as (key, message)."""
        section = run.SOLVER.get("LR_SCHEDULER")
        if section is None:
            return
        from scepter_lr.schedule import is_function_of_position, is_plateau

        kind: Any = LR_SCHEDULERS.get(section.NAME)
        if is_plateau(kind):
            if section.get("MONITOR") is None:
                yield (
                    "NAME",
                    f"LR_SCHEDULER {section.NAME} follows an epoch metric: name it in LR_SCHEDULER.MONITOR",
                )
            return
        counts_updates = section.get("UNIT", "epoch") == "update"
        if counts_updates or not isinstance(kind, type) or is_function_of_position(kind):
            return
        remedy = (
            f"; LR_SCHEDULER {section.NAME} goes by whole steps only (or set LR_SCHEDULER.UNIT to update)"
        )
        if not cfg.SET_BY_EPOCH:
            yield "SET_BY_EPOCH", f"must be true{remedy}"
        if cfg.WARMUP_FUNC and cfg.WARMUP_EPOCHS % 1:
            yield "WARMUP_EPOCHS", f"must be a whole number{remedy}"

    def before_solve(self, solver: BaseSolver) -> None:
        """Take up the schedule where the run stands, and warn of what may not be meant."""
        if not self._drives(solver):
            return
        from scepter_lr.schedule import Plateau, Stepwise, make_schedule

        section = solver.cfg.get("LR_SCHEDULER")
        schedule = make_schedule(solver.optimizer, solver.lr_scheduler)
        schedule.load_state_dict(self._state)
        if isinstance(schedule, Plateau):
            self._follow(solver, schedule, section.get("MONITOR") if section is not None else None)
        self._counts_updates = section is not None and section.get("UNIT") == "update"
        follows_position = solver.lr_scheduler is not None and self._plateau is None
        self._check_positions(solver, follows_position, isinstance(schedule, Stepwise))
        self._schedule = schedule
        if self._warmup_epochs > 0:
            self._prepare_warmup(solver, schedule, follows_position)
        self._warn_of_end(solver, schedule)

    def before_iter(self, solver: BaseSolver) -> None:
        """Set the rates at the first iteration of an accumulation window; they hold through it."""
        if self._schedule is None or not solver.is_train_mode or not solver.window_opens:
            return
        epochs: float = solver.epoch - 1
        if not self._by_epoch and solver.epoch_max_iter > 0:
            epochs += solver.iter / solver.epoch_max_iter
        position = solver.total_updates if self._counts_updates else epochs
        if (epochs, position) == self._set_at:
            return
        self._set_at = (epochs, position)
        rates = self._schedule.rates(int(position) if position == int(position) else position)
        if epochs < self._warmup_epochs:
            done = epochs / self._warmup_epochs
            rates = [
                start + (end - start) * done for start, end in zip(self._starts, self._targets, strict=True)
            ]
        self._schedule.put(rates)

    def on_metrics(self, solver: BaseSolver, mode: str, metrics: Mapping[str, Any]) -> None:
        """Show ReduceLROnPlateau its metric; its new rates hold from the next window on."""
        if self._plateau is None or mode != self._monitored_mode:
            return
        if self._monitor not in metrics:
            there = ", ".join(sorted(metrics)) or "none"
            raise RunError(f"LR_SCHEDULER.MONITOR: no metric {self._monitor} in {mode}; there are: {there}")
        self._plateau.observe(float(metrics[self._monitor]))
        self._targets = self._plateau.ahead(0)
        self._set_at = None

    def state_dict(self) -> dict[str, Any]:
        """The rates and the position of a scheduler that goes step by step; empty for every other one."""
        return self._state if self._schedule is None else self._schedule.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep `state` until the schedule is there to take it."""
        self._state = dict(state)

    def _drives(self, solver: BaseSolver) -> bool:
        """Whether there are rates to set, and this is the hook to do it: it stands under TRAIN_HOOKS."""
        if not solver.has("train") or solver.optimizer is None:
            return False
        if solver.training_done and not solver.counters.pending:
            return False  # finished; an eval that is still to come may have something to say
        return any(hook is self for hook in solver.hooks_dict["train"])

    def _follow(self, solver: BaseSolver, plateau: Plateau, monitor: str | None) -> None:
        if not monitor:
            raise RunError("ReduceLROnPlateau follows an epoch metric: name it in LR_SCHEDULER.MONITOR")
        evaluates = solver.has("eval") and (solver.eval_interval is None or solver.eval_interval > 0)
        self._plateau, self._monitor = plateau, monitor
        self._monitored_mode = "eval" if evaluates else "train"

    def _check_positions(self, solver: BaseSolver, follows_position: bool, stepwise: bool) -> None:
        by_epochs = follows_position and not self._counts_updates
        if stepwise and by_epochs and (not self._by_epoch or self._warmup_epochs % 1):
            name = type(solver.lr_scheduler).__name__
            raise RunError(
                f"LrHook: {name} goes by whole steps only; fractions of an epoch (SET_BY_EPOCH: false, or such "
                "WARMUP_EPOCHS) need a scheduler whose rate is a function of position, or LR_SCHEDULER.UNIT: update"
            )
        if not self._by_epoch and (by_epochs or self._warmup_epochs > 0) and solver.steps_per_epoch <= 0:
            raise RunError(
                "LrHook: SET_BY_EPOCH: false counts fractions of an epoch, but the training loader has no length. "
                "Set SET_BY_EPOCH: true, or LR_SCHEDULER.UNIT: update without a warm-up"
            )

    def _prepare_warmup(self, solver: BaseSolver, schedule: Schedule, follows_position: bool) -> None:
        """Where the warm-up of each group begins and leads to."""
        position = self._warmup_epochs
        if follows_position and self._counts_updates:
            if solver.updates_per_epoch <= 0:
                raise RunError(
                    "LrHook: a warm-up leads to the rate after WARMUP_EPOCHS; with LR_SCHEDULER.UNIT: update that "
                    "needs a training loader with a length. Set WARMUP_FUNC: null"
                )
            position *= solver.updates_per_epoch
        base = schedule.base_rates()
        self._starts = [self._start_lr * (rate / base[0] if base[0] else 1.0) for rate in base]
        if solver.epoch - 1 >= self._warmup_epochs:
            return
        self._targets = schedule.ahead(int(position) if position == int(position) else position)
        if self._starts[0] > self._targets[0]:
            solver.logger.warning(
                "LrHook: WARMUP_START_LR %g is above the rate that it leads to, %g: the rate falls during the first "
                "%g epochs. A lower WARMUP_START_LR makes a warm-up, WARMUP_FUNC: null leaves it out.",
                self._starts[0],
                self._targets[0],
                self._warmup_epochs,
            )

    def _warn_of_end(self, solver: BaseSolver, schedule: Schedule) -> None:
        """Say it where the schedule is through before the run is."""
        whole = self._by_epoch or self._counts_updates
        end = schedule.end(whole=whole)
        length: float = solver.planned_updates
        if not self._counts_updates:
            length = (
                solver.total_steps / solver.steps_per_epoch
                if solver.steps_per_epoch > 0
                else solver.max_epochs
            )
        if end is None or (length - 1 if whole else length) <= end.last:
            return
        solver.logger.warning(
            "LrHook: %s ends before the run, with %s %d of %g %s; then %s.",
            type(solver.lr_scheduler).__name__,
            end.key,
            end.value,
            length,
            "updates" if self._counts_updates else "epochs",
            end.after,
        )
