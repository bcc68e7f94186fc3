"""What the commands show: errors, colours, results for machines."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from scepter_core.errors import ConfigError, Problem, ScepterError

_HERE = str(Path(__file__).parent)
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def is_terminal(stream: TextIO) -> bool:
    """Whether a person reads the stream: it is a terminal that can do more than print lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Whether the stream takes colours and NO_COLOR does not forbid them."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, style: str, stream: TextIO) -> str:
    """The text in a style (`bold`, `dim`, `red`, …) where the stream has colours, else as it is."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if text and has_colour(stream) else text


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Inside, what others print goes to standard error."""
    with redirect_stdout(sys.stderr):
        yield


def print_json(value: Any) -> None:
    """Print the value as JSON. Numbers that JSON lacks (NaN, infinity) become null."""
    print(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


# ------------------------------------------------------------------------------------------------------------ errors


def show_error(error: BaseException) -> None:
    """Print to standard error what a user needs: the message of ours, the traceback of all others.

    The environment variable SCEPTER_TRACEBACK asks for the traceback of ours, too.
    """
    stream = sys.stderr
    if isinstance(error, ScepterError) and os.environ.get("SCEPTER_TRACEBACK"):
        print(traceback_of(error).rstrip(), file=stream)
    if isinstance(error, ConfigError):
        print("\n".join(_problem(problem, stream) for problem in error.problems), file=stream)
    elif isinstance(error, ScepterError):
        print(paint(message_of(error), "red", stream), file=stream)
    else:
        print(traceback_of(error).rstrip(), file=stream)


def message_of(error: BaseException) -> str:
    """Its message, and the notes on it: which hook it came from."""
    notes = [f"    {note}" for note in getattr(error, "__notes__", ())]
    return "\n".join([str(error) or type(error).__name__, *notes])


def traceback_of(error: BaseException) -> str:
    """Python's traceback with notes, from where the command handed over: its own frames tell nobody anything."""
    return "".join(traceback.format_exception(type(error), error, _after_the_command(error.__traceback__)))


def _after_the_command(trace: TracebackType | None) -> TracebackType | None:
    first, entry = trace, trace
    while entry is not None:
        if entry.tb_frame.f_code.co_filename.startswith(_HERE):
            first = entry.tb_next
        entry = entry.tb_next
    return first or trace  # a bug of the command itself: all of it


def _problem(problem: Problem, stream: TextIO) -> str:
    head, *details = str(problem).split("\n")
    place = str(problem.mark) if problem.mark else ""
    head = paint(place, "bold", stream) + paint(head.removeprefix(place), "red", stream)
    return "\n".join([head, *(paint(line, "green", stream) if line.startswith("    hint:") else line for line in details)])
