"""What SCEPTER's checkpoints hold, and where in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scepter_core.errors import RunError

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Found:
    """What a file holds that can be taken over.

    Attributes:
        layout: the layout, in words.
        weights: the model's, by name.
        epoch, step: training epochs and steps that were done, 0 where the file does not say.
        optimizer, scaler: their state dicts; None where there are none of use.
        is_ours: it is a checkpoint of this engine.
        cut_epoch: the epoch in whose middle the file was saved, None where at the end of one.
        left_out: keys of the file that are not taken over.
    """

    layout: str
    weights: dict[str, Any]
    epoch: int = 0
    step: int = 0
    optimizer: dict[str, Any] | None = None
    scaler: dict[str, Any] | None = None
    is_ours: bool = False
    cut_epoch: int | None = None
    left_out: tuple[str, ...] = ()


def recognise(state: Any, path: str) -> Found:
    """What is where in `state`, the content of the file `path`.

    Raises:
        RunError: it is of no known layout; says what it holds.
    """
    if not isinstance(state, Mapping):
        raise RunError(f"cannot convert {path}: it holds a {type(state).__name__}, not a dict")
    if "format" in state and "position" in state:
        found = _ours(state, path)
    elif isinstance(state.get("state_dict"), Mapping):
        found = _by_epochs(state, path) if "total_iters" in state else _weights_alone(state)
    elif isinstance(state.get("model"), Mapping):
        found = _by_steps(state, path)
    elif state and all(isinstance(name, str) and _is_tensor(value) for name, value in state.items()):
        found = Found("a plain state dict", dict(state))
    else:
        keys = [str(key) for key in state]
        shown = ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
        raise RunError(
            f"cannot convert {path}: no layout that is known. Its keys: {shown or 'none'}; known are files with "
            "`state_dict` (and `epoch`, `total_iters`, `checkpoint`), with `model` (and `optimizer`, `scaler`), plain "
            "state dicts, and checkpoints of this engine"
        )
    if not any(map(_is_tensor, found.weights.values())) or not all(isinstance(name, str) for name in found.weights):
        raise RunError(f"cannot convert {path}: what it has for weights are no tensors by name")
    return found


def _ours(state: Mapping[str, Any], path: str) -> Found:
    return Found(
        "a checkpoint of this engine",
        _weights(_mapping(state.get("model"))),
        _count(state.get("epoch"), "epoch", path),
        _count(_mapping(state.get("total_iter")).get("train"), "total_iter", path),
        is_ours=True,
    )


def _by_epochs(state: Mapping[str, Any], path: str) -> Found:
    """TrainValSolver's. `epoch` is the epoch of the save, from 1, and `total_iters` the iterations by mode.

    One number instead is those of training.
    A file that was saved by steps has the step in its name, and the one before in it: its epoch is not done.
    """
    epoch = _count(state.get("epoch"), "epoch", path)
    iters = state["total_iters"]
    step = _count(iters.get("train") if isinstance(iters, Mapping) else iters, "total_iters", path)
    cut = epoch > 0 and _step_in_name(path) == step + 1
    used = {"state_dict", "epoch", "total_iters", "checkpoint"}
    return Found(
        "SCEPTER's layout with `state_dict`",
        _weights(state["state_dict"]),
        epoch - 1 if cut else epoch,
        step + 1 if cut else step,
        optimizer=_optimizer(state.get("checkpoint")),
        cut_epoch=epoch if cut else None,
        left_out=tuple(str(key) for key in state if key not in used),
    )


def _weights_alone(state: Mapping[str, Any]) -> Found:
    """Of other systems: what they mean by `epoch` and the rest is not known."""
    left_out = tuple(str(key) for key in state if key != "state_dict")
    return Found("weights under `state_dict`", _weights(state["state_dict"]), left_out=left_out)


def _by_steps(state: Mapping[str, Any], path: str) -> Found:
    """The step-wise solvers'. The name has the step. With SAVE_MODULES, `model` is a state dict for each module."""
    used = {"model", "optimizer", "scaler"}
    optimizer, scaler = _optimizer(state.get("optimizer")), state.get("scaler")
    left_out = [str(key) for key in state if key not in used]
    if state.get("optimizer") and optimizer is None:
        left_out.append("optimizer (sharded by module)")
    return Found(
        "SCEPTER's layout with `model`",
        _weights(state["model"]),
        step=_step_in_name(path),
        optimizer=optimizer,
        scaler=dict(scaler) if isinstance(scaler, Mapping) and scaler else None,
        left_out=tuple(left_out),
    )


def _weights(model: Mapping[str, Any]) -> dict[str, Any]:
    """A state dict; those of several modules become one, each name behind its module's."""
    if model and all(isinstance(part, Mapping) for part in model.values()):
        return {f"{module}.{name}": value for module, part in model.items() for name, value in part.items()}
    return dict(model)


def _optimizer(state: Any) -> dict[str, Any] | None:
    if not isinstance(state, Mapping) or not isinstance(state.get("state"), Mapping):
        return None
    groups = state.get("param_groups")
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) and "params" in group for group in groups):
        return None
    return {"state": dict(state["state"]), "param_groups": [dict(group) for group in groups]}


def _count(value: Any, name: str, path: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise RunError(f"cannot convert {path}: its `{name}` is not a count")
    return value


def _step_in_name(path: str) -> int:
    """The step in a name such as `ldm_step-1000.pth`; 0 where there is none, as in `epoch-00003.pth`."""
    match = re.fullmatch(r"(?!epoch-).*-(\d{1,15})", Path(path).stem, re.ASCII | re.DOTALL)
    return int(match[1]) if match else 0


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
