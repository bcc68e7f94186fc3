"""`scepter run`, `scepter eval` and `scepter test`."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from scepter_core.cli.options import (
    ConfigFile,
    Disabled,
    Endpoint,
    MachineNumber,
    Machines,
    Modules,
    Overrides,
    Processes,
    Restarts,
    Work,
    seconds,
)
from scepter_core.cli.output import message_of, show_error, traceback_of

if TYPE_CHECKING:
    from scepter_core.runconfig import RunConfig

MaxTime = Annotated[
    float | None,
    typer.Option(
        parser=seconds,
        metavar="TIME",
        help="End after this time, as by SIGTERM: 1h30m, 5m, 90s, or seconds.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="On the screen only warnings and errors; the log file has all.")]
Weights = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="best|last|auto|PATH",
        help="The checkpoint that the weights come from. Default: the newest.",
        show_default=False,
    ),
]


def run(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="auto|PATH",
            help="Go on from this checkpoint; auto: from the newest whole one of WORK_DIR.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="First remove what an earlier run left in WORK_DIR.")
    ] = False,
    max_time: MaxTime = None,
    disable: Disabled = None,
    fast_dev_run: Annotated[
        bool,
        typer.Option(
            "--fast-dev-run",
            help="Try it: two steps of each mode, a save and a resume, in a temporary folder.",
        ),
    ] = False,
    nproc: Processes = None,
    nnodes: Machines = 1,
    node_rank: MachineNumber = None,
    rdzv_endpoint: Endpoint = "",
    max_restarts: Restarts = 0,
    quiet: Quiet = False,
) -> Work:
    """Train, evaluate and test, as CFG says."""
    if resume is not None and overwrite:
        raise typer.BadParameter("goes on from what --overwrite removes: give one of them", param_hint="--resume")
    if resume in ("best", "last") and not Path(resume).exists():
        raise typer.BadParameter(f"{resume} is for eval and test; a run goes on from auto or a path", param_hint="--resume")
    if nnodes > 1 and not rdzv_endpoint:
        raise typer.BadParameter("machines need a place to meet: --rdzv-endpoint HOST:PORT", param_hint="--nnodes")
    if node_rank is not None and node_rank >= nnodes:
        there = f"there are {nnodes} machines" if nnodes > 1 else "there is one machine"
        raise typer.BadParameter(f"{there} (--nnodes), counted from 0", param_hint="--node-rank")
    what = _What("run", config, overrides or (), modules or (), disable or (), resume, overwrite, max_time, quiet)
    if fast_dev_run:
        if nnodes > 1 or (nproc or 1) > 1:
            raise typer.BadParameter("tries the run in one process: leave out --nproc and --nnodes", param_hint="--fast-dev-run")
        return partial(_try_out, what)
    if nnodes > 1 or max_restarts or (nproc or 1) > 1:
        return partial(_launch, what, nproc or 1, nnodes, node_rank, rdzv_endpoint, max_restarts)
    return partial(_run, what)


def run_eval(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    resume: Weights = None,
    max_time: MaxTime = None,
    disable: Disabled = None,
    nproc: Processes = None,
    quiet: Quiet = False,
) -> Work:
    """Evaluate a checkpoint on EVAL_DATA."""
    what = _What("eval", config, overrides or (), modules or (), disable or (), resume, False, max_time, quiet)
    return partial(_launch, what, nproc) if (nproc or 1) > 1 else partial(_run, what)  # type: ignore[arg-type]


def run_test(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    resume: Weights = None,
    max_time: MaxTime = None,
    disable: Disabled = None,
    nproc: Processes = None,
    quiet: Quiet = False,
) -> Work:
    """Evaluate a checkpoint on TEST_DATA."""
    what = _What("test", config, overrides or (), modules or (), disable or (), resume, False, max_time, quiet)
    return partial(_launch, what, nproc) if (nproc or 1) > 1 else partial(_run, what)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _What:
    """What the command line asks for."""

    command: str
    config: str
    overrides: Sequence[str]
    modules: Sequence[str]
    disable: Sequence[str]
    resume: str | None
    overwrite: bool
    max_seconds: float | None
    quiet: bool

    @property
    def arguments(self) -> list[str]:
        """The same as arguments of the command, for each of several processes."""
        options = [*(f"--plugin={module}" for module in self.modules)]
        options += [f"--disable-plugin={name}" for name in self.disable]
        options += [f"--resume={self.resume}"] if self.resume is not None else []
        options += [f"--max-time={self.max_seconds}"] if self.max_seconds is not None else []
        options += ["--overwrite"] if self.overwrite else []
        options += ["--quiet"] if self.quiet else []
        return [self.command, *options, "--", self.config, *self.overrides]


def _launch(
    what: _What,
    nproc: int,
    nnodes: int = 1,
    node_rank: int | None = None,
    rdzv_endpoint: str = "",
    max_restarts: int = 0,
) -> int:
    """Check the configuration here, once; then start the processes, each of which runs the command without --nproc."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch is loaded: its warnings about host names
    from scepter_core import discovery
    from scepter_core.distributed import Place, check_backend, place_of
    from scepter_core.distributed.launching import Launch, launch
    from scepter_core.errors import ConfigError, Problem
    from scepter_core.runconfig import load_config
    from scepter_core.solver import choose_device

    discovery.disable(what.disable)
    env = load_config(what.config, what.overrides, what.modules).env
    started = place_of(os.environ).world_size
    if started not in (1, nnodes):
        what_is_wrong = f"another launcher (torchrun, srun) has started {started} of this command, and each would start as many"
        raise ConfigError(
            [Problem(what_is_wrong, path="--nproc", found=str(nproc), expected="one of the two: leave out --nproc, or the launcher")]
        )
    last = Place(nproc * nnodes - 1, nproc * nnodes, nproc - 1, nproc)
    check_backend(env.backend, choose_device(env.device, last))
    return launch(Launch(nproc, nnodes, node_rank, rdzv_endpoint, max_restarts), what.arguments)


