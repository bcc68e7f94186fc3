"""`scepter run`, `scepter eval` and `scepter test`."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scepter_core.cli.options import ConfigFile, Disabled, Modules, Overrides, Work, seconds
from scepter_core.cli.output import message_of, traceback_of

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
    quiet: Quiet = False,
) -> Work:
    """Train, evaluate and test, as CFG says."""
    if resume is not None and overwrite:
        raise typer.BadParameter("goes on from what --overwrite removes: give one of them", param_hint="--resume")
    if resume in ("best", "last") and not Path(resume).exists():
        raise typer.BadParameter(f"{resume} is for eval and test; a run goes on from auto or a path", param_hint="--resume")
    if fast_dev_run:
        return partial(_try_out, config, overrides or (), modules or (), disable or (), quiet)
    return partial(_run, None, config, overrides or (), modules or (), disable or (), resume, overwrite, max_time, quiet)


def run_eval(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    resume: Weights = None,
    max_time: MaxTime = None,
    disable: Disabled = None,
    quiet: Quiet = False,
) -> Work:
    """Evaluate a checkpoint on EVAL_DATA."""
    return partial(_run, "eval", config, overrides or (), modules or (), disable or (), resume, False, max_time, quiet)


def run_test(
    config: ConfigFile,
    overrides: Overrides = None,
    modules: Modules = None,
    resume: Weights = None,
    max_time: MaxTime = None,
    disable: Disabled = None,
    quiet: Quiet = False,
) -> Work:
    """Evaluate a checkpoint on TEST_DATA."""
    return partial(_run, "test", config, overrides or (), modules or (), disable or (), resume, False, max_time, quiet)


def _run(
    mode: str | None,
    config: str,
    overrides: Sequence[str],
    modules: Sequence[str],
    disable: Sequence[str],
    resume: str | None,
    overwrite: bool,
    max_seconds: float | None,
    quiet: bool,
) -> int:
    from scepter_core import discovery, runner
    from scepter_core.errors import ConfigError
    from scepter_core.runconfig import load_config

    discovery.disable(disable)
    loaded = load_config(config, overrides, modules)
    logger = _logger(quiet)
    try:
        runner.run(
            loaded, mode=mode, resume=resume, overwrite=overwrite, max_seconds=max_seconds, logger=logger
        )
    except ConfigError:
        raise  # nothing was started, nothing is logged
    except Exception as error:
        _log_the_end(loaded, error)
        if _Screen.reader_is_gone:
            raise BrokenPipeError from error
        raise
    return 0


def _try_out(
    config: str, overrides: Sequence[str], modules: Sequence[str], disable: Sequence[str], quiet: bool
) -> int:
    from scepter_core import discovery
    from scepter_core.runner import fast_dev_run

    discovery.disable(disable)
    logger = _logger(quiet)
    fast_dev_run(config, overrides, plugins=modules, logger=logger)
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
    """Append what ended the run to its log, if it has one by now."""
    from scepter_core.errors import ScepterError
    from scepter_core.io import RemoteError, RunFileSystem

    solver = config.solver
    log_file = solver.get("LOG_FILE")
    if not log_file:
        return
    files = RunFileSystem(solver.get("FILE_SYSTEM"), retry=False)
    path = files.join(files.absolute(solver.get("WORK_DIR")), log_file)
    text = message_of(error) if isinstance(error, ScepterError) else traceback_of(error)
    try:
        if files.isfile(path):
            with files.open(path, "ab") as file:
                line = f"{text.rstrip()}\n".encode(errors="backslashreplace")
                file.write(line)  # type: ignore[arg-type]  # "b" makes it a file of bytes
    except RemoteError:
        pass  # cannot be reached, which most likely is the very error: the screen has it
