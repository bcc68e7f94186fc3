"""The file systems of a run as one: each path goes where its protocol says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO

from scepter_core import locations
from scepter_core.errors import ConfigError
from scepter_core.io.filesystem import FileSystem
from scepter_core.io.remote import RemoteFileSystem
from scepter_core.sections import FileSystems, RemoteFsConfig


class RunFileSystem(FileSystem):
    """Local paths and URLs alike. Nothing is connected, and no driver imported, before a URL is used.

    Args:
        configs: FILE_SYSTEM, for the options of protocols; those that it does not name have their drivers' defaults.
        warn: told of every attempt to reach a store that failed, as a logger's `warning` is.
        retry: whether failed attempts are made again.
    """

    def __init__(
        self, configs: FileSystems = None, warn: Callable[..., object] = lambda *args: None, *, retry: bool = True
    ) -> None:
        listed = configs if isinstance(configs, list) else [configs]
        self._configs = [config for config in listed if isinstance(config, RemoteFsConfig)]
        self._warn, self._retry = warn, retry
        self._local = FileSystem()
        self._remote: dict[str, RemoteFileSystem] = {}
        self._passwords: dict[str, str] = {}  # by the head of the URL

    # --- paths -----------------------------------------------------------------------------------------------------

    def absolute(self, path: str) -> str:
        """The absolute path; of a URL with a password, which is remembered here, without it."""
        return locations.absolute(self.without_password(path))

    def resolve(self, path: str) -> str:
        return locations.resolve(self.without_password(path))

    def without_password(self, path: str) -> str:
        """The path as it is; a URL without its password, which is remembered here."""
        bare, password = locations.split_password(path)
        if password is not None:
            self._passwords[locations.head(locations.absolute(bare))] = password
        return bare

    # --- files -----------------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        return self._of(path).exists(_place(path))

    def isfile(self, path: str) -> bool:
        return self._of(path).isfile(_place(path))

    def isdir(self, path: str) -> bool:
        return self._of(path).isdir(_place(path))

    def makedirs(self, path: str) -> None:
        self._of(path).makedirs(_place(path))

    def listdir(self, path: str) -> list[str]:
        return self._of(path).listdir(_place(path))

    def size(self, path: str) -> int:
        return self._of(path).size(_place(path))

    def remove(self, path: str) -> None:
        self._of(path).remove(_place(path))

    def remove_all(self, path: str) -> None:
        self._of(path).remove_all(_place(path))

    def move(self, path: str, to: str) -> None:
        """As the local one; within one file system."""
        self._of(path).move(_place(path), _place(to))

    def open(self, path: str, mode: str = "rb") -> IO[bytes] | IO[str]:
        return self._of(path).open(_place(path), mode)

    @contextmanager
    def fetched(self, path: str) -> Iterator[str]:
        with self._of(path).fetched(_place(path)) as local:
            yield local

    @contextmanager
    def glanced(self, path: str) -> Iterator[str | BinaryIO]:
        with self._of(path).glanced(_place(path)) as glanced:
            yield glanced

    def truncate(self, path: str, length: int) -> None:
        self._of(path).truncate(_place(path), length)

    def write_atomic(self, path: str, write: Callable[[BinaryIO], object]) -> None:
        """As the local one. What files that are open for writing got before is uploaded first: a checkpoint may refer to it."""
        self.sync()
        self._of(path).write_atomic(_place(path), write)

    def sync(self) -> None:
        for remote in list(self._remote.values()):
            remote.sync()

    # --- inside ----------------------------------------------------------------------------------------------------

    def _of(self, path: str) -> FileSystem:
        if locations.is_local(path):
            return self._local
        head = locations.head(locations.absolute(self.without_password(path)))
        if head not in self._remote:
            protocol = locations.protocol_of(head)
            driver = _driver_of(protocol)
            config = self._config_of(driver)
            options = {**(config.options if config else {}), **driver._get_kwargs_from_urls(self._with_password(head))}
            times = (config or RemoteFsConfig(protocol=protocol)).retry_times if self._retry else 0
            self._remote[head] = RemoteFileSystem(protocol, options, retry_times=times, warn=self._warn)
        return self._remote[head]

    def _config_of(self, driver: Any) -> RemoteFsConfig | None:
        return next((c for c in self._configs if locations.driver_of(c.protocol) is driver), None)

    def _with_password(self, head: str) -> str:
        password = self._passwords.get(head)
        return head if password is None else head.replace("@", f":{password}@", 1)


def _driver_of(protocol: str) -> Any:
    try:
        return locations.driver_of(protocol)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _place(path: str) -> str:
    """The path as its own file system knows it."""
    return locations.local_path(path) if locations.is_local(path) else locations.absolute(path)
