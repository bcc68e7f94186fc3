"""From the command line to a command, and from what it raises to an exit status."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from scepter_core._version import __version__
from scepter_core.cli.checkpoints import checkpoints
from scepter_core.cli.convert import convert
from scepter_core.cli.explain import explain
from scepter_core.cli.output import show_error
from scepter_core.cli.plugins import plugins
from scepter_core.cli.run import run, run_eval, run_test
from scepter_core.cli.validate import validate
from scepter_core.errors import ScepterError

_INTERRUPTED = 128 + signal.SIGINT
_READER_IS_GONE = 128 + 13  # as shells report a death by SIGPIPE
_UsageError: Any = typer.BadParameter.__base__  # of click, which typer has inside or beside it, by its version

_HELP = """Train, evaluate and test what a YAML file describes; every behaviour is a plugin.

Exit status: 0 done; 1 the run failed; 2 the command or the configuration is wrong; 128 + n ended by signal n.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: those of the command; by default the process's own.
    """
    if arguments is None:
        _restart_in_utf8()
    _make_streams_lenient()
    try:
        status = _status_of(arguments)
        sys.stdout.flush()
    except BrokenPipeError as error:
        if not _reader_is_gone():
            show_error(error)
            return 1
        return _READER_IS_GONE
    return status


def _restart_in_utf8() -> None:
    """Begin anew in Python's UTF-8 mode, where the locale would refuse file names outside ASCII."""
    if sys.getfilesystemencoding() == "utf-8":
        return
    arguments = [sys.executable, "-X", "utf8", "-m", "scepter_core", *sys.argv[1:]]
    os.execv(sys.executable, [os.fsencode(argument) for argument in arguments])


def _status_of(arguments: Sequence[str] | None) -> int:
    """Parse, do the work, and report what goes wrong."""
    try:
        # A command only reads its arguments and returns its work: whatever that raises stays out of click's hands.
        work = _app()(arguments, prog_name="scepter", standalone_mode=False)
        return work() if callable(work) else int(work or 0)
    except _UsageError as error:
        error.show()
        return int(error.exit_code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        raise
    except ScepterError as error:
        show_error(error)
        return error.exit_status
    except Exception as error:  # of the user's code, a hook's, or a bug: shown whole
        show_error(error)
        return 1


def _app() -> typer.Typer:
    app = typer.Typer(
        name="scepter",
        help=_HELP,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: quick, and the same on and off a terminal
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )
    app.callback()(_options)
    commands: list[tuple[str, Callable[..., Any]]] = [
        ("run", run),
        ("eval", run_eval),
        ("test", run_test),
        ("validate", validate),
        ("explain", explain),
        ("plugins", plugins),
        ("checkpoints", checkpoints),
        ("convert", convert),
    ]
    for name, function in commands:
        app.command(name)(function)
    return app


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Show the version and exit.", callback=lambda on: _version(on))
    ] = False,
) -> None:
    pass


def _version(asked: bool) -> None:
    if asked:
        print(f"scepter {__version__}")
        raise typer.Exit


def _make_streams_lenient() -> None:
    """Characters that the output's encoding lacks become escapes: no message is lost for its spelling."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more; if so, the rest of it goes nowhere."""
    try:
        output = sys.stdout.fileno()
    except OSError:  # replaced by something in memory
        return False
    pipe = select.poll()
    pipe.register(output, 0)
    if not any(state & select.POLLERR for _, state in pipe.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True
