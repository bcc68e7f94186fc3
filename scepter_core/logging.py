"""The run's log: plain lines on standard output, and the same lines in WORK_DIR/LOG_FILE.

The file is opened when the run has something to do: until then its lines wait in memory, so that resuming a finished
run touches nothing.
"""

from __future__ import annotations

import logging
import sys
from logging.handlers import MemoryHandler
from typing import IO, Any

from scepter_core.io import FileSystem

FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
_PENDING_LINES = 10_000


def silent_logger(name: str = "scepter") -> logging.Logger:
    """A logger that says nothing: of a process that leaves the log to the first one."""
    logger = logging.Logger(name, logging.CRITICAL + 1)
    logger.addHandler(logging.NullHandler())
    return logger


def make_logger(name: str = "scepter", *, quiet: bool = False) -> logging.Logger:
    """A logger of its own for one run, which prints to standard output.

    Args:
        quiet: warnings and errors only.
    """
    logger = logging.Logger(name, logging.INFO)
    console = logging.StreamHandler(sys.stdout)
    console.setFormatter(logging.Formatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
    console.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.addHandler(console)
    return logger


class _Lines(logging.StreamHandler[IO[Any]]):
    """Appends lines to a file. A disk that takes no more is said once: no run ends for want of its log."""

    def __init__(self, file: IO[Any], path: str, logger: logging.Logger) -> None:
        super().__init__(file)
        self._path, self._logger, self._is_said = path, logger, False

    def handleError(self, record: logging.LogRecord) -> None:
        """Called inside the `except` of a line that could not be written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._is_said:
            self._is_said = True
            self._logger.warning("cannot write the log %s: %s; the run goes on", self._path, error.strerror or error)

    def close(self) -> None:
        """Close the file.

        Raises:
            OSError: the last lines could not be written, and that was not said yet.
        """
        super().close()
        try:
            self.stream.close()
        except OSError:
            if not self._is_said:
                raise


class LogFile:
    """The log file of a run.

    Args:
        logger: the logger whose lines it gets, from now on.
        path: the file; lines are appended.
        files: where it is.
    """

    def __init__(self, logger: logging.Logger, path: str, files: FileSystem) -> None:
        self.logger, self.path = logger, path
        self._files = files
        self._waiting = MemoryHandler(_PENDING_LINES, flushLevel=logging.CRITICAL + 1)
        self._file: _Lines | None = None
        logger.addHandler(self._waiting)

    def open(self) -> None:
        """Create the file, or go on at its end, beginning with the lines that waited."""
        self._files.makedirs(self._files.parent(self.path))
        self._file = _Lines(self._files.open(self.path, "a"), self.path, self.logger)
        self._file.setFormatter(logging.Formatter(FORMAT, "%Y-%m-%d %H:%M:%S"))
        self._waiting.setTarget(self._file)
        self._waiting.close()  # hands its lines over
        self.logger.removeHandler(self._waiting)
        self.logger.addHandler(self._file)

    def close(self) -> None:
        """Close the file; lines that still wait are dropped.

        Raises:
            OSError: the last lines could not be written, and that was not said yet.
        """
        self.logger.removeHandler(self._waiting)
        self._waiting.setTarget(None)
        if self._file is not None:
            self.logger.removeHandler(self._file)
            self._file.close()
            self._file = None
