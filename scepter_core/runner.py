"""A whole run from a configuration: what `scepter run`, `eval` and `test` do, and `scepter_core.run` from Python."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from scepter_core import locations
from scepter_core.checkpoints import FOLDER, find_checkpoint, has_checkpoints, read_checkpoint
from scepter_core.config.section import sections
from scepter_core.errors import ConfigError, FailedElsewhere, Problem, Stopped
from scepter_core.io import FileSystem, RunFileSystem
from scepter_core.registry import SOLVERS
from scepter_core.runconfig import RunConfig, load_config, located

if TYPE_CHECKING:
    from scepter_core.distributed import Processes
    from scepter_core.solver import BaseSolver

_log = logging.getLogger("scepter")
# What a run leaves in WORK_DIR, by name: all that --overwrite removes.
_LEFT_BY_A_RUN = (FOLDER, "config.yaml", "metrics.jsonl", "tensorboard", "safetensors", "probe", "eval")


def run(
    config: str | Path | Mapping[str, Any] | RunConfig,
    overrides: Sequence[str] = (),
    *,
    plugins: Sequence[str] = (),
    mode: str | None = None,
    resume: str | None = None,
    overwrite: bool = False,
    max_seconds: float | None = None,
    logger: logging.Logger | None = None,
) -> BaseSolver:
    """Run what a configuration says, to its end.

    Args:
        config: path of a YAML file, the same as a dict, or what `load_config` gave.
        overrides: `KEY.PATH=value`, as on the command line.
        plugins: local modules to import first, beside those under PLUGINS.
        mode: `eval` or `test`: only that, with the weights of `resume`.
        resume: `auto`, or a path; for eval and test also `best` and `last` (default: the newest).
        overwrite: remove what an earlier run left in WORK_DIR.
        max_seconds: end, as by SIGTERM, when that many seconds have passed.
        logger: where lines go; by default standard output.

    Returns:
        the solver, at its end.

    Raises:
        ConfigError: before anything is done.
        Stopped: ended by a signal or by its time, after a checkpoint where a hook takes them.
    """
    started = time.monotonic()
    cfg = config if isinstance(config, RunConfig) else load_config(config, overrides, plugins)
    settings: Any = cfg.solver
    if mode is not None:
        if getattr(settings, f"{mode}_data") is None:
            raise ConfigError([Problem("required key is missing", path=f"SOLVER.{mode.upper()}_DATA")])
        settings.mode = mode
    elif resume is not None:
        settings.resume_from = resume
    files = RunFileSystem(settings.file_system, logger.warning if logger is not None else _log.warning)
    work_dir = files.without_password(settings.work_dir)
    with located(cfg), _together(cfg) as processes:
        if processes.place.restarts and settings.trains and has_checkpoints(work_dir, files):
            settings.resume_from = "auto"
        elif not processes.place.restarts:
            processes.of_first(partial(_make_room, settings, work_dir, files, overwrite))
        solver: BaseSolver = SOLVERS.build(settings, logger=logger)
        if max_seconds is not None:
            solver.deadline = started + max_seconds
        if mode is not None:
            solver.resume_from = None
        solver.set_up_pre()
        solver.set_up()
        if mode is not None:
            _take_weights(solver, resume or "auto")
        with _signals(solver):
            solver.solve()
    return solver


@contextmanager
def _together(cfg: RunConfig) -> Iterator[Processes]:
    """Among the processes of the run, where one's failure ends all, and is raised as it is in the first that failed."""
    from scepter_core.distributed import Watch, join, place_of
    from scepter_core.solver import choose_device

    device = choose_device(cfg.env.device, place_of(os.environ))
    processes = join(cfg.env.backend, device, cfg.env.timeout)
    with Watch(processes, cfg.env.heartbeat_timeout) as watch, warnings.catch_warnings():
        if processes.rank > 0 and not sys.warnoptions:
            warnings.simplefilter("ignore")  # the first process shows the same ones
        try:
            yield processes
        except Stopped:
            raise
        except Exception as error:
            shown = watch.first_failure(error)
            if shown is None:
                raise FailedElsewhere from None
            if shown is not error:
                raise shown from error
            raise


def _make_room(settings: Any, work_dir: str, files: FileSystem, overwrite: bool) -> None:
    """WORK_DIR for a run: one that can be written to, and where no other run's checkpoints are in the way."""
    _refuse_where_nothing_can_be_written(work_dir, files)
    if settings.trains:
        _refuse_to_restart_from_another_branch(settings.resume_from, work_dir, files)
        if overwrite:
            _refuse_to_remove_what_is_resumed(work_dir, settings.resume_from)
            _remove_earlier_run(work_dir, settings.log_file, files)
        elif settings.resume_from is None:
            refuse_to_overwrite(work_dir, files)


