"""scepter-core: a training engine whose every behaviour is a plugin.

The names below are the public interface; each is imported when it is first used, so that `import scepter_core` costs
next to nothing and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from scepter_core._version import __version__

if TYPE_CHECKING:
    from scepter_core.bus import Hook, hookimpl, hookspec
    from scepter_core.checkpoints import find_checkpoint, read_checkpoint, remove_unlisted_parts
    from scepter_core.config import Named, NamedThing, Section
    from scepter_core.distributed import Processes, Strategy
    from scepter_core.distributed.sharded import SavedTensor
    from scepter_core.errors import ConfigError, Problem, RunError, ScepterError, Stopped
    from scepter_core.io import FileSystem
    from scepter_core.metrics import as_scalar
    from scepter_core.migration import dict_to_yaml
    from scepter_core.probe import Probing
    from scepter_core.registry import (
        DATASETS,
        ENGINES,
        HOOKS,
        LR_SCHEDULERS,
        METRICS,
        MODELS,
        OPTIMIZERS,
        SAMPLERS,
        SOLVERS,
        STRATEGIES,
    )
    from scepter_core.runconfig import EnvConfig, RunConfig, dump_config, load_config
    from scepter_core.runner import run
    from scepter_core.sections import HookConfig, Location, SolverConfig
    from scepter_core.solver import BaseSolver, Engine, TrainValSolver

_MODULES = {
    "scepter_core.checkpoints": ("find_checkpoint", "read_checkpoint", "remove_unlisted_parts"),
    "scepter_core.bus": ("Hook", "hookimpl", "hookspec"),
    "scepter_core.config": ("Named", "NamedThing", "Section"),
    "scepter_core.distributed": ("Processes", "Strategy"),
    "scepter_core.distributed.sharded": ("SavedTensor",),
    "scepter_core.errors": ("ConfigError", "Problem", "RunError", "ScepterError", "Stopped"),
    "scepter_core.io": ("FileSystem",),
    "scepter_core.metrics": ("as_scalar",),
    "scepter_core.migration": ("dict_to_yaml",),
    "scepter_core.probe": ("Probing",),
    "scepter_core.registry": (
        "DATASETS",
        "ENGINES",
        "HOOKS",
        "LR_SCHEDULERS",
        "METRICS",
        "MODELS",
        "OPTIMIZERS",
        "SAMPLERS",
        "SOLVERS",
        "STRATEGIES",
    ),
    "scepter_core.runconfig": ("EnvConfig", "RunConfig", "dump_config", "load_config"),
    "scepter_core.runner": ("run",),
    "scepter_core.sections": ("HookConfig", "Location", "SolverConfig"),
    "scepter_core.solver": ("BaseSolver", "Engine", "TrainValSolver"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "DATASETS",
    "ENGINES",
    "HOOKS",
    "LR_SCHEDULERS",
    "METRICS",
    "MODELS",
    "OPTIMIZERS",
    "SAMPLERS",
    "SOLVERS",
    "STRATEGIES",
    "BaseSolver",
    "ConfigError",
    "Engine",
    "EnvConfig",
    "FileSystem",
    "Hook",
    "HookConfig",
    "Location",
    "Named",
    "NamedThing",
    "Probing",
    "Problem",
    "Processes",
    "RunConfig",
    "RunError",
    "SavedTensor",
    "ScepterError",
    "Section",
    "SolverConfig",
    "Stopped",
    "Strategy",
    "TrainValSolver",
    "__version__",
    "as_scalar",
    "dict_to_yaml",
    "dump_config",
    "find_checkpoint",
    "hookimpl",
    "hookspec",
    "load_config",
    "read_checkpoint",
    "remove_unlisted_parts",
    "run",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
