"""CheckpointHook: when the run's state is loaded, when it is saved, and which files stay."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, field_validator

from scepter_checkpoint.writer import Writer
from scepter_core import (
    BaseSolver,
    Hook,
    HookConfig,
    RunConfig,
    RunError,
    Stopped,
    find_checkpoint,
    hookimpl,
    hookspec,
    read_checkpoint,
)

FOLDER = "checkpoints"
SUFFIX = ".pth"


class CheckpointEvents:
    """The event that CheckpointHook brings."""

    @hookspec(scope="run")
    def on_checkpoint(self, solver: BaseSolver, path: str, kind: str) -> None:
        """A checkpoint file is whole and on the disk.

        Args:
            path: the file.
            kind: `step`, `best`, `last`, or `signal`.
        """


class CheckpointHook(Hook):
    """Loads RESUME_FROM before anything else happens; saves when every other hook of the event has run."""

    events = CheckpointEvents
    loads_checkpoints = True

    class Config(HookConfig):
        """The keys of CheckpointHook."""

        priority: int = 300
        interval: int = Field(1, description="Epochs between checkpoints (steps where only MAX_STEPS limits); <= 0: none.")
        interval_steps: int = Field(0, description="Training steps between checkpoints; <= 0: none.")
        save_name_prefix: str = Field("ldm_step", description="First part of the files' names.")
        save_last: bool = Field(False, description="Also save the very last state, after the last eval and test.")
        save_best: bool = Field(True, description="Keep the best state by SAVE_BEST_BY.")
        save_best_by: str = Field("", description="Metric: `acc` or `+acc` (higher is better), `-loss` (lower is).")
        keep_last: int = Field(0, description="How many step files of this prefix stay; <= 0: all.")
        async_: bool = Field(True, alias="ASYNC", description="Write in the background while training goes on.")

        @field_validator("save_name_prefix")
        @classmethod
        def _is_a_name(cls, value: str) -> str:
            if not value or value.startswith(".") or re.search(r'[/\\:*?"<>|\x00-\x1f]', value):
                raise ValueError('must be a plain file name: not empty, no leading dot, none of / \\ : * ? " < > |')
            return value

        @field_validator("save_best_by")
        @classmethod
        def _names_a_metric(cls, value: str) -> str:
            if value in ("+", "-"):
                raise ValueError("must name a metric after the sign, as in +acc or -loss")
            return value

    cfg: Config

    def __init__(self, cfg: Config, logger: Any = None) -> None:
        super().__init__(cfg, logger=logger)
        self.best: float | None = None
        self._lower_is_better = cfg.save_best_by.startswith("-")
        self._metric = cfg.save_best_by.removeprefix("-").removeprefix("+")
        self._writer: Writer | None = None
        self._ends_by_error = False

    @property
    def state_key(self) -> str:
        """Tells several hooks apart in a checkpoint."""
        return self.cfg.save_name_prefix

    @classmethod
    def check(cls, cfg: Any, run: RunConfig) -> Iterable[tuple[str, str]]:
        """Two hooks with one prefix would write the same files."""
        solver: Any = run.solver
        others = [
            section
            for section in (*solver.train_hooks, *solver.eval_hooks, *solver.test_hooks)
            if isinstance(section, CheckpointHook.Config) and section.save_name_prefix == cfg.save_name_prefix
        ]
        if others and others[0] is not cfg:
            yield "SAVE_NAME_PREFIX", f"another CheckpointHook has the prefix {cfg.save_name_prefix} already"

    # --- loading ---------------------------------------------------------------------------------------------------

    @hookimpl(tryfirst=True)
    def before_solve(self, solver: BaseSolver) -> None:
        """Load RESUME_FROM, by the run's first CheckpointHook."""
        if self.cfg.save_best and not self._metric and "save_best" in self.cfg.model_fields_set:
            self.logger.info("SAVE_BEST is off: SAVE_BEST_BY names no metric")
        hooks = [hook for hooks in solver.hooks_dict.values() for hook in hooks if isinstance(hook, CheckpointHook)]
        if solver.resume_from is None or hooks[0] is not self:
            return
        path = find_checkpoint(solver.work_dir, solver.resume_from, self.logger.warning)
        if path is None:
            self.logger.info("no checkpoint in %s: a fresh start", solver.work_dir)
            return
        solver.load_checkpoint(read_checkpoint(path))
        self.logger.info("resumed from %s (epoch %d, step %d)", path, solver.epoch, solver.train_steps)

    def state_dict(self) -> dict[str, Any]:
        """The best value so far."""
        return {"best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.best = state["best"]

    # --- saving ----------------------------------------------------------------------------------------------------

    @hookimpl(trylast=True)
    def after_iter(self, solver: BaseSolver) -> None:
        """Every INTERVAL_STEPS-th training step."""
        if not solver.is_train_mode:
            return
        steps = [self.cfg.interval_steps]
        if solver.cfg.counts_steps and "interval" in self.cfg.model_fields_set:
            steps.append(self.cfg.interval)
        if any(interval > 0 and solver.train_steps % interval == 0 for interval in steps):
            self._save(solver, "step")
        else:
            self._announce(solver)

    @hookimpl(trylast=True)
    def on_metrics(self, solver: BaseSolver, mode: str, metrics: Mapping[str, float]) -> None:
        """A mode's metrics are final: is this the best state so far?"""
        decisive = "eval" if solver.has("eval") else "train"
        if not (solver.has("train") and self.cfg.save_best and self._metric and mode == decisive):
            return
        if self._metric not in metrics:
            raise RunError(
                f"SAVE_BEST_BY: {mode} has no metric {self._metric}; there are: {', '.join(sorted(metrics)) or 'none'}"
            )
        value = metrics[self._metric]
        if math.isnan(value):
            self.logger.warning("%s is NaN in epoch %d: never the best", self._metric, solver.epoch)
        elif self.best is None or (value < self.best if self._lower_is_better else value > self.best):
            self.best = value
            self.logger.info("best %s so far: %g, in epoch %d", self._metric, value, solver.epoch)
            self._save(solver, "best")

    @hookimpl(trylast=True)
    def after_epoch(self, solver: BaseSolver) -> None:
        """Every INTERVAL-th training epoch; where steps are counted and INTERVAL is not set, at the end."""
        if not solver.is_train_mode:
            return
        if solver.cfg.counts_steps:
            due = "interval" not in self.cfg.model_fields_set and solver.training_done
        else:
            due = solver.crossed(self.cfg.interval)
        if due:
            self._save(solver, "step")
        else:
            self._announce(solver)

    @hookimpl(trylast=True)
    def on_exception(self, solver: BaseSolver, error: BaseException) -> None:
        """A run that a signal ends is saved where it stands; one that an error ends is not."""
        self._ends_by_error = True
        if isinstance(error, Stopped) and solver.has("train"):
            self._save(solver, "signal")

    @hookimpl(trylast=True)
    def after_solve(self, solver: BaseSolver) -> None:
        """SAVE_LAST, and wait until every file is on the disk."""
        if self.cfg.save_last and solver.has("train") and not (self._ends_by_error or solver.nothing_to_do):
            self._save(solver, "last")
        if self._writer is not None:
            self._writer.wait()
        self._announce(solver)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _save(self, solver: BaseSolver, kind: str) -> None:
        if self._writer is None:
            self._writer = Writer(solver.file_system, in_background=self.cfg.async_)
            solver.file_system.remove_temporaries(solver.file_system.join(solver.work_dir, FOLDER))
        self._announce(solver)
        label = kind if kind in ("best", "last") else str(solver.train_steps)
        path = solver.file_system.join(solver.work_dir, FOLDER, f"{self.cfg.save_name_prefix}-{label}{SUFFIX}")
        self._writer.write(path, kind, solver.save_checkpoint(), lambda: self._remove_old(solver))

    def _announce(self, solver: BaseSolver) -> None:
        """Raise what went wrong in the background; tell the other hooks what became whole."""
        if self._writer is None:
            return
        self._writer.raise_failure()
        for path, kind in self._writer.take_done():
            solver.events.on_checkpoint(solver, path, kind)

    def _remove_old(self, solver: BaseSolver) -> None:
        """KEEP_LAST: after the new file is whole, never before."""
        if self.cfg.keep_last <= 0:
            return
        files, folder = solver.file_system, solver.file_system.join(solver.work_dir, FOLDER)
        own = re.compile(re.escape(self.cfg.save_name_prefix) + r"-(\d+)" + re.escape(SUFFIX))
        numbered = sorted((int(match[1]), name) for name in files.listdir(folder) if (match := own.fullmatch(name)))
        for _, name in numbered[: -self.cfg.keep_last]:
            files.remove(files.join(folder, name))
