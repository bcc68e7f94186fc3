"""Files that are only appended to, where a store takes whole files only: a copy on the local disk, uploaded from time to time."""

from __future__ import annotations

import io
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PERIOD = 30.0  # seconds at least between two uploads of a file that is being written


class Mirror:
    """The local copy of one file.

    Args:
        path: the file's URL.
        local: the copy, which is there already.
        is_stored: whether the store holds the same.
        upload: puts a local file to a URL, whole.
    """

    def __init__(self, path: str, local: str, is_stored: bool, upload: Callable[[str, str], None]) -> None:
        self.path, self.local = path, local
        self.writers = 0
        self._upload, self._is_gone = upload, False
        self._process = os.getpid()  # a worker, forked from the run, has no hand in it
        self._lock = threading.Lock()  # one upload at a time, and no cut meanwhile
        self._there = self.size() if is_stored else -1  # bytes that the store holds; -1: not those of the copy
        self._looked = time.monotonic()

    @property
    def is_settled(self) -> bool:
        """Whether the store holds all of it."""
        return self._there == self.size()

    def size(self) -> int:
        """Length of the copy in bytes."""
        return os.path.getsize(self.local)  # noqa: PTH202

    def truncate(self, length: int) -> None:
        """Cut the copy back; the store's file follows with the next upload."""
        with self._lock:
            os.truncate(self.local, length)
            self._there = -1

    def discard(self) -> None:
        """Remove the copy, when it is not being uploaded."""
        with self._lock:
            self._is_gone = True
            if self._process == os.getpid():
                os.unlink(self.local)  # noqa: PTH108

    def begin_anew(self) -> None:
        """Empty the copy; the store's file follows with the next upload, even if nothing is written."""
        self.truncate(0)

    def upload(self) -> None:
        """Bring what the store lacks to it.

        Raises:
            OSError: it said no; the copy stays.
        """
        with self._lock:
            if self._process == os.getpid() and not self._is_gone and self.size() != self._there:
                still = f"{self.local}.upload"  # the copy may grow meanwhile, which not every driver takes well
                shutil.copyfile(self.local, still)
                length = os.path.getsize(still)  # noqa: PTH202
                try:
                    self._upload(still, self.path)
                finally:
                    os.unlink(still)  # noqa: PTH108
                self._there = length
            self._looked = time.monotonic()

    def upload_in_time(self) -> None:
        """Upload in the background, if the last time is long enough ago. What goes wrong shows at the next upload."""
        if time.monotonic() - self._looked < PERIOD or self._lock.locked():
            return
        self._looked = time.monotonic()
        threading.Thread(target=self._try, name=f"upload {self.path}", daemon=True).start()

    def _try(self) -> None:
        with suppress(OSError):
            self.upload()


class MirrorFile(io.BufferedWriter):
    """The copy, opened to be written: uploaded when it is closed, and from time to time when it is flushed.

    Args:
        mirror: the copy.
        closed: called once it is closed and uploaded, or could not be.
    """

    def __init__(self, mirror: Mirror, closed: Callable[[Mirror], None]) -> None:
        self._mirror = mirror
        self._when_closed = closed
        self._is_open = True
        super().__init__(io.FileIO(mirror.local, "ab"))

    def flush(self) -> None:
        """Hand all to the copy."""
        super().flush()
        if self._is_open:
            self._mirror.upload_in_time()

    def close(self) -> None:
        """Hand all to the copy, and the copy to the store.

        Raises:
            OSError: the store said no; the message says where the copy is.
        """
        if not self._is_open:
            return
        self._is_open = False
        super().close()
        self._when_closed(self._mirror)
