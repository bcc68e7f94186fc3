"""Reading checkpoint files: whole or not, where they stand, and what is in them; nothing is ever unpickled freely."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from scepter_core.errors import RunError
from scepter_core.io import FileSystem, RunFileSystem
from scepter_core.locations import absolute, is_local

FORMAT = 1  # of the layout that `solver.state` writes
FOLDER = "checkpoints"
SUFFIX = ".pth"
PARTS = ".shards"  # ending of the folders beside such a file that hold the parts of its tensors
_IS_FOLDER = 0x10  # DOS's attribute: torch's reader goes by it, and leaves the record's memory as it finds it
# The one thing that torch's restricted unpickler makes as large as a number in the file says, however small the file.
_BUFFER = b"\nbytearray\n"
_MISSING = "there is no such file"


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One file of WORK_DIR/checkpoints.

    Attributes:
        path, size: the file, and its length in bytes.
        damage: what is wrong with it; None when it is whole.
        step, epoch, updates: where the run stood.
        position: sorts checkpoints by how far their run had come.
        metrics: by mode, the metrics of the last epoch.
    """

    path: str
    size: int
    damage: str | None = None
    step: int = -1
    epoch: int = -1
    updates: int = -1
    position: tuple[int, bool, int, bool] = (-1, False, 0, False)
    metrics: dict[str, dict[str, float]] | None = None


def has_checkpoints(work_dir: str, files: FileSystem | None = None) -> bool:
    """Whether WORK_DIR holds checkpoint files of an earlier run.

    Args:
        files: the run's file system; by default one without options, as for all functions here.
    """
    return bool(_paths(work_dir, files or RunFileSystem()))


def read_checkpoint(
    path: str, files: FileSystem | None = None, *, whole: bool = True, share: tuple[int, int] = (0, 1)
) -> dict[str, Any]:
    """The state in the file `path`, with its tensors on the CPU.

    Args:
        whole: whether to put together what several processes wrote the parts of (fsdp); else each such tensor is a
            `SavedTensor`, of which a process reads what it needs.
        share: which of how many equal shares of these parts to verify: several processes that read one checkpoint need
            not each verify all of it.

    Raises:
        RunError: the file is missing, damaged, or not one of ours; names it and says which.
    """
    try:
        with (files or RunFileSystem()).fetched(path) as local:
            damage = damage_of(local)
            if damage is None:
                return _with_parts(path, _load(local, path, share), whole)
    except FileNotFoundError:
        is_folder = is_local(path) and Path(absolute(path)).is_dir()
        damage = f"a folder: name one of its {SUFFIX} files" if is_folder else _MISSING
    raise RunError(f"cannot read the checkpoint {path}: {damage}")


def _with_parts(path: str, state: dict[str, Any], whole: bool) -> dict[str, Any]:
    """The state with the tensors that lie in parts beside the file `path`."""
    if "shards" not in state:
        return state
    from scepter_core.distributed.sharded import with_parts

    return with_parts(path, state, whole)


def remove_unlisted_parts(folder: str) -> None:
    """Delete what tensors spread over processes left in `folder` and no checkpoint there lists (any more)."""
    if not is_local(folder) or not any(Path(folder).glob(f"*{PARTS}")):
        return
    from scepter_core.distributed.sharded import folder_of, remove_shards

    listed = {folder_of(str(path)) for path in Path(folder).glob(f"*{SUFFIX}")}
    remove_shards(folder, keep=listed.__contains__)


def list_checkpoints(work_dir: str, files: FileSystem | None = None) -> list[CheckpointInfo]:
    """Every checkpoint file of WORK_DIR, each read whole; the furthest first, damaged ones last."""
    return _sorted(work_dir, files or RunFileSystem(), _examine)


def newest_checkpoint(
    work_dir: str, warn: Callable[[str], object], files: FileSystem | None = None, passed: Collection[str] = ()
) -> str | None:
    """The whole checkpoint whose run had come furthest, by its own position; None where there is none.

    Each tells its position first, in a few small reads; only the furthest is read whole, and the next one where it is
    damaged. Of parts that several processes wrote, the contents are left to `read_checkpoint`.

    Args:
        warn: told of every damaged file that is passed over.
        passed: files that were found damaged already.
    """
    files = files or RunFileSystem()
    infos = [info for info in _sorted(work_dir, files, _glance) if info.path not in passed]
    for place, info in enumerate(infos):
        if info.damage is not None:
            break
        with files.fetched(info.path) as local:
            infos[place] = replace(info, damage=damage_of(local))
        if infos[place].damage is None:
            break
    for info in infos:
        if info.damage is not None:
            warn(f"passing over the checkpoint {info.path}: {info.damage}")
    return next((info.path for info in infos if info.damage is None), None)


def find_checkpoint(
    work_dir: str,
    wanted: str,
    warn: Callable[[str], object],
    files: FileSystem | None = None,
    passed: Collection[str] = (),
) -> str | None:
    """The file that `wanted` means: `auto` (the newest), `best` or `last` of WORK_DIR, or a path.

    Args:
        warn, passed: as in `newest_checkpoint`, for `auto`.

    Raises:
        RunError: no, or more than one, `best` or `last`.
    """
    files = files or RunFileSystem()
    if wanted == "auto":
        return newest_checkpoint(work_dir, warn, files, passed)
    if wanted not in ("best", "last"):
        return wanted
    found = [path for path in _paths(work_dir, files) if path.endswith(f"-{wanted}{SUFFIX}")]
    if len(found) != 1:
        there = ", ".join(found) or "none"
        raise RunError(f"{wanted}: expected one checkpoint *-{wanted}{SUFFIX} in {work_dir}/{FOLDER}, found {there}")
    return found[0]


