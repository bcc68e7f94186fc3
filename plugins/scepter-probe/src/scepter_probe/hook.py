"""ProbeDataHook: in which steps it looks, and what it leaves in WORK_DIR/probe."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
from PIL import Image
from pydantic import Field

from scepter_core import BaseSolver, FileSystem, Hook, HookConfig, Probing, RunError
from scepter_probe.copies import begin_copying, copy_of, end_copying
from scepter_probe.kinds import array_of, image_of, is_plain, plain, spread
from scepter_probe.names import file_names

FOLDER = "probe"
INDEX = "probe.json"
_SHOWN = 200  # characters of a text in the log; the index has all of it


class ProbeDataHook(Hook):
    """Writes what was offered with `register_probe`: every PROB_INTERVAL-th training step, and once an eval or test."""

    class Config(HookConfig):
        """The keys of ProbeDataHook."""

        taken_with_notice = {
            **dict.fromkeys(
                ("SAVE_NAME_PREFIX", "SAVE_PROBE_PREFIX"), "probes are in WORK_DIR/probe/{mode}/step_{step}, by their names"
            ),
            "SAVE_LAST": "the folder with the highest step is the last one",
            "SAVE_IMAGE_POSTFIX": "images are written as PNG",
            "SAVE_VIDEO_POSTFIX": "no videos are made; other tensors are written as .npy",
        }

        priority: int = 200
        prob_interval: int = Field(1000, description="Training steps between probes; <= 0: no probes, in any mode.")

    cfg: Config

    def __init__(self, cfg: Config, logger: Any = None) -> None:
        super().__init__(cfg, logger=logger)
        self._every = cfg.prob_interval
        self._parts: list[Probing] = []  # of the model, those that offer data
        self._had_data = False  # in this eval or test
        self._named: set[str] = set()  # what cannot be shown, once said

    def before_solve(self, solver: BaseSolver) -> None:
        """Find the parts of the model that offer data."""
        if not solver.env.compile:  # a compiled forward must not see another kind of dict in some steps
            self._parts = [part for part in solver.model.modules() if isinstance(part, Probing)]

    def before_epoch(self, solver: BaseSolver) -> None:
        """A new eval, or test: its first data counts."""
        self._had_data = False

    def before_iter(self, solver: BaseSolver) -> None:
        """From here on, in a step that is due, what the model offers is copied at once."""
        if self._is_due(solver, solver.train_steps + 1):
            begin_copying(self._parts)

    def after_iter(self, solver: BaseSolver) -> None:
        """Write what was offered in this step, if it is due."""
        if not self._is_due(solver, solver.train_steps):
            return
        offered = spread(copy_of(solver.probe_data))
        end_copying(self._parts)
        if offered and solver.rank == 0:
            self._had_data = True
            self._write(solver, offered)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _is_due(self, solver: BaseSolver, steps: int) -> bool:
        if self._every <= 0:
            return False
        return steps % self._every == 0 if solver.is_train_mode else not self._had_data

    def _write(self, solver: BaseSolver, offered: Mapping[str, Any]) -> None:
        folder = solver.file_system.join(solver.work_dir, FOLDER, solver.mode, f"step_{solver.train_steps}")
        try:
            shown = self._write_files(solver.file_system, folder, offered)
        except OSError as error:
            raise RunError(f"could not write the probe {folder}: {error}") from error
        if shown:
            line = " | ".join(f"{_short(name)} {text}" for name, text in shown.items())
            self.logger.info("probe %s step %d | %s | in %s", solver.mode, solver.train_steps, line, folder)

    def _write_files(self, files: FileSystem, folder: str, offered: Mapping[str, Any]) -> dict[str, str]:
        """Write every value, and then the index of all; returns what the log shows of each."""
        index: dict[str, Any] = {}
        shown: dict[str, str] = {}
        stems = file_names(offered)
        for name, value in offered.items():
            if is_plain(value):
                index[name] = plain(value)
                shown[name] = _short(index[name])
            elif (file := _as_file(value)) is not None:
                ending, write = file
                shown[name] = f"{stems[name]}{ending}"
                files.write_atomic(files.join(folder, shown[name]), write)
                index[name] = {"file": shown[name], "shape": list(value.shape), "dtype": str(value.dtype)}
            else:
                self._name_once(name, value)
        if index:
            lines = (f"  {_json(name)}: {_json(value)}" for name, value in index.items())
            text = "{\n" + ",\n".join(lines) + "\n}\n"
            data = text.encode(errors="backslashreplace")  # half a surrogate pair becomes the escape that JSON has for it
            files.write_atomic(files.join(folder, INDEX), lambda file: file.write(data))
        return shown

    def _name_once(self, name: str, value: Any) -> None:
        if name not in self._named:
            self._named.add(name)
            self.logger.warning("probe %s is left out: a %s cannot be shown", name, type(value).__name__)


def _as_file(value: Any) -> tuple[str, Callable[[BinaryIO], object]] | None:
    """The ending of the file that shows `value`, and what writes it; None where there is none."""
    picture = image_of(value)
    if picture is not None:
        return ".png", lambda file: Image.fromarray(picture).save(file, format="PNG")
    array = array_of(value)
    return (".npy", lambda file: np.save(file, array, allow_pickle=False)) if array is not None else None


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _short(value: Any) -> str:
    """A number or text as the log shows it: in one line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else _json(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
