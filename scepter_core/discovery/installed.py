"""The installed plugins, read from package metadata alone.

Nothing here imports a plugin until one is asked for by name, so that a broken plugin never disturbs a run that does
not use it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from scepter_core._version import __version__
from scepter_core.errors import ConfigError, did_you_mean

CORE = "scepter-core"
KINDS = (
    "hooks",
    "solvers",
    "models",
    "datasets",
    "samplers",
    "optimizers",
    "lr_schedulers",
    "metrics",
    "engines",
    "strategies",
)
GROUPS = {kind: f"scepter.{kind}" for kind in KINDS}
_KIND_OF_GROUP = {group: kind for kind, group in GROUPS.items()}

_installed: list[Plugin] | None = None
_disabled: set[str] = set()


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point of an installed distribution.

    Attributes:
        kind: what it is: one of `KINDS`.
        name: the NAME by which a configuration names it.
        value: where it is, `module:attribute`.
        distribution: the distribution that brings it.
        version: that distribution's version.
        requires_core: what the distribution asks of the core, `>=0.1,<0.2`; None when it asks nothing.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str
    requires_core: str | None = None

    @property
    def compatible(self) -> bool:
        """Whether the distribution accepts this version of the core; of a development version, the base version."""
        base = Version(__version__).base_version
        return self.requires_core is None or SpecifierSet(self.requires_core).contains(base, prereleases=True)

    @property
    def source(self) -> str:
        """Distribution and version, for messages: `scepter-log 0.1.0`."""
        return f"{self.distribution} {self.version}".rstrip()

    def load(self) -> object:
        """Import the object. Whatever its module raises is raised."""
        return importlib.metadata.EntryPoint(self.name, self.value, GROUPS[self.kind]).load()


def plugins(kind: str | None = None) -> list[Plugin]:
    """The installed plugins that are not disabled, ordered by kind, name and distribution; read once a process."""
    return [plugin for plugin in _all_plugins() if kind in (None, plugin.kind) and not is_disabled(plugin)]


def find(kind: str, name: str) -> list[Plugin]:
    """The enabled plugins of this kind and name: more than one when several distributions claim the name."""
    return [plugin for plugin in plugins(kind) if plugin.name == name]


def find_disabled(kind: str, name: str) -> list[Plugin]:
    """The plugins of this kind and name that `disable` took out."""
    return [p for p in _all_plugins() if (p.kind, p.name) == (kind, name) and is_disabled(p)]


def is_disabled(plugin: Plugin) -> bool:
    """Whether `disable` took this plugin out, by its own name or its distribution's."""
    return plugin.name in _disabled or canonicalize_name(plugin.distribution) in _disabled


def disable(names: Iterable[str]) -> None:
    """Take plugins out, for the rest of the process, as if they were not installed.

    Args:
        names: entry-point names (`LogHook`) or distribution names (`scepter-log`).

    Raises:
        ConfigError: a name that is neither.
    """
    names = list(names)
    known = {plugin.name for plugin in _all_plugins()}
    distributions = {canonicalize_name(plugin.distribution) for plugin in _all_plugins()}
    for name in names:
        if name in known:
            _disabled.add(name)
        elif canonicalize_name(name) in distributions:
            _disabled.add(canonicalize_name(name))
        else:
            hint = did_you_mean(name, known | distributions)
            raise ConfigError(
                f"no plugin or distribution {name!r} to disable" + (f"; {hint}" if hint else "")
            )


def reset() -> None:
    """Forget what was read and what was disabled, so that the next look reads the metadata anew."""
    global _installed
    _installed = None
    _disabled.clear()
    importlib.invalidate_caches()


def _all_plugins() -> list[Plugin]:
    global _installed
    if _installed is None:
        found: dict[tuple[str, str, str], Plugin] = {}
        for name in _distributions_with_plugins():
            for plugin in _plugins_of(importlib.metadata.distribution(name)):
                found.setdefault((plugin.kind, plugin.name, canonicalize_name(plugin.distribution)), plugin)
        _installed = [found[key] for key in sorted(found)]
    return _installed


def _distributions_with_plugins() -> list[str]:
    """Names of the distributions with an entry point of ours, each once, however many copies are on the path."""
    names = set()
    for distribution in importlib.metadata.distributions():
        if _entry_points(distribution):
            name = distribution.metadata["Name"]
            if name:  # a half-removed installation has a folder without METADATA
                names.add(canonicalize_name(name))
    return sorted(names)


def _entry_points(distribution: importlib.metadata.Distribution) -> list[importlib.metadata.EntryPoint]:
    """Its entry points in our groups. A file that cannot be parsed counts as none: it may be anybody's."""
    try:
        return [point for point in distribution.entry_points if point.group in _KIND_OF_GROUP]
    except (OSError, TypeError, ValueError):
        return []


def _plugins_of(distribution: importlib.metadata.Distribution) -> list[Plugin]:
    requires = _requires_core(distribution.requires or [])
    name, version = distribution.metadata["Name"] or "", distribution.metadata["Version"] or ""
    return [
        Plugin(_KIND_OF_GROUP[point.group], point.name, point.value, name, version, requires)
        for point in _entry_points(distribution)
    ]


def _requires_core(requirements: Iterable[str]) -> str | None:
    """The version specifier of those requirements on the core that hold here and belong to no extra."""
    specifiers = []
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if canonicalize_name(requirement.name) == CORE and (
            requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ):
            specifiers.append(str(requirement.specifier))
    return ",".join(filter(None, specifiers)) or None
