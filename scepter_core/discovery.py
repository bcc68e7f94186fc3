"""What is installed, read from package metadata alone, and the user's own modules.

Nothing here imports a plugin until one is asked for by name, so that a broken plugin never disturbs a run that does
not use it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

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
    return ",".join(filter(None, specifiers)) if specifiers else None


# --- modules of the user -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Local:
    """A module imported from a file by its path."""

    module: ModuleType
    file: Path
    stamp: tuple[int, int]


_locals: dict[str, _Local] = {}
_added_folders: list[Path] = []
_listeners: list[Callable[[set[str]], None]] = []


def when_forgotten(listener: Callable[[set[str]], None]) -> None:
    """Have `listener` called with the names of modules that were dropped or failed to import."""
    _listeners.append(listener)


def import_local(spec: str, folder: Path) -> ModuleType:
    """Import a module of the user, whose decorators register things.

    Args:
        spec: a file, `./my_task.py` (a package's folder will do), relative to `folder`; or a module, `some.module`.
        folder: where relative paths start. The file's own folder is put on `sys.path`, so that its neighbours, and
            worker processes, can be imported by name.

    Returns:
        The module; for a file, under its name without `.py`. A file that did not change is imported once.

    Raises:
        ConfigError: it is missing, its name hides another module, or importing it failed. The text has the cause and
            the line in the user's file.
    """
    if not (spec.endswith(".py") or "/" in spec or "\\" in spec or spec in (".", "..")):
        return _import_module(spec, folder)
    file = (folder / Path(spec).expanduser()).resolve()
    if file.is_dir():
        file = file / "__init__.py"
    if not file.is_file():
        raise ConfigError(f"no such file: {file} (for {spec})")
    return _import_file(file, spec)


def is_local(name: str) -> bool:
    """Whether `import_local` imported a module of this name from a file."""
    return name in _locals


def forget_local(keep: Collection[Path]) -> None:
    """Drop modules that earlier calls of `import_local` imported from files.

    With a folder that nothing kept lives in, the modules imported from beside the file go too, and its entry in
    `sys.path`.

    Args:
        keep: the files (or package folders) that stay.
    """
    kept = {path.resolve() for path in keep}
    kept |= {path / "__init__.py" for path in kept if path.is_dir()}
    dropped = {name for name, local in _locals.items() if local.file not in kept}
    for name in dropped:
        del _locals[name]
    in_use = {_import_folder(local.file) for local in _locals.values()}
    for folder in [folder for folder in _added_folders if folder not in in_use]:
        _added_folders.remove(folder)
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        dropped |= {name for name, module in list(sys.modules.items()) if _lives_in(name, module, folder)}
    _drop(dropped)


def _import_module(name: str, folder: Path) -> ModuleType:
    before = set(sys.modules)
    try:
        return importlib.import_module(name)
    # Whatever a user's module raises is its failure, not ours.
    except (Exception, SystemExit) as error:
        _drop({added for added in set(sys.modules) - before if _within(added, name)})
        hint = ""
        if isinstance(error, ModuleNotFoundError) and _within(name, error.name or ""):
            beside = folder / f"{name.replace('.', '/')}.py"
            hint = f"; to import the file, write ./{beside.relative_to(folder)}" if beside.is_file() else ""
        raise ConfigError(f"cannot import {name}: {_cause(error, None)}{hint}") from error


def _import_file(file: Path, spec: str) -> ModuleType:
    name = file.parent.name if file.name == "__init__.py" else file.stem
    stamp = (file.stat().st_mtime_ns, file.stat().st_size)
    known = _locals.get(name)
    if (
        known is not None
        and known.file == file
        and known.stamp == stamp
        and sys.modules.get(name) is known.module
    ):
        return known.module
    if known is None and (running := _already_imported(name, file, spec)) is not None:
        return running
    _drop({other for other in [*sys.modules, name] if _within(other, name)} if known is not None else set())
    _locals.pop(name, None)
    _put_on_path(_import_folder(file))
    try:
        module = importlib.import_module(name)
    # Whatever a user's module raises is its failure, not ours.
    except (Exception, SystemExit) as error:
        _drop({other for other in [*sys.modules, name] if _within(other, name)})
        raise ConfigError(f"cannot import {spec}: {_cause(error, file)}") from error
    if Path(str(module.__file__)).resolve() != file:
        _drop({other for other in [*sys.modules] if _within(other, name)})
        raise ConfigError(f"cannot import {spec}: {module.__file__} has the same name; rename {file}")
    _locals[name] = _Local(module, file, stamp)
    return module


def _already_imported(name: str, file: Path, spec: str) -> ModuleType | None:
    """The module of this very file, when something else imported it or it is the program itself.

    Raises:
        ConfigError: the name is no module's, or another module's, which the file would hide.
    """
    if "." in name:
        raise ConfigError(f"cannot import {spec}: a module's file name has one dot, before py; rename {file}")
    for candidate in (name, "__main__"):
        module = sys.modules.get(candidate)
        where = getattr(module, "__file__", None)
        if module is not None and where and Path(where).resolve() == file:
            return module
    if name in sys.modules or name in sys.stdlib_module_names:
        raise ConfigError(f"cannot import {spec}: its name hides the module {name!r}; rename {file}")
    return None


def _import_folder(file: Path) -> Path:
    """The folder from which the file is importable by name."""
    return file.parent.parent if file.name == "__init__.py" else file.parent


def _put_on_path(folder: Path) -> None:
    """Make `folder` the first on sys.path: of two files with one name, the import takes the one asked for."""
    if str(folder) not in sys.path:
        _added_folders.append(folder)
    elif sys.path[0] != str(folder):
        sys.path.remove(str(folder))
    if sys.path[:1] != [str(folder)]:
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _lives_in(name: str, module: ModuleType, folder: Path) -> bool:
    """Whether the module, or the package it belongs to, lies directly in `folder`."""
    top = sys.modules.get(name.partition(".")[0], module)
    where = getattr(top, "__file__", None)
    return bool(where) and name != "__main__" and _import_folder(Path(str(where)).resolve()) == folder


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _drop(names: set[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)
    if names:
        for listener in _listeners:
            listener(names)


def _cause(error: BaseException, file: Path | None) -> str:
    """Type and text of an import's failure, with the innermost line of the user's file that it came through."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    if file is None:
        return text
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(file) else None
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(file):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return f"{text} ({file}:{line})" if line is not None else f"{text} ({file})"
