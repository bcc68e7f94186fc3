"""What there is to configure: installed plugins, by their metadata alone, and the user's own modules."""

from __future__ import annotations

from scepter_core.discovery.installed import (
    CORE,
    GROUPS,
    KINDS,
    Plugin,
    disable,
    find,
    find_disabled,
    is_disabled,
    plugins,
    reset,
)
from scepter_core.discovery.local import forget_local, import_local, is_local, when_forgotten
from scepter_core.discovery.origin import origin, source

__all__ = [
    "CORE",
    "GROUPS",
    "KINDS",
    "Plugin",
    "disable",
    "find",
    "find_disabled",
    "forget_local",
    "import_local",
    "is_disabled",
    "is_local",
    "origin",
    "plugins",
    "reset",
    "source",
    "when_forgotten",
]
