"""Calls over a network that may be lost: tried again for a while, then reported in one error."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from scepter_core import locations
from scepter_core.errors import RunError

T = TypeVar("T")

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 30.0  # seconds
_IN_DOUBT = 60.0  # seconds after giving up in which one attempt has to do
_FINAL = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_MISUSE = (AttributeError, ImportError, KeyError, NotImplementedError, TypeError, ValueError)


class RemoteError(RunError, OSError):
    """A file system reached by URL said no, or could not be reached."""


class Trying:
    """Makes calls, and makes them again when the connection fails.

    Args:
        times: how often a failed call is made again; the waits between grow from 1 to 30 seconds.
        options: of the driver; what is secret among them is masked in messages.
        warn: told of every attempt that failed, as a logger's `warning` is.
    """

    def __init__(self, times: int, options: Mapping[str, Any], warn: Callable[..., object]) -> None:
        self._times, self._warn = times, warn
        self._secrets = sorted(set(_secrets(options)), key=len, reverse=True)
        self._gave_up = float("-inf")

    def call(self, path: str, work: Callable[[], T], again: Callable[[], object] = lambda: None) -> T:
        """What `work` returns.

        Args:
            path: the URL that it is about, for messages.
            again: called before another attempt, to connect anew.

        Raises:
            FileNotFoundError, FileExistsError: what the driver raises means that.
            RemoteError: anything else that it raises, at once where another attempt could not help.
        """
        in_doubt = time.monotonic() - self._gave_up < _IN_DOUBT
        times = 0 if in_doubt else self._times
        began, wait = time.monotonic(), _FIRST_WAIT
        for attempt in range(1, times + 2):
            try:
                result = work()
            except (FileNotFoundError, FileExistsError):
                raise
            except Exception as error:  # drivers raise what their libraries do, of any kind
                if is_missing(error):
                    raise FileNotFoundError(self.words(error)) from error
                if _is_final(error):
                    raise RemoteError(f"{self.words(error)} ({path})") from error
                if attempt > times:
                    self._gave_up = time.monotonic()
                    spent = f"after {attempt} attempts in {self._gave_up - began:.0f} s" if times else "after 1 attempt"
                    spent = "at once, as others had been just before" if in_doubt else spent
                    raise RemoteError(f"{self.words(error)} ({path}, given up {spent})") from error
                self._warn("%s: %s; trying again in %.0f s", path, self.words(error), wait)
                time.sleep(wait * random.SystemRandom().uniform(0.9, 1.1))  # not of the streams that a run is made with
                wait = min(2 * wait, _LONGEST_WAIT)
                again()
            else:
                self._gave_up = float("-inf")
                return result
        raise AssertionError("the last attempt returns or raises")

    def words(self, error: BaseException) -> str:
        """The first line of its message, without secrets."""
        text = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, locations.MASK)
        return locations.without_passwords(text)


def is_missing(error: Exception) -> bool:
    """Whether it says that there is no such file. The FTP driver has no other word for it than the server's reply."""
    is_ftp_reply = type(error).__name__ == "error_perm" and str(error).startswith("550")
    return isinstance(error, FileNotFoundError) or getattr(error, "errno", None) == errno.ENOENT or is_ftp_reply


def _is_final(error: Exception) -> bool:
    """Whether another attempt would end the same."""
    name = type(error).__name__
    return isinstance(error, (*_FINAL, *_MISUSE)) or "Credential" in name or name == "error_perm"


def _secrets(options: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            found += _secrets(value)
        elif isinstance(value, str) and value and locations.is_secret(name):
            found.append(value)
    return found
