"""How a model spreads over processes: one small module a way."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from scepter_core.distributed.processes import Processes
from scepter_core.distributed.strategies.base import Strategy
from scepter_core.errors import ConfigError, Problem
from scepter_core.registry import STRATEGIES

_BUILT_IN = {"auto": "base:Strategy", "single": "base:Strategy", "ddp": "ddp:DDP", "fsdp": "fsdp:FSDP"}

__all__ = ["Strategy", "find_strategy", "make_strategy", "strategy_names"]


def find_strategy(name: str) -> object | None:
    """The engine's strategy called `name`; None where there is none."""
    if name not in _BUILT_IN:
        return None
    module, _, attribute = _BUILT_IN[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)  # type: ignore[no-any-return]


def strategy_names() -> list[str]:
    """The names that `find_strategy` knows."""
    return list(_BUILT_IN)


def make_strategy(section: Any, processes: Processes, device: torch.device, logger: Any) -> Strategy:
    """The strategy of the section ENV.STRATEGY; `auto` is `ddp` where there are several processes, else `single`.

    So is `fsdp` in one process, where nothing is divided: the same file runs in one and in many.

    Raises:
        ConfigError: `single` where there are several processes: each would train a model of its own.
    """
    if section is None or section.name == "auto":
        section = {"NAME": "ddp" if processes.world_size > 1 else "single"}
    elif section.name == "fsdp" and processes.world_size == 1:
        if section.param_dtype or section.reduce_dtype:
            logger.warning("ENV.STRATEGY fsdp divides nothing in one process: PARAM_DTYPE and REDUCE_DTYPE do nothing")
        section = {"NAME": "single"}
    elif section.name == "single" and processes.world_size > 1:
        raise ConfigError(
            [
                Problem(
                    f"each of the {processes.world_size} processes would train a model of its own",
                    path="ENV.STRATEGY",
                    found="single",
                    expected="ddp, fsdp or auto",
                )
            ]
        )
    return STRATEGIES.build(section, logger=logger, processes=processes, device=device)  # type: ignore[no-any-return]
