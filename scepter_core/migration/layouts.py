"""What SCEPTER's checkpoints hold, and where in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scepter_core.errors import RunError

_PREFIX = "module."  # of DistributedDataParallel
_SHOWN = 12


@dataclass
class Found:
    """What a file holds that can be taken over.

    Attributes:
        layout: the layout, in words.
        weights: the model's, by name.
        epoch, step: training epochs and steps that were done; None where the file does not say.
        optimizer, scaler: their state dicts; None where there are none of use.
        is_ours: it is a checkpoint of this engine.
        left_out: keys of the file that are not taken over.
    """

    layout: str
    weights: dict[str, Any]
    epoch: int | None = None
    step: int | None = None
    optimizer: dict[str, Any] | None = None
    scaler: dict[str, Any] | None = None
    is_ours: bool = False
    left_out: list[str] = field(default_factory=list)

    @property
    def tensors(self) -> int:
        """How many of the weights are tensors."""
        return sum(_is_tensor(value) for value in self.weights.values())

    def strip_prefix(self) -> bool:
        """Take `module.` off the weights' names where all have it; whether they had."""
        if not all(name.startswith(_PREFIX) for name in self.weights):
            return False
        self.weights = {name.removeprefix(_PREFIX): value for name, value in self.weights.items()}
        return True


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
        found = _by_epochs(state, path)
    elif isinstance(state.get("model"), Mapping):
        found = _by_steps(state)
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
    if not found.tensors:
        raise RunError(f"cannot convert {path}: there are no tensors among its weights")
    return found


def _ours(state: Mapping[str, Any], path: str) -> Found:
    step = _count(_mapping(state.get("total_iter")).get("train"), "total_iter", path)
    return Found(
        "a checkpoint of this engine", _weights(state["model"]), _count(state.get("epoch"), "epoch", path), step, is_ours=True
    )


def _by_epochs(state: Mapping[str, Any], path: str) -> Found:
    """TrainValSolver's: `epoch` is the number of epochs done, `total_iters` the iterations by mode."""
    used = {"state_dict", "epoch", "total_iters", "checkpoint"}
    return Found(
        "SCEPTER's layout with `state_dict`",
        _weights(state["state_dict"]),
        _count(state.get("epoch"), "epoch", path),
        _count(_mapping(state.get("total_iters")).get("train"), "total_iters", path),
        optimizer=_optimizer(state.get("checkpoint")),
        left_out=[str(key) for key in state if key not in used],
    )


def _by_steps(state: Mapping[str, Any]) -> Found:
    """The step-wise solvers': no counters. With SAVE_MODULES, `model` holds a state dict for each module."""
    used = {"model", "optimizer", "scaler"}
    optimizer, scaler = _optimizer(state.get("optimizer")), state.get("scaler")
    left_out = [str(key) for key in state if key not in used]
    if state.get("optimizer") and optimizer is None:
        left_out.append("optimizer (sharded by module)")
    return Found(
        "SCEPTER's layout with `model`",
        _weights(state["model"]),
        optimizer=optimizer,
        scaler=dict(scaler) if isinstance(scaler, Mapping) and scaler else None,
        left_out=left_out,
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


def _count(value: Any, name: str, path: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RunError(f"cannot convert {path}: its `{name}` is {value!r}, not a count")
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
