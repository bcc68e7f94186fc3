"""LogHook: one line, one row and one device synchronisation a window of iterations."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, model_validator

from scepter_core import Hook, HookConfig
from scepter_log.metrics_file import MetricsFile
from scepter_log.record import LogEvents, LogRecord, clock, number, rate, to_json

if TYPE_CHECKING:
    from scepter_core import BaseSolver
    from scepter_log.window import Reading, Window

MODES = ("train", "eval", "test")


class LogHook(Hook):
    """Log lines of its mode's iterations, of every mode's epochs, and the same in WORK_DIR/metrics.jsonl."""

    class Config(HookConfig):
        """The keys of LogHook."""

        priority: int = Field(100, description="Hooks of the same event run in ascending priority.")
        log_interval: int = Field(
            10,
            description="Iterations of a line, counted from the epoch's start; <= 0: lines of epochs only.",
        )
        show_gpu_mem: bool = Field(
            False, description="Show the peak of allocated GPU memory, where there is a GPU."
        )
        interval: int | None = Field(
            None, description="The name that later SCEPTER versions gave to LOG_INTERVAL."
        )

        @model_validator(mode="after")
        def _one_interval(self) -> LogHook.Config:
            if self.interval is not None and self.interval != self.log_interval:
                if "log_interval" in self.model_fields_set:
                    raise ValueError("INTERVAL and LOG_INTERVAL are one key under two names; give one")
                self.log_interval = self.interval
            return self

    events: ClassVar[type | None] = LogEvents

    def __init__(self, cfg: Any, logger: Any = None) -> None:
        super().__init__(cfg, logger)
        self._interval: int = cfg.LOG_INTERVAL
        self._show_memory: bool = cfg.SHOW_GPU_MEM
        self._window: Window | None = None  # None where this hook shows no iterations
        self._file: MetricsFile | None = None  # None on processes that write nothing
        self._loaded: dict[str, Any] = {}
        self._loaded_windows: list[dict[str, Any]] = []
        self._writes: dict[str, bool] = {}  # by mode, whether its epochs are this hook's to write
        self._began = self._started = time.perf_counter()
        self._steps_before = 0

    def before_solve(self, solver: BaseSolver) -> None:
        """Find the file that the run's LogHooks share, and go on where the checkpoint, if any, left off."""
        self._started, self._steps_before = time.perf_counter(), solver.train_steps
        hooks = {mode: _log_hooks(solver, mode) for mode in MODES}
        everyone = [hook for mode in MODES for hook in hooks[mode]] or [self]
        self._writes = {mode: (hooks[mode] or everyone)[0] is self for mode in MODES}
        if everyone[0]._file is None and solver.rank == 0:
            path = solver.file_system.join(solver.work_dir, "metrics.jsonl")
            everyone[0]._file = MetricsFile(solver.file_system, path)
            if solver.has("train") and not any("length" in hook._loaded for hook in everyone):
                everyone[0]._file.begin_anew()
            for hook in everyone:
                if "length" in hook._loaded:  # the same in all that were there when the checkpoint was taken
                    everyone[0]._file.cut(hook._loaded["length"])
        self._file = everyone[0]._file
        if self._interval > 0:
            from scepter_log.window import Window

            self._window = Window()
            if self._loaded_windows:
                self._window.load_state_dict(*self._loaded_windows)
        self._loaded, self._loaded_windows = {}, []

    def before_epoch(self, solver: BaseSolver) -> None:
        """A window never reaches over an epoch's border."""
        if self._window is not None and solver.iter == 0:
            self._window.clear()

    def before_iter(self, solver: BaseSolver) -> None:
        """Start the iteration's clock."""
        self._began = time.perf_counter()

    def after_iter(self, solver: BaseSolver) -> None:
        """Take the outputs in; at the interval, read and show them."""
        window = self._window
        if window is None:
            return
        stands_in = solver.batch_size == 0 and solver.world_size > 1  # for a share that this process has not
        window.add({} if stands_in else solver.iter_outputs, solver.batch_size)
        window.data_seconds += solver.data_time
        due = (solver.iter + 1) % self._interval == 0 or solver.is_last_iter
        # Read first: on an accelerator the time of the steps is spent where the device is waited for.
        read = window.read(solver.processes.gather) if due else None
        window.seconds += solver.data_time + time.perf_counter() - self._began
        if read is not None:
            self._show_window(solver, window, read, done=solver.iter + 1)

    def after_all_iter(self, solver: BaseSolver) -> None:
        """Show what is left where a loop of a solver's own did not say which iteration was the last."""
        window = self._window
        if window is not None and window.steps:
            began = time.perf_counter()
            read = window.read(solver.processes.gather)
            window.seconds += time.perf_counter() - began
            self._show_window(solver, window, read, done=solver.iter)

    def on_metrics(self, solver: BaseSolver, mode: str, metrics: Mapping[str, Any]) -> None:
        """Show a mode's epoch, once in the run."""
        if not self._writes.get(mode, False):
            return
        values = {name: float(value) for name, value in metrics.items()}
        elapsed = time.perf_counter() - self._started
        shown = " ".join(f"{name} {number(value)}" for name, value in values.items())
        head = f"{mode} epoch {_of(solver.epoch, solver.max_epochs)} done | step {solver.train_steps}"
        solver.logger.info(" | ".join(part for part in (head, shown, f"elapsed {clock(elapsed)}") if part))
        self._emit(solver, mode, "epoch", values, {"elapsed": elapsed})

    def after_solve(self, solver: BaseSolver) -> None:
        """Close the file, however the run ended."""
        if self._file is not None:
            self._file.close()

    def state_dict(self) -> dict[str, Any]:
        """The length of metrics.jsonl."""
        return {"length": self._file.length()} if self._file is not None else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep `state` until before_solve knows the file."""
        self._loaded = dict(state)

    def rank_state_dict(self) -> dict[str, Any]:
        """The window so far."""
        return {"window": self._window.state_dict()} if self._window is not None else {}

    def load_rank_state_dicts(self, states: list[dict[str, Any]]) -> None:
        """Keep the windows until before_solve."""
        self._loaded_windows = [state["window"] for state in states if "window" in state]

    def _show_window(
        self, solver: BaseSolver, window: Window, read: Reading, *, done: int
    ) -> None:
        """Log what `window` holds, as of the `done`-th iteration of the epoch, and begin the next one."""
        now, means, samples = read
        rates = {name: float(value) for name, value in solver.collect_log_vars().items()}
        timing = self._timing(solver, window, samples, done)
        total = solver.total_steps if solver.mode == "train" else -1
        # Within after_iter the run's count does not include this iteration yet; `iter` tells the two apart.
        run = solver.total_iter + done - solver.iter
        outputs = " ".join(
            f"{name} {number(now[name])}({number(mean)})" if name in now else f"{name} ({number(mean)})"
            for name, mean in means.items()
        )
        parts = (
            f"{solver.mode} epoch {_of(solver.epoch, solver.max_epochs)} "
            f"iter {_of(done, solver.epoch_max_iter)} ({_of(run, total)})",
            outputs,
            " ".join(f"{name} {value:.2e}" for name, value in rates.items()),
            f"data {timing['data_time']:.3f}s step {timing['step_time']:.3f}s {rate(timing['throughput'])} samples/s",
            f"memory {timing['gpu_memory']:.0f}MiB" if "gpu_memory" in timing else "",
            f"elapsed {clock(timing['elapsed'])}"
            + (f" remaining {clock(timing['remaining'])}" if "remaining" in timing else ""),
        )
        solver.logger.info(" | ".join(part for part in parts if part))
        window.clear()
        self._emit(solver, solver.mode, "iter", {**means, **rates}, timing)

    def _timing(self, solver: BaseSolver, window: Window, samples: int, done: int) -> dict[str, float]:
        iteration = window.seconds / window.steps
        data = window.data_seconds / window.steps
        elapsed = time.perf_counter() - self._started
        timing = {
            "data_time": data,
            "step_time": max(iteration - data, 0.0),
            "throughput": samples / max(window.seconds, 1e-9),
            "elapsed": elapsed,
        }
        steps = solver.train_steps - self._steps_before
        if solver.mode != "train":
            if solver.epoch_max_iter > 0:
                timing["remaining"] = iteration * (solver.epoch_max_iter - done)
        elif solver.total_steps > 0 and steps > 0:
            timing["remaining"] = elapsed / steps * (solver.total_steps - solver.train_steps)
        if self._show_memory and solver.device.type == "cuda":
            import torch

            timing["gpu_memory"] = torch.cuda.max_memory_allocated(solver.device) / 2**20
        return timing

    def _emit(
        self, solver: BaseSolver, mode: str, kind: Any, values: dict[str, float], timing: dict[str, float]
    ) -> None:
        record = LogRecord(mode, solver.epoch, solver.train_steps, solver.total_updates, kind, values, timing)
        if self._file is not None:
            self._file.write(to_json(record))
        solver.events.on_log(solver, record)


def _log_hooks(solver: BaseSolver, mode: str) -> list[LogHook]:
    return [hook for hook in solver.hooks_dict.get(mode, ()) if isinstance(hook, LogHook)]


def _of(done: int, total: int) -> str:
    """`3/10`, or `3` where the total is not known."""
    return f"{done}/{total}" if total > 0 else str(done)