def _paths(work_dir: str, files: FileSystem) -> list[str]:
    folder = files.join(work_dir, FOLDER)
    return [files.join(folder, name) for name in files.listdir(folder) if name.endswith(SUFFIX)]


def _sorted(
    work_dir: str, files: FileSystem, look: Callable[[str, FileSystem], CheckpointInfo]
) -> list[CheckpointInfo]:
    infos = []
    for path in _paths(work_dir, files):
        try:
            infos.append(look(path, files))
        except FileNotFoundError:
            continue  # gone since it was listed
    return sorted(infos, key=lambda info: (info.damage is None, info.position), reverse=True)


def _examine(path: str, files: FileSystem) -> CheckpointInfo:
    """What a file says of itself, and whether it is whole."""
    with files.fetched(path) as local:
        size, damage = Path(local).stat().st_size, damage_of(local)
        return CheckpointInfo(path, size, damage) if damage is not None else _told_by(local, path, size, (0, 1), mmap=True)


def _glance(path: str, files: FileSystem) -> CheckpointInfo:
    """What a file says of itself, without its tensors: whether they are whole is not known then."""
    with files.glanced(path) as file:
        if damage_of(file, contents=False) is None:
            info = _told_by(file, path, 0, None, map_location="meta")
            if info.damage is None:
                return info
    return _examine(path, files)  # damaged, or the connection was lost: a whole look tells


def _told_by(file: str | BinaryIO, path: str, size: int, share: tuple[int, int] | None, **options: Any) -> CheckpointInfo:
    try:
        state = _load(file, path, share, **options)
        position = state["position"]
        size += sum(part for part, _ in state.get("shards", {"files": {}})["files"].values())
        step = int(state["total_iter"]["train"])
        return CheckpointInfo(
            path,
            size,
            step=step,
            epoch=int(state["epoch"]),
            updates=int(state["total_updates"]),
            position=(step, not position["in_epoch"], -len(position["pending"]), position["closing"] is None),
            metrics={
                mode: {name: float(value) for name, value in outputs.items()}
                for mode, outputs in state["metrics"]["epoch_outputs"].items()
            },
        )
    except (RunError, KeyError, TypeError, ValueError, AttributeError) as error:
        return CheckpointInfo(path, size, str(error) if isinstance(error, RunError) else "not one of this engine's")


def damage_of(file: str | Path | BinaryIO, *, contents: bool = True) -> str | None:
    """What is wrong with a file as a file: every record of the archive carries a checksum.

    Args:
        file: a local path, or an open file.
        contents: whether to verify all of them; else only those of the pickles.
    """
    try:
        if isinstance(file, str | Path):
            if not Path(file).is_file():
                return _MISSING
            with open(file, "rb") as opened:
                return damage_of(opened, contents=contents)
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return "the file is empty"
        with zipfile.ZipFile(file) as archive:
            damage = _damage_within(archive, size, contents)
        file.seek(0)
        return damage
    except Exception as error:  # zipfile raises whatever a strange archive leads it to
        return f"it is damaged or no checkpoint ({error})"


def _damage_within(archive: zipfile.ZipFile, size: int, contents: bool) -> str | None:
    records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        return "not a checkpoint: its records are compressed"
    if any(record.external_attr & _IS_FOLDER for record in records):
        return "it is damaged (a record that says it is a folder)"
    if sum(record.file_size for record in records) > size:
        return "not a checkpoint: its records are larger than the file"
    broken = archive.testzip() if contents else None
    if broken is not None:
        return f"it is damaged (checksum of {broken})"
    pickles = [record for record in records if record.filename.lower().endswith("data.pkl")]
    if any(_BUFFER in archive.read(record) for record in pickles):
        return "not a checkpoint: it asks for memory that it does not fill"
    return None


def _load(
    file: str | BinaryIO, path: str, share: tuple[int, int] | None, *, map_location: str = "cpu", mmap: bool = False
) -> dict[str, Any]:
    import torch

    try:
        state = torch.load(file, map_location=map_location, weights_only=True, mmap=mmap)
    except Exception as error:  # torch raises whatever a strange pickle leads it to
        raise RunError(f"cannot read the checkpoint {path}: {why_unread(error)}") from None
    if not isinstance(state, dict) or "format" not in state:
        raise RunError(f"cannot read the checkpoint {path}: not one of this engine's; scepter convert makes one of SCEPTER's")
    if "shards" in state:
        from scepter_core.distributed.sharded import damage_of_shards

        damage = damage_of_shards(path, state, share)
        if damage is not None:
            raise RunError(f"cannot read the checkpoint {path}: {damage}")
    return state


def why_unread(error: Exception) -> str:
    """Why torch did not read it, in one line without torch's advice to allow more."""
    text = " ".join(str(error).split())
    name = re.search(r"nsupported (?:global: )?GLOBAL (\S+)", text)
    if name:
        named = f"it names {name[1].rstrip('.')}"
        return f"{named}; a checkpoint is read without running code, and may hold numbers, text and tensors only"
    text = text.rpartition("WeightsUnpickler error: ")[2].partition(" Check the documentation")[0]
    return f"it is damaged or no checkpoint ({text.split('. ')[0][:200] or type(error).__name__})"
