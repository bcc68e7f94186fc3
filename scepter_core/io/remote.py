"""Files of one store that fsspec has a driver for; paths are URLs."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar

from scepter_core import locations
from scepter_core.io.filesystem import TEMPORARY, FileSystem
from scepter_core.io.mirror import Mirror, MirrorFile
from scepter_core.io.parts import PartsFile
from scepter_core.io.trying import RemoteError, Trying, is_missing

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_GLANCE = 2**16  # bytes of one read of a file that is not fetched whole
# Stores of objects: a PUT is seen whole or not at all, there is no rename, and folders are no more than parts of names.
_OBJECT_STORES = frozenset(("abfs", "abfss", "az", "gcs", "gs", "hf", "oci", "oss", "s3", "s3a", "tos"))


class RemoteFileSystem(FileSystem):
    """The file system of one protocol (and host).

    A file that is written stands on the local disk first. `write_atomic` uploads it when it is whole: to an object store
    in one PUT, elsewhere under a temporary name that is then renamed. What `open` gives to write is uploaded when it is
    closed, by `sync`, and every half a minute while it is flushed. A connection that is lost is tried again for a while.

    Args:
        protocol: fsspec's name for it.
        options: of the driver.
        retry_times: how often a call that failed is made again.
        warn: told of each of these, as a logger's `warning` is.
    """

    def __init__(
        self, protocol: str, options: Mapping[str, Any], *, retry_times: int, warn: Callable[..., object]
    ) -> None:
        self.protocol, self._options = protocol, dict(options)
        self._trying = Trying(retry_times, options, warn)
        # Files are written by more than one thread. A driver that has a thread of its own serves them all; of the others
        # each gets its own, as their connections carry one conversation at a time.
        is_shared = locations.driver_of(protocol).async_impl
        self._connection: Any = SimpleNamespace() if is_shared else threading.local()
        self._mirrors: dict[str, Mirror] = {}
        self._lock = threading.RLock()  # of the mirrors; never taken by an upload, which holds its mirror's own
        self._numbers = itertools.count()
        self._scratch: str | None = None
        self._kept: set[str] = set()  # copies of files that could not be uploaded

    # --- looking ---------------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        return path in self._mirrors or self._call(path, _info) is not None

    def isfile(self, path: str) -> bool:
        return path in self._mirrors or self._is(path, "file")

    def isdir(self, path: str) -> bool:
        return self._is(path, "directory")

    def _is(self, path: str, kind: str) -> bool:
        info = self._call(path, _info)
        return info is not None and info["type"] == kind

    def listdir(self, path: str) -> list[str]:
        try:
            own, entries = self._call(path, lambda fs, at: (at.rstrip("/"), fs.ls(at, detail=False)))
        except FileNotFoundError:
            own, entries = "", []
        names = {_name(entry) for entry in entries if entry.rstrip("/") != own}
        names |= {_name(mirrored) for mirrored in list(self._mirrors) if _folder(mirrored) == path.rstrip("/")}
        return sorted(names)

    def size(self, path: str) -> int:
        with self._lock:
            if path in self._mirrors:
                return self._mirrors[path].size()
        info = self._call(path, _info)
        return int(info["size"] or 0) if info is not None else 0

    # --- changing --------------------------------------------------------------------------------------------------

    def makedirs(self, path: str) -> None:
        if self.protocol not in _OBJECT_STORES:  # there, a driver would make a bucket of a misspelt name
            self._change(path, _makedirs)

    def remove(self, path: str) -> None:
        self._forget(path)
        with suppress(FileNotFoundError):
            self._call(path, lambda fs, at: fs.rm_file(at))

    def remove_all(self, path: str) -> None:
        for mirrored in [name for name in list(self._mirrors) if locations.is_within(name, path)]:
            self._forget(mirrored)
        self._call(path, _remove_all)

    def move(self, path: str, to: str) -> None:
        mirror = self._mirrors.get(path)
        if mirror is not None:
            mirror.upload()
            self._forget(path)
        self._forget(to)
        self._change(path, lambda fs, at: fs.mv(at, fs._strip_protocol(to)))

    def truncate(self, path: str, length: int) -> None:
        if self.size(path) > length:
            with self._lock:
                self._mirror(path).truncate(length)

    # --- contents --------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: str = "rb") -> IO[bytes] | IO[str]:
        """As the local one, but that a file is read, written anew (`w`, `x`) or appended to (`a`), and not both.

        What is written is seen by others when the file is closed, or earlier; see the class.
        """
        kind = mode.replace("b", "").replace("t", "")
        if kind not in ("r", "w", "x", "a"):
            raise io.UnsupportedOperation(f"mode {mode!r}: a file of {self.protocol}:// is read or written, not both")
        binary: Any = self._open_copy(path) if kind == "r" else self._open_to_write(path, kind)
        return binary if "b" in mode else io.TextIOWrapper(binary, encoding="utf-8", newline="\n")

    @contextmanager
    def fetched(self, path: str) -> Iterator[str]:
        local = self._fetch(path)
        try:
            yield local
        finally:
            Path(local).unlink(missing_ok=True)

    @contextmanager
    def glanced(self, path: str) -> Iterator[BinaryIO]:
        length = int(self._call(path, lambda fs, at: fs.info(at))["size"])
        parts = PartsFile(lambda start, end: self._call(path, lambda fs, at: fs.cat_file(at, start=start, end=end)), length)
        yield io.BufferedReader(parts, _GLANCE)

    def write_atomic(self, path: str, write: Callable[[BinaryIO], object]) -> None:
        """As the local one; where the store cannot be reached, `path` is as it was.

        Raises:
            OSError: the local disk said no.
            RemoteError: the store did, or could not be reached.
        """
        local = self._new_local(path)
        try:
            with open(local, "wb") as file:
                write(file)
            self._put(local, path)
        finally:
            Path(local).unlink(missing_ok=True)

    def sync(self) -> None:
        """Upload what was written to files that are still open, or cut.

        Raises:
            RemoteError: the store said no, or could not be reached.
        """
        for mirror in list(self._mirrors.values()):
            self._upload(mirror)

    # --- inside: the store -----------------------------------------------------------------------------------------

    def _call(self, path: str, work: Callable[[Any, str], T], about: str = "") -> T:
        """What `work` makes of the driver, which remembers no listing, and of the driver's own name for `path`.

        Args:
            about: the file that messages name; by default `path`.
        """

        def attempt() -> T:
            driver = self._connected()
            driver.invalidate_cache()
            return work(driver, driver._strip_protocol(path))

        return self._trying.call(about or path, attempt, self._disconnect)

    def _change(self, path: str, work: Callable[[Any, str], object], about: str = "") -> None:
        """As `_call`; a place that is missing is an error of its own: a bucket, or what was to be moved."""
        try:
            self._call(path, work, about)
        except FileNotFoundError as error:
            raise RemoteError(f"{self._trying.words(error)} ({about or path})") from error

    def _connected(self) -> Any:
        connection = self._connection
        if getattr(connection, "driver", None) is None:
            cls = locations.driver_of(self.protocol)
            connection.driver = cls(**self._options, skip_instance_cache=True)
            if cls.async_impl:
                connection.driver.loop.set_exception_handler(_tell_of)
        return connection.driver

    def _disconnect(self) -> None:
        self._connection.driver = None

    def _put(self, local: str, path: str) -> None:
        """Give `path` the contents of a local file, whole or not at all."""
        if self.protocol in _OBJECT_STORES:
            self._change(path, lambda fs, at: fs.put_file(local, at))
            return
        self._change(_folder(path), _makedirs, path)
        temporary = f"{_folder(path)}/.{_name(path)}.{os.getpid()}{TEMPORARY}"
        try:
            self._change(temporary, lambda fs, at: fs.put_file(local, at), path)
            self._change(temporary, lambda fs, at: _replace(fs, at, fs._strip_protocol(path)), path)
        except BaseException:
            with suppress(OSError):  # as lost as the connection; the next run removes it
                self._call(temporary, lambda fs, at: fs.rm_file(at))
            raise

    # --- inside: copies on the local disk --------------------------------------------------------------------------

    def _new_local(self, path: str) -> str:
        with self._lock:
            if self._scratch is None:
                self._scratch = tempfile.mkdtemp(prefix="scepter-")
                weakref.finalize(self, _remove_scratch, self._scratch, self._kept, os.getpid())
            return str(Path(self._scratch, f"{next(self._numbers)}-{_name(path)[-100:]}"))

    def _fetch(self, path: str) -> str:
        local = self._new_local(path)
        with self._lock:
            if path in self._mirrors:
                shutil.copyfile(self._mirrors[path].local, local)
                return local
        self._call(path, lambda fs, at: fs.get_file(at, local))
        return local

    def _open_copy(self, path: str) -> BinaryIO:
        local = self._fetch(path)
        file = open(local, "rb")  # noqa: SIM115  # the caller closes it
        if os.name != "nt":  # elsewhere it goes with the folder
            Path(local).unlink()
        return file

    def _open_to_write(self, path: str, kind: str) -> MirrorFile:
        if kind == "x" and self.exists(path):
            raise FileExistsError(path)
        with self._lock:
            mirror = self._mirror(path, fetch=kind == "a")
            if kind != "a":
                mirror.begin_anew()
            mirror.writers += 1
            return MirrorFile(mirror, self._closed)

    def _mirror(self, path: str, *, fetch: bool = True) -> Mirror:
        with self._lock:
            if path not in self._mirrors:
                local = self._fetch_if_there(path) if fetch else None
                is_stored = local is not None
                if local is None:
                    local = self._new_local(path)
                    Path(local).touch()
                self._mirrors[path] = Mirror(path, local, is_stored, self._put)
            return self._mirrors[path]

    def _fetch_if_there(self, path: str) -> str | None:
        try:
            return self._fetch(path)
        except FileNotFoundError:
            return None

    def _closed(self, mirror: Mirror) -> None:
        mirror.writers -= 1
        try:
            self._upload(mirror)
        except OSError as error:
            raise RemoteError(f"{error}; what it was to hold is in {mirror.local}") from error

    def _upload(self, mirror: Mirror) -> None:
        """Bring a copy to the store, and drop it where nobody writes to it any more."""
        self._kept.add(mirror.local)
        mirror.upload()
        self._kept.discard(mirror.local)
        with self._lock:
            is_ours = self._mirrors.get(mirror.path) is mirror
            if is_ours and not mirror.writers and mirror.is_settled:
                self._forget(mirror.path)

    def _forget(self, path: str) -> None:
        with self._lock:
            mirror = self._mirrors.pop(path, None)
            if mirror is not None:
                mirror.discard()


def _info(fs: Any, path: str) -> Mapping[str, Any] | None:
    """What the store knows of `path`; None where there is nothing. `exists` of many drivers says no to any error."""
    try:
        found: Mapping[str, Any] = fs.info(path)
    except Exception as error:  # of the driver's own kind
        if is_missing(error):
            return None
        raise
    return found


def _tell_of(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """In the thread of the drivers: tell of errors that nobody took, but of lost connections, which their calls report."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)


