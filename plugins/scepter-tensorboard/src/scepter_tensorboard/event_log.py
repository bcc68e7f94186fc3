"""The event files of one run in one folder: each record in its file when `write` returns, none of a branch left behind.

The queue and the thread of tensorboardX's writers are not used: their flush() does not empty the queue, so that the
length of a file would say nothing about what is in it.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from scepter_core import RunError

if TYPE_CHECKING:
    from scepter_core import FileSystem

# Second of its creation, host, run. TensorBoard reads the files of a folder in the order of their names.
_NAME = re.compile(r"events\.out\.tfevents\.(?P<second>\d{10})\..+\.(?P<run>[0-9a-f]{8})\.scepter")


class EventLog:
    """Writes records to a file that is opened when the first one comes.

    Files of this kind bear the identity of their run, which a resumed run takes over. Before its first record, a resumed
    run cuts the files that its checkpoint knows back to the lengths known there, and removes those that the same run began
    later. Other files are never changed.

    Args:
        file_system: where the folder lies.
        folder: the event files' folder.
        owns_folder: no other run writes here now; event files of earlier ones are moved to a folder `earlier-N` below.
    """

    def __init__(self, file_system: FileSystem, folder: str, *, owns_folder: bool) -> None:
        self._files = file_system
        self._folder = folder
        self._owns_folder = owns_folder
        self._run = secrets.token_hex(4)  # not of the streams that a run is made with
        self._lengths: dict[str, int] = {}  # by name, the bytes of each file that are this run's
        self._name = ""  # of the file that this process writes; empty: none yet
        self._file: IO[Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """What a resume from here keeps, all of it safely on the disk.

        Raises:
            RunError: the disk said no.
        """
        if self._file is not None:
            with self._explained():
                os.fsync(self._file.fileno())
        return {"run": self._run, "files": dict(self._lengths)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where `state_dict` was called; nothing is touched before the next record."""
        self._run, self._lengths = state["run"], dict(state["files"])

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one record: `values`, by tag, at `step`. Values become single precision; they need not be finite.

        Raises:
            RunError: the file cannot be written.
        """
        from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]
        from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        with self._explained():
            file = self._file or self._open()
            if not self._lengths.get(self._name):
                self._append(file, Event(wall_time=time.time(), file_version="brain.Event:2"))
            self._append(file, Event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Close the file, which is safely on the disk then; a further record opens it again.

        Raises:
            RunError: the disk said no.
        """
        file, self._file = self._file, None
        if file is not None:
            with self._explained(), file:
                os.fsync(file.fileno())

    def _open(self) -> IO[Any]:
        if self._name:
            self._files.truncate(self._path(self._name), self._lengths.get(self._name, 0))
            self._file = self._files.open(self._path(self._name), "ab")
            return self._file
        self._files.makedirs(self._folder)
        # Later than every file here and every one that the run knows, gone or not, and whatever the clock says: TensorBoard
        # takes the order of the names for that of the records, and what it has read under a name for unchanged.
        names = {*self._files.listdir(self._folder), *self._lengths}
        newest = max((int(match["second"]) for name in names if (match := _NAME.fullmatch(name))), default=0)
        second = max(int(time.time()), newest + 1)
        self._settle()
        name = f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{self._run}.scepter"
        self._file = self._files.open(self._path(name), "xb")
        self._name = name
        return self._file

    def _settle(self) -> None:
        """Leave what this run goes on from; nothing of a branch that it left, and nothing of an earlier run."""
        aside = ""
        for name in self._files.listdir(self._folder):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            if name in self._lengths:
                self._files.truncate(self._path(name), self._lengths[name])
            elif match["run"] == self._run:
                self._files.remove(self._path(name))
            elif self._owns_folder:
                aside = aside or self._make_aside()
                self._files.move(self._path(name), self._files.join(aside, name))

    def _make_aside(self) -> str:
        number = 1
        while self._files.exists(self._path(f"earlier-{number}")):
            number += 1
        path = self._path(f"earlier-{number}")
        self._files.makedirs(path)
        return path

    def _append(self, file: IO[Any], event: Any) -> None:
        from tensorboardX.record_writer import masked_crc32c  # type: ignore[import-untyped]

        data = event.SerializeToString()
        size = struct.pack("<Q", len(data))
        size_check, data_check = (struct.pack("<I", masked_crc32c(part)) for part in (size, data))
        record = size + size_check + data + data_check
        file.write(record)
        file.flush()
        self._lengths[self._name] = self._lengths.get(self._name, 0) + len(record)

    def _path(self, name: str) -> str:
        return self._files.join(self._folder, name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if self._file is not None:
                with suppress(OSError):  # closing would try again to write what could not be written
                    self._file.close()
                self._file = None
            raise RunError(
                f"cannot write event files in {self._folder}: {error.strerror or error}"
            ) from error
