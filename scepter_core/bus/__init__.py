"""Events and hooks: what is emitted (`specs`), what acts on it (`hook`), and how the two meet (`bus`)."""

from __future__ import annotations

from scepter_core.bus.bus import EventBus, EventTable, HookImplInfo
from scepter_core.bus.hook import Hook
from scepter_core.bus.markers import hookimpl, hookspec
from scepter_core.bus.specs import API_VERSION, CoreEvents

__all__ = [
    "API_VERSION",
    "CoreEvents",
    "EventBus",
    "EventTable",
    "Hook",
    "HookImplInfo",
    "hookimpl",
    "hookspec",
]
