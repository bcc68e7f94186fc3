"""The user's own modules, imported from files that a configuration names."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from scepter_core.errors import ConfigError


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
    try:
        file = (folder / Path(spec).expanduser()).resolve()
        if file.is_dir():
            file = file / "__init__.py"
        exists = file.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long a name, a NUL in it, a home that is nobody's
        raise ConfigError(f"no such file: {spec!r} ({error})") from error
    if not exists:
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
    kept = {path.resolve() for path in keep if "\0" not in str(path)}
    kept |= {path / "__init__.py" for path in kept if os.path.isdir(path)}  # noqa: PTH112  # no error for an odd name
    gone = {name for name, local in _locals.items() if local.file not in kept}
    for name in gone:
        del _locals[name]
    dropped = {name for name in sys.modules if any(_within(name, package) for package in gone)}
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