def _run(what: _What) -> int:
    from scepter_core import discovery, runner
    from scepter_core.runconfig import load_config

    if hasattr(signal, "SIGUSR1"):  # Windows has none
        signal.signal(signal.SIGUSR1, _nothing_to_save)
    discovery.disable(what.disable)
    loaded = load_config(what.config, what.overrides, what.modules)
    logger = _logger(what.quiet)
    try:
        runner.run(
            loaded,
            mode=None if what.command == "run" else what.command,
            resume=what.resume,
            overwrite=what.overwrite,
            max_seconds=what.max_seconds,
            logger=logger,
        )
    except Exception as error:
        return _end(loaded, error)
    from scepter_core.distributed import leave

    leave()
    return 0


def _nothing_to_save(signum: int, frame: FrameType | None) -> None:
    """SIGUSR1 asks for a checkpoint: before the run and after it there is none to take, and nothing to end."""


def _end(loaded: RunConfig, error: Exception) -> int:
    """Say what ended the run, once however many processes there are, and return the exit status."""
    from scepter_core.distributed import place_of, say_over, say_told
    from scepter_core.errors import ConfigError, FailedElsewhere, ScepterError, Stopped

    if isinstance(error, ConfigError | Stopped):
        say_over(error.exit_status)
    if not isinstance(error, ConfigError | FailedElsewhere):  # a configuration error starts nothing, and logs nothing
        _log_the_end(loaded, error)
    if _Screen.reader_is_gone:
        raise BrokenPipeError from error
    place = place_of(os.environ)
    told_elsewhere = isinstance(error, FailedElsewhere) or (isinstance(error, Stopped) and place.rank > 0)
    if not told_elsewhere:
        if place.world_size > 1 and not isinstance(error, ConfigError | Stopped):
            print(f"rank {place.rank} of {place.world_size} failed:", file=sys.stderr)
        show_error(error)
        sys.stderr.flush()
        say_told()
    return error.exit_status if isinstance(error, ScepterError) else 1


def _try_out(what: _What) -> int:
    from scepter_core import discovery
    from scepter_core.runner import fast_dev_run

    discovery.disable(what.disable)
    logger = _logger(what.quiet)
    fast_dev_run(what.config, what.overrides, plugins=what.modules, logger=logger)
    logger.info("the trial run went well: two steps of each mode, a save, a resume and two more")
    return 0


class _Screen(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Standard output. When nobody reads it any more, the run is ended in good order, as by SIGTERM."""

    reader_is_gone = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Called inside the `except` of a line that could not be written."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
        elif not _Screen.reader_is_gone:
            _Screen.reader_is_gone = True
            signal.raise_signal(signal.SIGTERM)


def _logger(quiet: bool) -> logging.Logger:
    from scepter_core.logging import make_logger

    logger = make_logger(quiet=quiet)
    for handler in list(logger.handlers):
        screen = _Screen(sys.stdout)
        screen.setFormatter(handler.formatter)
        screen.setLevel(handler.level)
        logger.removeHandler(handler)
        logger.addHandler(screen)
    return logger


def _log_the_end(config: RunConfig, error: Exception) -> None:
    """Append what ended the run, with its traceback, to the log, if there is one by now and the disk takes it."""
    from scepter_core.errors import ScepterError
    from scepter_core.io import RunFileSystem

    solver = config.solver
    log_file = solver.get("LOG_FILE")
    if not log_file:
        return
    files = RunFileSystem(solver.get("FILE_SYSTEM"), retry=False)
    path = files.join(files.absolute(solver.get("WORK_DIR")), log_file)
    cause = error.__cause__ if isinstance(error, ScepterError) else error
    said = message_of(error) if isinstance(error, ScepterError) else ""
    text = "\n".join(filter(None, (said, traceback_of(cause) if cause is not None else "")))
    with suppress(OSError):  # the disk, or the store, may be what ended the run: the screen has it
        if files.isfile(path):
            with files.open(path, "ab") as file:
                line = f"{text.rstrip()}\n".encode(errors="backslashreplace")
                file.write(line)  # type: ignore[arg-type]  # "b" makes it a file of bytes
