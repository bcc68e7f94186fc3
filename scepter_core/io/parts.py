"""A file that is read where it lies, part by part."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any


class PartsFile(io.RawIOBase):
    """Read-only; every read fetches what it asks for. Buffer it.

    Args:
        fetch: gives the bytes from a start to an end.
        length: of the file, in bytes.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], length: int) -> None:
        super().__init__()
        self._fetch, self._length, self._position = fetch, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._length)
        if end <= self._position:
            return 0
        data = self._fetch(self._position, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