def _makedirs(fs: Any, path: str) -> None:
    info = _info(fs, path)
    if info is None:
        fs.makedirs(path, exist_ok=True)
    elif info["type"] != "directory":
        raise NotADirectoryError(f"{path} is a file")


def _remove_all(fs: Any, path: str) -> None:
    info = _info(fs, path)
    if info is not None and info["type"] == "directory":
        fs.rm(path, recursive=True)
    elif info is not None:
        fs.rm_file(path)


def _replace(fs: Any, path: str, to: str) -> None:
    """Rename; a store that refuses to replace a file gets it moved aside first, so that it is never gone."""
    if _info(fs, path) is None and _info(fs, to) is not None:
        return  # an attempt before this one was made, and its answer was lost
    try:
        fs.mv(path, to)
    except Exception:  # of the driver's own kind
        if _info(fs, path) is None or _info(fs, to) is None:
            raise
        aside = f"{path}.old{TEMPORARY}"
        fs.mv(to, aside)
        try:
            fs.mv(path, to)
        except Exception:
            fs.mv(aside, to)
            raise
        fs.rm_file(aside)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _folder(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]


def _remove_scratch(folder: str, kept: set[str], process: int) -> None:
    """Remove the copies but those that hold what nothing else does."""
    if os.getpid() != process:  # a worker, forked from the run
        return
    for entry in Path(folder).iterdir():
        if str(entry) not in kept:
            entry.unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        Path(folder).rmdir()
