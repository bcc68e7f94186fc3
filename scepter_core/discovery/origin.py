"""Where a class, a function or an instance comes from."""

from __future__ import annotations

import contextlib
import inspect
import sys
from importlib import metadata
from pathlib import Path

from scepter_core._version import __version__
from scepter_core.discovery.installed import CORE, plugins
from scepter_core.discovery.local import is_local


def origin(thing: object) -> str:
    """Where a class, function or instance comes from, for messages: `scepter-log 0.1.0`, or `my_task.py`."""
    return " ".join(filter(None, source(thing)))


def source(thing: object) -> tuple[str, str]:
    """Distribution and version of a class, function or instance; of the user's own code its file and ``""``."""
    made = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    module = getattr(made, "__module__", None) or "builtins"
    package = module.partition(".")[0]
    for plugin in plugins():
        if plugin.value.partition(":")[0].partition(".")[0] == package:
            return plugin.distribution, plugin.version
    if package == __name__.partition(".")[0]:
        return CORE, __version__
    if not is_local(package):
        with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
            return package, metadata.version(package)
    file = getattr(sys.modules.get(module), "__file__", None)
    return (Path(file).name if file else module), ""
