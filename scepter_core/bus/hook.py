"""The base class of hooks."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from scepter_core.bus.specs import CoreEvents
from scepter_core.config import Section
from scepter_core.errors import ConfigError
from scepter_core.sections import HookConfig

if TYPE_CHECKING:
    from scepter_core.runconfig import RunConfig


class Hook(CoreEvents):
    """Acts at events of a run. Override the events it acts at, and declare its keys in a nested `Config`.

        class GradNormHook(Hook):
            class Config(HookConfig):
                priority: int = 50
                warn_above: float = Field(100.0, gt=0)

            def after_backward(self, solver): ...

    A method named `before_*`, `after_*` or `on_*` is an event; one that no event of the run has the name of is an
    error. Other names are free. An implementation takes any of its event's arguments by name, without defaults.

    A class that overrides `__init__` and has no `Config` of its own, as those written for SCEPTER, takes any keys.

    Args:
        cfg: the validated section; `cfg.WARN_ABOVE`, `cfg.get("WARN_ABOVE", default)`, `cfg.have("WARN_ABOVE")`.
        logger: where the hook logs.

    Attributes:
        Config: the section's model.
        role: what only one hook of a mode may do (`backward`, `lr`, `sampler`); two of one role are an error.
        events: a class of `hookspec` methods: the events that this hook brings and emits.
        cfg: the section.
        logger: the logger; python's own, named `scepter`, where none was given.
        priority: PRIORITY, else the default of `Config`; lower runs first.
    """

    Config: ClassVar[type[Section]] = HookConfig
    role: ClassVar[str | None] = None
    events: ClassVar[type | None] = None

    cfg: Any = None
    logger: logging.Logger
    priority: int = 0

    def __init__(self, cfg: Any, logger: logging.Logger | None = None) -> None:
        self.cfg = cfg
        self.logger = logger if logger is not None else logging.getLogger("scepter")
        priority = cfg.get("PRIORITY")
        if priority is None:
            field = self.Config.model_fields.get("priority")
            priority = field.default if field is not None else 0
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise ConfigError(f"{self.name}: PRIORITY must be an integer, not {priority!r}")
        self.priority = priority

    @property
    def name(self) -> str:
        """The NAME under which the configuration lists it."""
        name = self.cfg.get("NAME") if self.cfg is not None else None
        return str(name or type(self).__name__)

    @property
    def state_key(self) -> str:
        """What tells the state of this instance from that of others of its class in a checkpoint; empty: its place."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of this hook: plain values and tensors. Nothing by default."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave. Called before any other hook's `before_solve`."""

    def rank_state_dict(self) -> dict[str, Any]:
        """What each process has of its own, beside `state_dict`, which all have in common. Nothing by default."""
        return {}

    def load_rank_state_dicts(self, states: list[dict[str, Any]]) -> None:
        """Take back what `rank_state_dict` gave: this process's own.

        Where the run had another number of processes, the first one gets those of all, the others an empty list.
        """

    @classmethod
    def check(cls, cfg: Any, run: RunConfig) -> Iterable[tuple[str, str]]:
        """What is wrong with a section in view of the whole configuration, before anything is built.

        Args:
            cfg: the hook's validated section.
            run: the configuration it is part of.

        Returns:
            Pairs of a key of the section and what is wrong with it. None by default.
        """
        return ()
