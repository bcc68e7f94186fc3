"""TensorboardLogHook: the means of a window of iterations, and the values of an epoch, as scalars of TensorBoard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator

from scepter_core import FileSystem, Hook, HookConfig, Location
from scepter_tensorboard.event_log import EventLog

if TYPE_CHECKING:
    from scepter_core import BaseSolver, RunConfig
    from scepter_tensorboard.window import Window

MODES = ("train", "eval", "test")


class TensorboardLogHook(Hook):
    """`train/iter/{key}` at an interval, listed under TRAIN_HOOKS; `{mode}/epoch/{key}` for every mode."""

    class Config(HookConfig):
        """The keys of TensorboardLogHook."""

        priority: int = Field(100, description="Hooks of the same event run in ascending priority.")
        log_dir: Location | None = Field(
            None, min_length=1, description="Folder of the event files, a path or a URL. Default: WORK_DIR/tensorboard."
        )
        log_interval: int = Field(
            1000,
            description="Iterations between writes, counted from the epoch's start; <= 0: epoch values only.",
        )
        interval: int | None = Field(
            None, description="The name that later SCEPTER versions gave to LOG_INTERVAL."
        )

        @field_validator("log_dir")
        @classmethod
        def _is_a_path(cls, path: str | None) -> str | None:
            if path is not None and "\0" in path:
                raise ValueError("must be a path, which has no NUL character")
            return path

        @model_validator(mode="after")
        def _one_interval(self) -> TensorboardLogHook.Config:
            if self.interval is not None and self.interval != self.log_interval:
                if "log_interval" in self.model_fields_set:
                    raise ValueError("INTERVAL and LOG_INTERVAL are one key under two names; give one")
                self.log_interval = self.interval
            return self

    def __init__(self, cfg: Any, logger: Any = None) -> None:
        super().__init__(cfg, logger)
        self._interval: int = cfg.LOG_INTERVAL
        self._window: Window | None = None  # None where this hook writes no iterations
        self._log: EventLog | None = None  # None on processes that write nothing
        self._loaded: dict[str, Any] = {}
        self._loaded_windows: list[dict[str, Any]] = []
        self._writes: frozenset[str] = frozenset()  # the modes whose epochs are this hook's to write
        self._named: set[str] = set()  # outputs that were said to be left out

    @classmethod
    def check(cls, cfg: Any, run: RunConfig) -> Iterable[tuple[str, str]]:
        """Two hooks of one mode and one folder would write everything twice."""
        solver: Any = run.solver
        files = FileSystem()
        folder = _folder(cfg, solver.work_dir, files)
        for hooks in (solver.train_hooks, solver.eval_hooks, solver.test_hooks):
            same = [
                section
                for section in hooks
                if isinstance(section, cls.Config) and _folder(section, solver.work_dir, files) == folder
            ]
            if any(section is cfg for section in same[1:]):
                yield "LOG_DIR", f"another TensorboardLogHook of the same mode writes to {folder} already"

    def before_solve(self, solver: BaseSolver) -> None:
        """Find the event files, which hooks of one folder share, and go on where the checkpoint, if any, left off."""
        by_mode = {mode: _hooks_of(solver, mode) for mode in MODES}
        everyone = [hook for hooks in by_mode.values() for hook in hooks]
        self._writes = frozenset(mode for mode in MODES if self in (by_mode[mode] or everyone[:1]))
        self._named = everyone[0]._named
        if self._log is None and solver.rank == 0:
            place, files = solver.work_dir, solver.file_system
            folder = _folder(self.cfg, place, files)
            sharing = [hook for hook in everyone if _folder(hook.cfg, place, files) == folder]
            self._log = _shared_log(solver, folder, sharing)
        if self._window is None and self._interval > 0 and self in by_mode["train"]:
            from scepter_tensorboard.window import Window

            self._window = Window(self._name_skipped)
            if self._loaded_windows:
                self._window.load_state_dict(*self._loaded_windows)

    def after_iter(self, solver: BaseSolver) -> None:
        """Take the outputs in; at the interval and at the epoch's end, read and write them."""
        if self._window is None:
            return
        stands_in = solver.batch_size == 0 and solver.world_size > 1  # for a share that this process has not
        self._window.add({} if stands_in else solver.iter_outputs, solver.batch_size)
        if (solver.iter + 1) % self._interval == 0 or solver.is_last_iter:
            self._write_window(solver)

    def after_all_iter(self, solver: BaseSolver) -> None:
        """Write what is left where a loop of a solver's own did not say which iteration was the last."""
        if self._window is not None and self._window.steps:
            self._write_window(solver)

    def on_metrics(self, solver: BaseSolver, mode: str, metrics: Mapping[str, Any]) -> None:
        """Write a mode's epoch, once in each folder."""
        if mode in self._writes:
            self._write(solver, f"{mode}/epoch", metrics)

    def after_solve(self, solver: BaseSolver) -> None:
        """Close the file, however the run ended."""
        if self._log is not None:
            self._log.close()

    def state_dict(self) -> dict[str, Any]:
        """The lengths of the event files."""
        return {"log": self._log.state_dict()} if self._log is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep `state` until before_solve knows the folder."""
        self._loaded = dict(state)

    def rank_state_dict(self) -> dict[str, Any]:
        """The window so far."""
        return {"window": self._window.state_dict()} if self._window is not None else {}

    def load_rank_state_dicts(self, states: list[dict[str, Any]]) -> None:
        """Keep the windows until before_solve."""
        self._loaded_windows = [state["window"] for state in states if "window" in state]

    def _write_window(self, solver: BaseSolver) -> None:
        if self._window is not None:
            self._write(solver, "train/iter", {**self._window.means(solver.processes.gather), **solver.collect_log_vars()})
            self._window.clear()

    def _write(self, solver: BaseSolver, group: str, values: Mapping[str, Any]) -> None:
        if self._log is not None and values:
            tagged = {f"{group}/{name}": float(value) for name, value in values.items()}
            self._log.write(solver.train_steps, tagged)

    def _name_skipped(self, name: str, value: Any) -> None:
        if name not in self._named:
            self._named.add(name)
            shape = getattr(value, "shape", None)
            kind = type(value).__name__ + (f" of shape {list(shape)}" if shape is not None else "")
            self.logger.info("output %s is no scalar (%s): not written to TensorBoard", name, kind)


def _hooks_of(solver: BaseSolver, mode: str) -> list[TensorboardLogHook]:
    return [hook for hook in solver.hooks_dict.get(mode, ()) if isinstance(hook, TensorboardLogHook)]


def _folder(cfg: Any, work_dir: str, files: FileSystem) -> str:
    """The absolute folder of the event files, links and `..` followed; or its URL."""
    return files.resolve(cfg.LOG_DIR or files.join(work_dir, "tensorboard"))


def _shared_log(solver: BaseSolver, folder: str, sharing: list[TensorboardLogHook]) -> EventLog:
    """The log of the hooks that share `folder`: that which one of them has already, or a new one."""
    for hook in sharing:
        if hook._log is not None:
            return hook._log
    # Only a run that trains puts its own folder in order; an eval or a test adds to what is there.
    within = solver.file_system.is_within(folder, solver.work_dir)
    log = EventLog(solver.file_system, folder, owns_folder=within and solver.has("train"))
    for hook in sharing:
        if "log" in hook._loaded:  # the same in all that shared it when the checkpoint was taken
            log.load_state_dict(hook._loaded["log"])
            break
    return log
