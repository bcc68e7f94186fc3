"""Checkpoints whose tensors are spread over processes: one file as ever, and beside it a folder of torch's DCP.

The file holds everything but the parts of tensors, and the list of the folder's files with their sizes and checksums. It
appears last, whole: a folder without a file that names it is what a writer left that was killed.
"""

from __future__ import annotations

import pickle
import shutil
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from scepter_core.errors import RunError

SHARDS = ".shards"  # ending of the folders' names; a checkpoint `NAME.pth` has `NAME.{random}.shards`
_LIST, _PART = "shards", "sharded"
_METADATA = ".metadata"
_BLOCK = 1 << 20
_ALLOWED = {
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            *("Metadata", "StorageMeta", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata"),
            *("TensorProperties", "MetadataIndex", "_MEM_FORMAT_ENCODING"),
        )
    ),
}


def is_sharded(state: Any) -> bool:
    """Whether there are tensors in `state` of which other processes hold parts."""
    return next(_parts(state, ""), None) is not None


def write_shards(path: str, state: Mapping[str, Any], group: dist.ProcessGroup) -> dict[str, Any] | None:
    """Write this process's parts of the tensors in `state` beside the file `path`; every process does, at the same time.

    Args:
        path: of the checkpoint's file, which is still to be written.
        state: its tensors do not change meanwhile.
        group: of the processes, for this alone.

    Returns:
        in the first process what the file has to hold, in the others None.
    """
    named: list[str | None] = [f"{Path(path).stem}.{uuid.uuid4().hex[:8]}{SHARDS}"]
    dist.broadcast_object_list(named, src=0, group=group)
    folder = Path(path).with_name(str(named[0]))
    parts = dict(_parts(state, ""))
    try:
        save(parts, storage_writer=FileSystemWriter(folder), process_group=group)
    except CheckpointException as error:
        raise _first_cause(error) from error
    if dist.get_rank(group) != 0:
        return None
    files = {entry.name: list(_measured(entry)) for entry in sorted(folder.iterdir())}
    return {**_without_parts(state, ""), _LIST: {"folder": folder.name, "files": files}}


def damage_of_shards(path: str, state: Mapping[str, Any], share: tuple[int, int] | None = (0, 1)) -> str | None:
    """What is wrong with the files that the checkpoint `path` lists; None where nothing is, or where it lists none.

    Args:
        share: of which files the contents are verified: `(1, 4)`, the second of four equal shares. None: of no file; that
            each is there in its size is all that is looked at.
    """
    listed = state.get(_LIST)
    if listed is None:
        return None
    folder = Path(path).with_name(Path(listed["folder"]).name)
    for number, (name, (size, checksum)) in enumerate(listed["files"].items()):
        file = folder / Path(name).name
        if not file.is_file():
            return f"its part {file} is missing"
        verified = share is not None and number % share[1] == share[0]
        if file.stat().st_size != size or (verified and _measured(file)[1] != checksum):
            return f"its part {file} is damaged"
    return None


class SavedTensor:
    """A tensor of a checkpoint that several processes wrote parts of, still to be read.

    Attributes:
        shape, dtype: of the whole tensor.
    """

    def __init__(self, name: str, shape: torch.Size, dtype: torch.dtype, reader: _Reader) -> None:
        self.shape, self.dtype = shape, dtype
        self._name, self._reader = name, reader

    def whole(self) -> torch.Tensor:
        """All of it, on the host."""
        tensor = torch.empty(self.shape, dtype=self.dtype)
        _read({self._name: tensor}, self._reader)
        return tensor

    def part(self, like: torch.Tensor) -> torch.Tensor:
        """A DTensor that is spread and placed as the DTensor `like`; no more is read than this process holds of it."""
        tensor = torch.empty_like(like, dtype=self.dtype, requires_grad=False)
        _read({self._name: tensor}, self._reader)
        return tensor


def with_parts(path: str, state: dict[str, Any], whole: bool) -> dict[str, Any]:
    """The state that `write_shards` wrote. Needs no other process.

    Args:
        whole: whether its tensors are read, all of them, to the host; else each is a `SavedTensor`.

    Raises:
        RunError: the folder's index names anything but tensors.
    """
    reader = _Reader(Path(path).with_name(Path(state.pop(_LIST)["folder"]).name))
    tensors: dict[str, Any] = {
        name: SavedTensor(name, entry.size, entry.properties.dtype, reader)
        for name, entry in reader.read_metadata().state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    if whole:
        tensors = {name: torch.empty(saved.shape, dtype=saved.dtype) for name, saved in tensors.items()}
        _read(tensors, reader)
    filled: dict[str, Any] = _filled(state, tensors)
    return filled


def _read(tensors: dict[str, Any], reader: _Reader) -> None:
    """Fill the tensors, each with what this process holds of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as it is meant
        try:
            load(tensors, storage_reader=reader, no_dist=True)
        except CheckpointException as error:
            raise RunError(f"{reader.path}: cannot be read: {_first_cause(error)}") from error


def remove_shards(folder: str, keep: Callable[[str], bool]) -> None:
    """Delete the folders of parts in `folder` whose names `keep` does not want."""
    for entry in Path(folder).glob(f"*{SHARDS}") if Path(folder).is_dir() else ():
        if not keep(entry.name):
            shutil.rmtree(entry, ignore_errors=True)


def folder_of(path: str) -> str | None:
    """The name of the folder that the checkpoint `path` lists; None where it lists none, or cannot be read."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return str(state[_LIST]["folder"])
    except Exception:  # torch raises whatever a strange file leads it to
        return None


class _Reader(FileSystemReader):
    """Reads the folder's index once, without running what it may ask for."""

    _index: Metadata | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self._index is None:
            self._index = self._read_index()
        meta = self._index.storage_meta = self._index.storage_meta or StorageMeta()
        meta.load_id = self.load_id
        return self._index

    def _read_index(self) -> Metadata:
        try:
            with Path(self.path, _METADATA).open("rb") as file:
                metadata = _Unpickler(file).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, TypeError, ValueError, IndexError) as error:
            raise RunError(f"{self.path}: its index cannot be read: {error}") from error
        if not isinstance(metadata, Metadata):
            raise RunError(f"{self.path}: its index is a {type(metadata).__name__}")
        return metadata


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}, and an index holds sizes and places of tensors only")


def _parts(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if hasattr(value, "full_tensor"):
        yield path, value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _parts(entry, f"{path}/{name}")


def _without_parts(value: Any, path: str) -> Any:
    if hasattr(value, "full_tensor"):
        return {_PART: path}
    if isinstance(value, Mapping):
        return {name: _without_parts(entry, f"{path}/{name}") for name, entry in value.items()}
    return value


def _filled(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_PART}:
            return tensors[value[_PART]]
        return {name: _filled(entry, tensors) for name, entry in value.items()}
    return value


def _measured(file: Path) -> tuple[int, int]:
    """Size and checksum (CRC-32)."""
    checksum = 0
    with file.open("rb") as opened:
        while block := opened.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return file.stat().st_size, checksum


def _first_cause(error: CheckpointException) -> BaseException:
    causes = [cause[0] for _, cause in sorted(error.failures.items())]
    return next((cause for cause in causes if isinstance(cause, OSError)), causes[0] if causes else error)
