"""WORK_DIR/metrics.jsonl: opened when the first row comes, each row in the file when `write` returns."""

from __future__ import annotations

import itertools
from typing import IO, TYPE_CHECKING, Any

from scepter_core import RunError

if TYPE_CHECKING:
    from scepter_core import FileSystem


class MetricsFile:
    """A file of lines that is only ever appended to, and cut back where a resumed run goes on from.

    Args:
        file_system: where it lies.
        path: where it lies there.
    """

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self._path = path
        self._file: IO[Any] | None = None
        self._length: int | None = None  # bytes that are this run's, known once it is open or was cut
        self._anew = False

    def length(self) -> int:
        """Bytes that a resume from here keeps."""
        return self._file_system.size(self._path) if self._length is None else self._length

    def cut(self, length: int) -> None:
        """Drop what stands behind the first `length` bytes, when the next row comes: until then nothing is touched."""
        self._length = length

    def begin_anew(self) -> None:
        """When the first row comes, give a file that another run left the name `metrics.jsonl.N`, and begin a new one."""
        self._length, self._anew = 0, True

    def write(self, line: str) -> None:
        """Append `line`.

        Raises:
            RunError: the file cannot be written.
        """
        data = f"{line}\n".encode()
        try:
            if self._file is None:
                self._file = self._open()
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror or error}") from error
        self._length = self.length() + len(data)

    def close(self) -> None:
        """Close it; a further row opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[Any]:
        system, path = self._file_system, self._path
        if self._anew and system.isfile(path):
            number = next(n for n in itertools.count(1) if not system.exists(f"{path}.{n}"))
            system.move(path, f"{path}.{number}")
        self._anew = False
        if self._length is not None:
            system.truncate(path, self._length)
        self._length = min(self.length(), system.size(path))  # the file of another WORK_DIR may be shorter
        return system.open(path, "ab")