def fast_dev_run(
    config: str | Path | Mapping[str, Any] | RunConfig,
    overrides: Sequence[str] = (),
    *,
    plugins: Sequence[str] = (),
    logger: logging.Logger | None = None,
) -> BaseSolver:
    """Two steps of each mode, a save, a resume of it and two steps more, all in a temporary folder.

    What it finds is found before a long run does: a mistake in the data, the model, a hook, or a state that cannot be
    saved. Arguments and errors are those of `run`.

    Returns:
        the solver of the resumed half.
    """
    cfg = config if isinstance(config, RunConfig) else load_config(config, overrides, plugins)
    settings: Any = cfg.solver
    with located(cfg), tempfile.TemporaryDirectory(prefix="scepter-") as folder:
        settings.work_dir, settings.resume_from = folder, None
        _keep_inside(settings, folder)
        state: dict[str, Any] = {}
        for steps in (2, 4) if settings.trains else (2,):
            settings.max_steps = steps
            solver: BaseSolver = SOLVERS.build(settings, logger=logger)
            solver.max_batches = 2
            solver.set_up_pre()
            solver.set_up()
            if state:
                solver.load_checkpoint(state)
            with _signals(solver):
                solver.solve()
            if settings.trains and not state:
                path = solver.file_system.join(folder, "fast-dev-run.pth")
                solver.file_system.write_atomic(path, partial(_save, solver.save_checkpoint()))
                state = read_checkpoint(path)
    return solver


def _keep_inside(settings: Any, folder: str) -> None:
    """Give every LOG_DIR that is written in the configuration a place in `folder`."""
    logging_ones = (section for section in sections(settings) if section.have("LOG_DIR"))
    for number, section in enumerate(logging_ones):
        section.LOG_DIR = str(Path(folder, f"log_dir-{number}"))


def _save(state: dict[str, Any], file: BinaryIO) -> None:
    import torch

    torch.save(state, file)


def _refuse_where_nothing_can_be_written(work_dir: str, files: FileSystem) -> None:
    if locations.is_local(work_dir):
        what = _why_not_written(Path(locations.absolute(work_dir)))
    else:
        trial = files.join(work_dir, f".write-trial.{os.getpid()}.tmp")
        try:
            files.write_atomic(trial, lambda file: file.write(b"may be removed"))
            files.remove(trial)
            return
        except OSError as error:
            what = f"cannot be written to: {error}"
    if what is not None:
        raise ConfigError([Problem(what, path="SOLVER.WORK_DIR", found=work_dir)])


def _why_not_written(folder: Path) -> str | None:
    there = folder
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
    except OSError as error:
        return f"cannot be a folder: {error}"
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return None
    return f"{there} may not be written to" if there.is_dir() else f"{there} is not a folder"


def refuse_to_overwrite(work_dir: str, files: FileSystem | None = None) -> None:
    """Raise ConfigError where WORK_DIR holds the checkpoints of an earlier run."""
    if has_checkpoints(work_dir, files):
        raise ConfigError(
            [
                Problem(
                    f"{work_dir} holds the checkpoints of an earlier run, and a new one would mix with them",
                    path="SOLVER.WORK_DIR",
                    hint="--resume auto goes on from the newest; --overwrite removes the earlier run; or set another "
                    "SOLVER.WORK_DIR",
                )
            ]
        )


def _refuse_to_restart_from_another_branch(resume_from: str | None, work_dir: str, files: FileSystem) -> None:
    """After a failure, `--max-restarts` goes on from WORK_DIR's newest checkpoint: it must be one of this run's."""
    if resume_from in (None, "auto") or os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") == "0":
        return
    newest = find_checkpoint(work_dir, "auto", _log.warning, files)
    if newest not in (None, files.absolute(str(resume_from))):
        raise ConfigError(
            [
                Problem(
                    f"after a failure the run would go on from {newest}, which is newer and not of this run",
                    path="SOLVER.RESUME_FROM",
                    found=resume_from,
                    hint="set another SOLVER.WORK_DIR, or leave out --max-restarts",
                )
            ]
        )


def _refuse_to_remove_what_is_resumed(work_dir: str, resume_from: str | None) -> None:
    if resume_from is None:
        return
    if resume_from == "auto" or locations.is_within(resume_from, work_dir):
        raise ConfigError(
            [
                Problem(
                    "the run would go on from what overwriting removes",
                    path="SOLVER.RESUME_FROM",
                    found=resume_from,
                    hint="leave out --overwrite, or RESUME_FROM",
                )
            ]
        )


def _remove_earlier_run(work_dir: str, log_file: str | None, files: FileSystem) -> None:
    for name in (*_LEFT_BY_A_RUN, *((log_file,) if log_file else ())):
        files.remove_all(files.join(work_dir, name))


def _take_weights(solver: BaseSolver, wanted: str) -> None:
    path = solver.load_from(solver.file_system.without_password(wanted))
    if path is None:
        solver.logger.warning(
            "NO CHECKPOINT in %s: the weights are those that the model was made with, untrained", solver.work_dir
        )
        return
    solver.logger.info("weights of %s (epoch %d, step %d)", path, solver.epoch, solver.train_steps)


@contextmanager
def _signals(solver: BaseSolver) -> Iterator[None]:
    """While the run lasts, SIGINT and SIGTERM end it after the present step, a second SIGINT at once.

    SIGUSR1 asks for a checkpoint, and the run goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    interrupted = False

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted and signum == signal.SIGINT:
            signal.default_int_handler(signum, frame)
        interrupted = interrupted or signum == signal.SIGINT
        solver.request_stop(signum)

    before: dict[int, Any] = {signum: signal.signal(signum, stop) for signum in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGUSR1"):  # Windows has none
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, lambda signum, frame: solver.request_save())
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
