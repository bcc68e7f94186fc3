"""Writing a checkpoint beside the training that goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import torch

from scepter_core import FileSystem, RunError, Strategy


def snapshot(state: Any) -> Any:
    """A copy of `state` whose tensors are on the host and the run's no longer: the state of one instant.

    Tensors that share one memory (tied weights) share one copy. Memory: one more copy of the state.
    """
    return _copy(state, {})


def _copy(value: Any, copies: dict[tuple[Any, ...], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return value.detach().to("cpu", copy=True)
        kind = (value.dtype, value.is_conj(), value.is_neg())
        own = value.to_local() if hasattr(value, "to_local") else value  # of a DTensor, the part that is here
        place = (value.device, own.data_ptr(), value.shape, value.stride(), kind)
        if own.numel() == 0 or place not in copies:
            copies[place] = value.detach().to("cpu", copy=True)
        return copies[place]
    if isinstance(value, Mapping):
        return {name: _copy(entry, copies) for name, entry in value.items()}
    if isinstance(value, list):
        return [_copy(entry, copies) for entry in value]
    return tuple(_copy(entry, copies) for entry in value) if type(value) is tuple else value


class _Remembering:
    """A file that remembers why a write failed: torch.save reports no more than that it did."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def _save(state: Mapping[str, Any], file: BinaryIO) -> None:
    remembering = _Remembering(file)
    try:
        torch.save(state, remembering)  # type: ignore[arg-type]  # write and flush are all that it needs
    except RuntimeError:
        if remembering.error is None:
            raise
        raise remembering.error from None


class Writer:
    """Writes one file at a time, in a thread of its own or at once: one writer a run, whoever writes.

    Args:
        file_system: where the files are.
        strategy: knows which process writes what.
    """

    def __init__(self, file_system: FileSystem, strategy: Strategy) -> None:
        self.file_system, self.strategy = file_system, strategy
        self._thread: threading.Thread | None = None
        self._failure: tuple[str, Exception] | None = None
        self._done: list[tuple[str, str]] = []

    def write(
        self,
        path: str,
        kind: str,
        state: Mapping[str, Any],
        then: Callable[[], None],
        *,
        in_background: bool,
    ) -> None:
        """Write `state` to `path`; then call `then`. What goes wrong is raised by `raise_failure`.

        Args:
            in_background: let training go on meanwhile. Waits for the file before this one, if it is still in flight.
        """
        self.wait()
        if not in_background:
            self._run(path, kind, state, then)
            return
        arguments = (path, kind, snapshot(state), then)
        # Not a daemon: the process does not end before the file is on the disk.
        self._thread = threading.Thread(target=self._run, args=arguments, name=f"write {path}")
        self._thread.start()

    def _run(self, path: str, kind: str, state: Mapping[str, Any], then: Callable[[], None]) -> None:
        try:
            whole = self.strategy.write_parts(path, state)
            if whole is None:
                return  # another process writes the file
            self.file_system.write_atomic(path, lambda file: _save(whole, file))
            then()
        except Exception as error:  # of any kind: in a thread nobody else would hear of it
            self._failure = (path, error)
        else:
            self._done.append((path, kind))

    def wait(self) -> None:
        """Wait until nothing is in flight."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def raise_failure(self) -> None:
        """Raise, once, what went wrong with a file: RunError where the disk said no."""
        if self._failure is None:
            return
        (path, error), self._failure = self._failure, None
        message = f"could not write the checkpoint {path}: {error}. Earlier checkpoints are untouched"
        if isinstance(error, OSError):
            raise RunError(message) from error
        error.add_note(message)
        raise error

    def take_done(self) -> list[tuple[str, str]]:
        """The (path, kind) of every file that became whole since the last call."""
        done, self._done = self._done, []
        return done
