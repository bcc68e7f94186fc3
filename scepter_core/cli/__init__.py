"""The command `scepter`: one file a command, put together in `entry`.

Importing this package, and asking for help, the version or the list of plugins, imports no torch and no plugin: each
command imports what it needs when it runs.
"""

from __future__ import annotations

from scepter_core.cli.entry import main

__all__ = ["main"]
