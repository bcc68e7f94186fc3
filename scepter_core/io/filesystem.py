"""The file system below a run's WORK_DIR, with the one way of writing that survives a crash."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from scepter_core import locations

TEMPORARY = ".tmp"


class FileSystem:
    """The local file system; paths are strings, as a file system reached by URL needs them."""

    def join(self, *parts: str) -> str:
        """The path of `parts`, one below the other; the last absolute one begins it."""
        return locations.join(*parts)

    def parent(self, path: str) -> str:
        """The folder that `path` is in."""
        return locations.parent(path)

    def absolute(self, path: str) -> str:
        """The absolute path."""
        return locations.absolute(path)

    def resolve(self, path: str) -> str:
        """The absolute path, links followed."""
        return locations.resolve(path)

    def is_within(self, path: str, folder: str) -> bool:
        """Whether `path` is `folder` or below it."""
        return locations.is_within(path, folder)

    def exists(self, path: str) -> bool:
        """Whether something stands at `path`."""
        return Path(path).exists()

    def isfile(self, path: str) -> bool:
        """Whether a file stands at `path`."""
        return Path(path).is_file()

    def isdir(self, path: str) -> bool:
        """Whether a folder stands at `path`."""
        return Path(path).is_dir()

    def makedirs(self, path: str) -> None:
        """Make the folder `path` and those above it; nothing where it exists."""
        Path(path).mkdir(parents=True, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        """The names in folder `path`, sorted; empty where there is no such folder."""
        folder = Path(path)
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def size(self, path: str) -> int:
        """Length of the file in bytes; 0 where there is none."""
        return Path(path).stat().st_size if Path(path).exists() else 0

    def remove(self, path: str) -> None:
        """Delete the file `path`; nothing where there is none."""
        Path(path).unlink(missing_ok=True)

    def remove_all(self, path: str) -> None:
        """Delete the file or the folder `path` with all that is in it; nothing where there is none."""
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            self.remove(path)

    def move(self, path: str, to: str) -> None:
        """Give the file `path` the name `to`, in one step; what stood there is replaced."""
        Path(path).replace(to)

    def open(self, path: str, mode: str = "rb") -> IO[bytes] | IO[str]:
        """Open `path` as the built-in `open` does; text is UTF-8 whatever the locale, with `\\n` line ends."""
        if "b" in mode:
            return open(path, mode)
        return open(path, mode, encoding="utf-8", newline="\n")

    @contextmanager
    def fetched(self, path: str) -> Iterator[str]:
        """While it lasts, the file `path` as a file of the local disk, to be read.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if not self.isfile(path):
            raise FileNotFoundError(path)
        yield path

    @contextmanager
    def glanced(self, path: str) -> Iterator[str | BinaryIO]:
        """As `fetched`, for a reader that wants little of a large file: the file, or one whose reads each fetch a part."""
        with self.fetched(path) as local:
            yield local

    def truncate(self, path: str, length: int) -> None:
        """Cut the file back to its first `length` bytes; a shorter or missing file is left alone."""
        if self.size(path) > length:
            with open(path, "r+b") as file:
                file.truncate(length)
                os.fsync(file.fileno())

    def write_atomic(self, path: str, write: Callable[[BinaryIO], object]) -> None:
        """Let `write` fill a file that appears under `path` whole, or not at all.

        Whatever stood there stays until the new file is safely on the disk: a temporary name in the same folder,
        fsync, rename, fsync of the folder.

        Raises:
            OSError: the disk said no; `path` is as it was.
        """
        final = Path(path)
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(f".{final.name}.{os.getpid()}{TEMPORARY}")
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(final)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _fsync_folder(final.parent)

    def sync(self) -> None:
        """Bring files that were written with `open` to where they belong, where that is not the local disk."""

    def remove_temporaries(self, path: str, of: str = "") -> list[str]:
        """Delete what writers that died left in folder `path`, of the file named `of` or of all; returns the names."""
        left = [name for name in self.listdir(path) if name.startswith(f".{of}") and name.endswith(TEMPORARY)]
        for name in left:
            self.remove(self.join(path, name))
        return left


def _fsync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows has no handle of a folder to flush
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
