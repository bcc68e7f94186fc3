"""Looking into plugins, each in a process of its own: one that prints, exits or crashes at import disturbs nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scepter_core.discovery import Plugin

TIMEOUT = 300.0
"""Seconds that a plugin's import may take."""

_AT_ONCE = 4


def inspect_plugins(plugins: Sequence[Plugin]) -> list[dict[str, Any]]:
    """What `inspection.inspect` says of each, in order; for one that ends its process, why it is broken."""
    with ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        return list(pool.map(_inspect, plugins))


def _inspect(plugin: Plugin) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="scepter-") as folder:
        file = Path(folder, "inspection.json")
        # -P: the current folder's modules are not the plugin's, unless this process looks there too.
        safe = [] if {"", os.getcwd()} & set(sys.path) else ["-P"]  # noqa: PTH109  # compared with texts
        command = [sys.executable, *safe, "-m", "scepter_core.cli.inspection", plugin.kind, plugin.name, str(file)]
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return broken(f"importing it takes longer than {TIMEOUT:.0f} s")
        if file.is_file() and file.stat().st_size:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return found
        last = ended.stderr.decode(errors="backslashreplace").strip().splitlines()[-1:]
        return broken(": ".join([f"importing it ends the process ({_how(ended.returncode)})", *last]))


def broken(reason: str) -> dict[str, Any]:
    """The details of a plugin of which nothing is known but why it cannot be used."""
    return {
        "broken": " ".join(reason.split()),
        "description": None,
        "events": [],
        "brings": [],
        "keys": [],
        "any_key": False,
    }


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # a signal without a name
        return f"signal {-status}"
