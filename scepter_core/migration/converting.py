"""From a file of SCEPTER's, or one of ours, to a checkpoint of this engine or to safetensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from scepter_core import locations
from scepter_core._version import __version__
from scepter_core.checkpoints import FORMAT, SUFFIX, read_checkpoint
from scepter_core.errors import ConfigError, Problem, RunError
from scepter_core.io import FileSystem, RunFileSystem
from scepter_core.migration.exporting import prepare, serialise
from scepter_core.migration.layouts import Found, recognise
from scepter_core.migration.reading import read
from scepter_core.sections import MODES

SAFETENSORS = ".safetensors"
_PREFIX = "module."  # of DistributedDataParallel
_IMPLEMENTATIONS = ("fused", "foreach")  # options that say how, and not what: those of the run that resumes count


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion took over.

    Attributes:
        layout: what the file was, in words.
        tensors: of weights.
        epoch, step: where the new file says that the run stands.
        updates: the same; None for safetensors, which does not say.
        optimizer, scaler: whether their state is in the new file.
        stripped: whether the weights' names lost `module.`.
        cut_epoch: the epoch in whose middle the old file was saved, which begins anew; None where there is none.
        left_out: what was in the old file, or among its weights, and is not in the new one.
    """

    layout: str
    tensors: int
    epoch: int
    step: int
    updates: int | None
    optimizer: bool
    scaler: bool
    stripped: bool
    cut_epoch: int | None
    left_out: tuple[str, ...]


def convert(
    old: str,
    new: str,
    *,
    overwrite: bool = False,
    weights_only: bool = False,
    keep_names: bool = False,
    epoch: int | None = None,
    step: int | None = None,
) -> Conversion:
    """Write what is in the file `old` as `new`: a checkpoint (`.pth`), or the weights alone (`.safetensors`).

    Args:
        old: a checkpoint of SCEPTER's, a plain state dict, or a checkpoint of this engine; a path or a URL, as `new`.
        new: appears whole or not at all.
        overwrite: replace `new` where it exists.
        weights_only: a checkpoint at the very start of a run: no counters, no optimizer.
        keep_names: leave `module.` at the start of names.
        epoch, step: training epochs and steps done, in place of what the file says.

    Raises:
        ConfigError: what is asked for cannot be: no such file, `new` exists, …
        RunError: the content of `old` cannot be converted, or `new` not be written.
    """
    files = RunFileSystem()
    old, new = files.without_password(old), files.without_password(new)
    try:
        _check(old, new, overwrite, files)
        state = _read(old, files)
    except OSError as error:  # no permission, a name too long, …
        raise RunError(f"cannot convert {old} to {new}: {error.strerror or error}") from error
    is_spread = isinstance(state, dict) and "shards" in state  # over the processes that wrote it
    if is_spread:
        state = read_checkpoint(old)
    found = recognise(state, old)
    to_safetensors = new.endswith(SAFETENSORS)
    if is_spread and not to_safetensors and not weights_only:
        return _gathered(files, state, found, new)
    if found.is_ours and not to_safetensors and not weights_only:
        raise ConfigError(f"{old} is a checkpoint of this engine already: nothing to convert")
    taken = found if found.is_ours or keep_names else replace(found, weights=_without_prefix(found.weights))
    if weights_only:
        taken = replace(taken, epoch=0, step=0, cut_epoch=None)
    if weights_only or to_safetensors:
        taken = replace(taken, optimizer=None, scaler=None)
    if epoch is not None:
        taken = replace(taken, epoch=epoch, cut_epoch=None)
    if step is not None:
        taken = replace(taken, step=step)
    stripped = taken.weights.keys() != found.weights.keys()
    if to_safetensors:
        return _to_safetensors(files, taken, old, new, stripped)
    return _to_checkpoint(files, taken, new, stripped)


def _gathered(files: FileSystem, state: dict[str, Any], found: Found, new: str) -> Conversion:
    """A checkpoint that several processes wrote parts of, as one file: all of it."""
    import torch

    _put(files, new, lambda file: torch.save(state, file))
    tensors = sum(isinstance(value, torch.Tensor) for value in found.weights.values())
    whole = replace(found, optimizer=state["optimizer"], scaler=state["scaler"], left_out=())
    return _conversion(whole, tensors, False, state["total_updates"], [])


def _to_safetensors(files: FileSystem, taken: Found, old: str, new: str, stripped: bool) -> Conversion:
    tensors, without = prepare(taken.weights, old)
    data = serialise(tensors, old, step=taken.step, epoch=taken.epoch)
    _put(files, new, lambda file: file.write(data))
    return _conversion(taken, len(tensors), stripped, None, without)


