"""torch's optimizers and schedulers under their own names, and SCEPTER's own schedulers under theirs."""

from __future__ import annotations

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from scepter_core.optim.annealing import LinoPolyLR, StepAnnealingLR, WarmupToConstantLR
from scepter_core.registry import UnknownName

_OURS: dict[str, type[LRScheduler]] = {kind.__name__: kind for kind in (LinoPolyLR, StepAnnealingLR, WarmupToConstantLR)}


def optimizer_names() -> list[str]:
    """The public optimizer classes of torch.optim."""
    return [name for name, thing in vars(torch.optim).items() if _is_public(name, thing, Optimizer)]


def scheduler_names() -> list[str]:
    """The public scheduler classes of torch.optim.lr_scheduler, and SCEPTER's own."""
    return [*_names_of_torch(), *_OURS]


def _names_of_torch() -> list[str]:
    return [name for name, thing in vars(torch.optim.lr_scheduler).items() if _is_public(name, thing, LRScheduler)]


def _is_public(name: str, thing: object, base: type) -> bool:
    return isinstance(thing, type) and issubclass(thing, base) and thing is not base and not name.startswith("_")


def find_optimizer(name: str) -> object | None:
    """The class of torch.optim called `name`, None where there is none.

    Raises:
        UnknownName: it is there and cannot work with this engine; says why.
    """
    if name == "LBFGS":
        raise UnknownName(
            "LBFGS needs a closure that evaluates the model several times in one update, and an update here follows "
            "the backward of its own steps",
            "another optimizer, AdamW or SGD for instance",
        )
    return getattr(torch.optim, name) if name in optimizer_names() else None


def find_scheduler(name: str) -> object | None:
    """The scheduler class called `name`: torch's, else one of SCEPTER's own; None where there is none."""
    return getattr(torch.optim.lr_scheduler, name) if name in _names_of_torch() else _OURS.get(name)
