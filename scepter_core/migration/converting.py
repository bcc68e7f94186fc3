"""From a file of SCEPTER's, or one of ours, to a checkpoint of this engine or to safetensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from scepter_core import locations
from scepter_core._version import __version__
from scepter_core.checkpoints import FORMAT, SUFFIX
from scepter_core.errors import ConfigError, Problem, RunError
from scepter_core.io import RunFileSystem
from scepter_core.migration.layouts import Found, recognise
from scepter_core.migration.reading import read
from scepter_core.sections import MODES

SAFETENSORS = ".safetensors"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion took over.

    Attributes:
        layout: what the file was, in words.
        tensors: of weights.
        epoch, step, updates: where the new file says that the run stands.
        optimizer, scaler: whether their state is in the new file.
        stripped: whether the weights' names lost `module.`.
        left_out: what was in the old file, or among its weights, and is not in the new one.
    """

    layout: str
    tensors: int
    epoch: int
    step: int
    updates: int
    optimizer: bool
    scaler: bool
    stripped: bool
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
    _check(old, new, overwrite, files)
    found = recognise(_read(old, files), old)
    to_safetensors = new.endswith(SAFETENSORS)
    if found.is_ours and not to_safetensors and not weights_only:
        raise ConfigError(f"{old} is a checkpoint of this engine already: nothing to convert")
    stripped = not (found.is_ours or keep_names) and found.strip_prefix()
    if weights_only:
        found.epoch = found.step = 0
        found.optimizer = found.scaler = None
    found.epoch = found.epoch or 0 if epoch is None else epoch
    found.step = (_step_of(old) if found.step is None else found.step) if step is None else step
    if to_safetensors:
        found.optimizer = found.scaler = None
        content, left_out = _as_safetensors(found)
    else:
        content, left_out = partial(_save, _as_checkpoint(found)), []
    try:
        files.write_atomic(new, content)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise RunError(f"could not write {new}: {error}") from error
    return Conversion(
        layout=found.layout,
        tensors=found.tensors,
        epoch=found.epoch,
        step=found.step,
        updates=_updates(found),
        optimizer=found.optimizer is not None,
        scaler=found.scaler is not None,
        stripped=stripped,
        left_out=(*found.left_out, *left_out),
    )


def _check(old: str, new: str, overwrite: bool, files: RunFileSystem) -> None:
    if not new.endswith((SUFFIX, SAFETENSORS)):
        raise ConfigError(f"{new}: the new file's name ends in {SUFFIX}, for a checkpoint, or in {SAFETENSORS}")
    if files.isdir(new):
        raise ConfigError(f"{new} is a folder")
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


def _step_of(path: str) -> int:
    """The step in a name such as `ldm_step-1000.pth`; 0 where there is none."""
    match = re.search(r"-(\d+)$", Path(path).stem)
    return int(match[1]) if match else 0


def _updates(found: Found) -> int:
    """How often the optimizer stepped: as its own state counts it, else once a step."""
    states = found.optimizer["state"].values() if found.optimizer is not None else ()
    steps = [state.get("step") for state in states if isinstance(state, Mapping)]
    counted = [int(step) for step in steps if step is not None and getattr(step, "ndim", 0) == 0]
    return max(counted) if counted else found.step or 0


def _as_checkpoint(found: Found) -> dict[str, Any]:
    """A checkpoint of a run that stands between two epochs, with nothing that is still to come."""
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
        "metrics": {"means": nothing, "named": {}, "epoch_outputs": {}},
        "config": "",
    }


def _with_configured(optimizer: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's state as ours is: with the options that it was given, so that those of a new configuration count."""
    groups = [{"initial_lr": group.get("lr"), **group} for group in optimizer["param_groups"]]
    configured = [{name: value for name, value in group.items() if name != "params"} for group in groups]
    return {**optimizer, "param_groups": groups, "configured": configured}


def _save(state: dict[str, Any], file: BinaryIO) -> None:
    import torch

    torch.save(state, file)


def _as_safetensors(found: Found) -> tuple[Any, list[str]]:
    """What writes the weights as safetensors, and the names of those that the format cannot hold.

    Tied weights are stored once, under their first name. What is stored are then `found`'s weights.
    """
    import torch
    from safetensors.torch import save

    weights: dict[str, torch.Tensor] = {}
    left_out: list[str] = []
    seen: set[tuple[Any, ...]] = set()
    for name, value in found.weights.items():
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
            left_out.append(name)
            continue
        place = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride(), value.is_conj(), value.is_neg())
        if value.numel() and place in seen:
            left_out.append(f"{name} (tied to a weight that is there)")
            continue
        seen.add(place)
        weights[name] = value.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    found.weights = dict(weights)
    metadata = {"format": "pt", "step": str(found.step), "epoch": str(found.epoch)}
    try:
        data = save(weights, metadata)
    except (ValueError, KeyError) as error:  # a kind of number that the format has no name for
        raise RunError(f"safetensors cannot hold these weights: {error}") from error
    return lambda file: file.write(data), left_out