def _to_checkpoint(files: FileSystem, taken: Found, new: str, stripped: bool) -> Conversion:
    import torch

    state = _as_checkpoint(taken)
    _put(files, new, lambda file: torch.save(state, file))
    tensors = sum(isinstance(value, torch.Tensor) for value in taken.weights.values())
    return _conversion(taken, tensors, stripped, state["total_updates"], [])


def _conversion(taken: Found, tensors: int, stripped: bool, updates: int | None, without: list[str]) -> Conversion:
    return Conversion(
        layout=taken.layout,
        tensors=tensors,
        epoch=taken.epoch,
        step=taken.step,
        updates=updates,
        optimizer=taken.optimizer is not None,
        scaler=taken.scaler is not None,
        stripped=stripped,
        cut_epoch=taken.cut_epoch,
        left_out=(*taken.left_out, *without),
    )


def _put(files: FileSystem, new: str, write: Callable[[BinaryIO], object]) -> None:
    try:
        files.write_atomic(new, write)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise RunError(f"could not write {new}: {error}") from error


def _check(old: str, new: str, overwrite: bool, files: RunFileSystem) -> None:
    if not new.endswith((SUFFIX, SAFETENSORS)):
        raise ConfigError(f"{new}: the new file's name ends in {SUFFIX}, for a checkpoint, or in {SAFETENSORS}")
    if files.exists(new) and not files.isfile(new):
        raise ConfigError(f"{new} is {'a folder' if files.isdir(new) else 'no file'}")
    if files.resolve(new) == files.resolve(old) and files.exists(new):
        raise ConfigError(f"{new} is the old file: give the new one another name")
    if files.exists(new) and not overwrite:
        raise ConfigError([Problem(f"{new} exists", hint="--overwrite replaces it")])


def _read(old: str, files: RunFileSystem) -> Any:
    if locations.is_local(old):
        return read(locations.local_path(old), old)
    try:
        with files.fetched(old) as local:
            return read(local, old)
    except FileNotFoundError:
        raise ConfigError(f"{old}: there is no such file") from None


def _without_prefix(weights: dict[str, Any]) -> dict[str, Any]:
    """The weights without the `module.` of their names, where all have it."""
    if not all(name.startswith(_PREFIX) for name in weights):
        return weights
    return {name.removeprefix(_PREFIX): value for name, value in weights.items()}


def _updates(found: Found) -> int:
    """How often the optimizer stepped: as its own state counts it, else once a step."""
    states = found.optimizer["state"].values() if found.optimizer is not None else ()
    counted = [_number(state.get("step")) for state in states if isinstance(state, Mapping)]
    return max((number for number in counted if number is not None), default=found.step)


def _number(value: Any) -> int | None:
    """The whole number that a count of the optimizer's is, a tensor or not; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return int(number) if number.is_integer() and 0 <= number < 2**53 else None


def _as_checkpoint(found: Found) -> dict[str, Any]:
    """The state of a run that stands between two epochs, with nothing that is still to come."""
    from scepter_core.metrics import WeightedMeans

    nothing = {mode: WeightedMeans().state_dict() for mode in MODES}
    return {
        "format": FORMAT,
        "version": __version__,
        "model": found.weights,
        "optimizer": _with_configured(found.optimizer) if found.optimizer is not None else None,
        "lr_scheduler": None,  # a schedule follows from the position
        "scaler": found.scaler,
        "epoch": found.epoch,
        "iter": 0,
        "total_iter": {**dict.fromkeys(MODES, 0), "train": found.step},
        "total_updates": _updates(found),
        "position": {"mode": "train", "in_epoch": False, "cut": False, "closing": None, "pending": []},
        "window": None,
        "data": {"seed": None, "steps_per_epoch": None},
        "rng": {},
        "hooks": {},
        "metrics": {"ranks": [{"means": nothing, "named": {}}], "epoch_outputs": {}},
        "config": "",
    }


def _with_configured(optimizer: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's state as ours is: beside the options in force, those it was given, so that changed ones count."""
    groups = [
        {
            "initial_lr": group.get("lr"),
            **{name: value for name, value in group.items() if name not in _IMPLEMENTATIONS},
        }
        for group in optimizer["param_groups"]
    ]
    configured = [
        {name: value for name, value in group.items() if name != "params"} | {"lr": group["initial_lr"]}
        for group in groups
    ]
    return {**optimizer, "param_groups": groups, "configured": configured}
