"""CheckpointHook: when the run's state is loaded, when it is saved, and which files stay."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

from pydantic import Field, field_validator

from scepter_checkpoint.writer import Writer
from scepter_core import (
    BaseSolver,
    FileSystem,
    Hook,
    HookConfig,
    RunConfig,
    RunError,
    Stopped,
    hookimpl,
    hookspec,
    read_checkpoint,
    remove_unlisted_parts,
)

FOLDER = "checkpoints"
SUFFIX = ".pth"


class CheckpointEvents:
    """The event that CheckpointHook brings."""

    @hookspec(scope="run")
    def on_checkpoint(self, solver: BaseSolver, path: str, kind: str) -> None:
        """A checkpoint file is whole and on the disk. Of several processes, only the one that writes emits this.

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

        taken_with_notice = dict.fromkeys(
            ("PUSH_TO_HUB", "HUB_MODEL_ID", "HUB_PRIVATE"), "this hook uploads nothing; on_checkpoint tells of each file"
        )

        priority: int = 300
        interval: int = Field(1, description="Epochs between checkpoints (steps where only MAX_STEPS limits); <= 0: none.")
        interval_steps: int = Field(0, description="Training steps between checkpoints; <= 0: none.")
        save_name_prefix: str = Field("ldm_step", description="First part of the files' names.")
        save_last: bool = Field(False, description="Also save the very last state, after the last eval and test.")
        save_best: bool = Field(True, description="Keep the best state by SAVE_BEST_BY.")
        save_best_by: str = Field("", description="Metric: `acc` or `+acc` (higher is better), `-loss` (lower is).")
        keep_last: int = Field(0, description="How many step files of this prefix stay; <= 0: all.")
        on_save_error: Literal["error", "warn"] = Field(
            "error", description="What a file that could not be written does: end the run, or warn."
        )
        disable_snapshot: bool = Field(False, description="No files at intervals: only best, last and a signal's.")
        async_: bool = Field(True, alias="ASYNC", description="Write in the background while training goes on.")

        @field_validator("save_name_prefix")
        @classmethod
        def _is_a_name(cls, value: str) -> str:
            if not value or value.startswith(".") or re.search(r'[/\\:*?"<>|\x00-\x1f]', value):
                raise ValueError('must be a plain file name: not empty, no leading dot, none of / \\ : * ? " < > |')
            if len(value.encode("utf-8", "replace")) > 200:
                raise ValueError("must be 200 bytes at most: file systems take names of 255")
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
        self._first = self  # the run's first CheckpointHook, whose writer all share
        self._writer: Writer | None = None
        self._is_best = False
        self._decided = 0  # of the first hook: how many have decided on the metrics at hand
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
        self._first = self._all(solver)[0]
        self._decided = 0
        if solver.resume_from is None or self._first is not self:
            return
        path = solver.load_from(solver.resume_from)
        if path is None:
            self.logger.info("no checkpoint in %s: a fresh start", solver.work_dir)
            return
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
        """Every INTERVAL_STEPS-th training step, and when SIGUSR1 asks for it."""
        if not solver.is_train_mode:
            return
        steps = [self.cfg.interval_steps]
        if solver.cfg.counts_steps and "interval" in self.cfg.model_fields_set:
            steps.append(self.cfg.interval)
        due = any(interval > 0 and solver.train_steps % interval == 0 for interval in steps)
        if due and not self.cfg.disable_snapshot:
            self._save(solver, "step")
        elif solver.save_requested:
            self._save(solver, "signal")
        else:
            self._announce(solver)

    @hookimpl(trylast=True)
    def on_metrics(self, solver: BaseSolver, mode: str, metrics: Mapping[str, float]) -> None:
        """A mode's metrics are final: is this the best state so far?

        All CheckpointHooks decide before the last of them saves: each file holds what all decided.
        """
        self._is_best = self._decide(solver, mode, metrics)
        hooks = self._all(solver)
        self._first._decided += 1
        if self._first._decided < len(hooks):
            return
        self._first._decided = 0
        for hook in hooks:
            if hook._is_best:
                hook._save(solver, "best")

    def _all(self, solver: BaseSolver) -> list[CheckpointHook]:
        return [hook for hooks in solver.hooks_dict.values() for hook in hooks if isinstance(hook, CheckpointHook)]

    def _decide(self, solver: BaseSolver, mode: str, metrics: Mapping[str, float]) -> bool:
        decisive = "eval" if solver.has("eval") else "train"
        if not (solver.has("train") and self.cfg.save_best and self._metric and mode == decisive):
            return False
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
            return True
        return False

    @hookimpl(trylast=True)
    def after_epoch(self, solver: BaseSolver) -> None:
        """Every INTERVAL-th training epoch; where steps are counted and INTERVAL is not set, at the end."""
        if not solver.is_train_mode:
            return
        if solver.cfg.counts_steps:
            due = "interval" not in self.cfg.model_fields_set and solver.training_done
        else:
            due = solver.crossed(self.cfg.interval)
        if due and not self.cfg.disable_snapshot:
            self._save(solver, "step")
        else:
            self._announce(solver)

    @hookimpl(trylast=True)
    def on_exception(self, solver: BaseSolver, error: BaseException) -> None:
        """A run that a signal ends is saved where it stands; one that an error ends is not."""
        self._ends_by_error = True
        if isinstance(error, Stopped) and solver.has("train") and solver.train_steps > 0:
            self._save(solver, "signal")

    @hookimpl(trylast=True)
    def after_solve(self, solver: BaseSolver) -> None:
        """SAVE_LAST, and wait until every file is on the disk."""
        wanted = self.cfg.save_last and solver.has("train") and not self._ends_by_error
        if wanted and (not solver.nothing_to_do or self._lacks_last(solver)):
            self._save(solver, "last")
        if self._first._writer is not None:
            self._first._writer.wait()
        self._announce(solver)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _path(self, solver: BaseSolver, label: str) -> str:
        return solver.file_system.join(solver.work_dir, FOLDER, f"{self.cfg.save_name_prefix}-{label}{SUFFIX}")

    def _lacks_last(self, solver: BaseSolver) -> bool:
        """Whether a run that is finished was killed before its last state was on the disk."""

        def lacks() -> bool:
            try:
                last = read_checkpoint(self._path(solver, "last"), solver.file_system, whole=False)
            except RunError:  # not there, or damaged
                return True
            return bool(last["total_iter"]["train"] < solver.train_steps)

        return solver.processes.of_first(lacks)

    def _save(self, solver: BaseSolver, kind: str) -> None:
        folder = solver.file_system.join(solver.work_dir, FOLDER)
        if self._first._writer is None:
            self._first._writer = Writer(solver.file_system, solver.strategy)
            if solver.rank == 0:
                solver.file_system.remove_temporaries(folder)  # of a writer that was killed; none is at work yet
        self._first._writer.wait()
        self._announce(solver)  # before this save removes an older file
        label = kind if kind in ("best", "last") else str(solver.train_steps)
        path = self._path(solver, label)
        remove_old = partial(self._remove_old, solver.file_system, folder, solver.train_steps)
        state = solver.save_checkpoint()  # in every process: some of it only all know together
        if solver.rank != 0 and not solver.strategy.sharded:
            return
        self._first._writer.write(path, kind, state, remove_old, in_background=self.cfg.async_)
        if not self.cfg.async_:
            self._announce(solver)

    def _announce(self, solver: BaseSolver) -> None:
        """Raise what went wrong in the background; tell the other hooks what became whole."""
        writer = self._first._writer
        if writer is None:
            return
        try:
            writer.raise_failure()
        except RunError as error:
            if self.cfg.on_save_error == "error":
                raise
            self.logger.warning("%s; the run goes on", error)
        for path, kind in writer.take_done():
            solver.events.on_checkpoint(solver, path, kind)

    def _remove_old(self, files: FileSystem, folder: str, step: int) -> None:
        """What the new file takes the place of, and KEEP_LAST: after it is whole, never before.

        Files beyond `step` are of a branch that the run left when it went back to an earlier checkpoint: they go first.
        """
        if self.cfg.keep_last > 0:
            self._remove_older(files, folder, step)
        remove_unlisted_parts(folder)

    def _remove_older(self, files: FileSystem, folder: str, step: int) -> None:
        own = re.compile(re.escape(self.cfg.save_name_prefix) + r"-(\d+)" + re.escape(SUFFIX))
        steps = [int(match[1]) for name in files.listdir(folder) if (match := own.fullmatch(name))]
        steps.sort(key=lambda number: (number <= step, number))
        for number in steps[: -self.cfg.keep_last]:
            path = files.join(folder, f"{self.cfg.save_name_prefix}-{number}{SUFFIX}")
            try:
                files.remove(path)
            except OSError as error:  # the new file is safe: no reason to end the run
                self.logger.warning("could not remove the old checkpoint %s: %s", path, error)
