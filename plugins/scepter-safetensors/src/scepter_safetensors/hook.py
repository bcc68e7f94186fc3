"""SafetensorsHook: when the weights are written, and under which name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import Field, field_validator
from safetensors.torch import save
from torch import Tensor

from scepter_core import BaseSolver, Hook, HookConfig, RunConfig, RunError, Stopped, hookimpl
from scepter_safetensors.tensors import as_text, prepare

FOLDER = "safetensors"
SUFFIX = ".safetensors"


class SafetensorsHook(Hook):
    """Writes `WORK_DIR/safetensors/{prefix}-{step}.safetensors`; `step` counts completed training steps."""

    class Config(HookConfig):
        """The keys of SafetensorsHook."""

        priority: int = 200
        interval: int = Field(1000, description="Training steps between files; <= 0: only the one at the end.")
        save_name_prefix: str = Field("ldm_step", description="First part of the files' names.")

        @field_validator("save_name_prefix")
        @classmethod
        def _is_a_name(cls, value: str) -> str:
            if not value or value.startswith(".") or re.search(r'[/\\:*?"<>|\x00-\x1f]', value):
                raise ValueError('must be a plain file name: not empty, no leading dot, none of / \\ : * ? " < > |')
            if len(value.encode("utf-8", "replace")) > 200:
                raise ValueError("must be 200 bytes at most: file systems take names of 255")
            return value

    cfg: Config

    def __init__(self, cfg: Config, logger: Any = None) -> None:
        super().__init__(cfg, logger=logger)
        self._began_at = 0  # the training step at which this process took the run up
        self._written_at: int | None = None  # the step of the last file
        self._ends_by_error = False

    @classmethod
    def check(cls, cfg: Any, run: RunConfig) -> Iterable[tuple[str, str]]:
        """Two hooks with one prefix would write the same files."""
        solver: Any = run.solver
        same = [
            section
            for section in (*solver.train_hooks, *solver.eval_hooks, *solver.test_hooks)
            if isinstance(section, SafetensorsHook.Config) and section.save_name_prefix == cfg.save_name_prefix
        ]
        if same and same[0] is not cfg:
            yield "SAVE_NAME_PREFIX", f"another SafetensorsHook has the prefix {cfg.save_name_prefix} already"

    def before_solve(self, solver: BaseSolver) -> None:
        """Note where the run stands."""
        self._began_at = solver.train_steps

    @hookimpl(trylast=True)
    def after_iter(self, solver: BaseSolver) -> None:
        """Every INTERVAL-th training step, when every other hook has done what it does to the weights."""
        every = self.cfg.interval
        if every > 0 and solver.is_train_mode and solver.train_steps % every == 0:
            self._write(solver)

    def on_exception(self, solver: BaseSolver, error: BaseException) -> None:
        """A run that a signal ends has good weights; of one that an error ends nobody knows."""
        self._ends_by_error = not isinstance(error, Stopped)

    @hookimpl(trylast=True)
    def after_solve(self, solver: BaseSolver) -> None:
        """The weights at the end."""
        step = solver.train_steps
        if not solver.has("train") or solver.nothing_to_do or self._ends_by_error or step in (0, self._written_at):
            return
        # Without a step of its own (resumed for an eval that was still to come): what an earlier process owed.
        if step > self._began_at or not solver.file_system.exists(self._path(solver)):
            self._write(solver)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _path(self, solver: BaseSolver) -> str:
        name = f"{self.cfg.save_name_prefix}-{solver.train_steps}{SUFFIX}"
        return solver.file_system.join(solver.work_dir, FOLDER, name)

    def _write(self, solver: BaseSolver) -> None:
        exported, metadata = solver.save_safetensors()
        is_first, self._written_at = self._written_at is None, solver.train_steps
        if solver.rank != 0:
            return
        weights, left_out = prepare(exported)
        files, path = solver.file_system, self._path(solver)
        if is_first:
            left_out += [name for name, value in solver.model.state_dict().items() if not isinstance(value, Tensor)]
            self._tell(left_out)
            files.remove_temporaries(files.join(solver.work_dir, FOLDER))  # of a process that was killed
        try:
            files.write_atomic(path, lambda file: file.write(save(weights, as_text(metadata))))
        except OSError as error:
            raise RunError(f"could not write the weights {path}: {error}") from error

    def _tell(self, left_out: list[str]) -> None:
        if left_out:
            names = ", ".join(dict.fromkeys(left_out))
            self.logger.warning("not in the safetensors files, which hold dense tensors only: %s", names)
