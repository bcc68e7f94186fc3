"""The whole configuration of a run: ENV, SOLVER and the modules to import; read, validated, written back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from collections.abc import Mapping as AbstractMapping
from collections.abc import Sequence as AbstractSequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from scepter_core import discovery, registry
from scepter_core.config.compose import compose, finish
from scepter_core.config.dump import dump, verbatim
from scepter_core.config.nodes import Entry, Mapping, Node, Scalar, Sequence, source_text
from scepter_core.config.nodes import from_python as node_from_python
from scepter_core.config.paths import Key, PathError, find_item, find_key, parse_path
from scepter_core.config.section import NamedThing, Section, UnknownName, keys_of, sections
from scepter_core.config.validate import validate
from scepter_core.errors import ConfigError, Mark, Problem


class EnvConfig(Section):
    """The keys of ENV: the process that the run lives in."""

    taken_with_notice = MappingProxyType(
        {
            "TENSOR_PARALLEL_SIZE": "models are not split that way; STRATEGY says how they spread",
            "PIPELINE_PARALLEL_SIZE": "models are not split that way; STRATEGY says how they spread",
            "SYS_ENVS": "set environment variables where the command is started, before torch reads them",
        }
    )

    seed: int = Field(0, ge=0, description="Everything random in the run follows from it.")
    backend: Literal["auto", "gloo", "nccl"] = Field(
        "auto", description="How processes talk, when there are several."
    )
    strategy: Annotated[Section | None, NamedThing("strategies", short=True)] = Field(
        None, description="How the model spreads over processes: auto, single, ddp, fsdp, or a section."
    )
    timeout: float = Field(
        600.0, gt=0, allow_inf_nan=False, description="Seconds that a process waits for the others before the run ends."
    )
    heartbeat_timeout: float = Field(
        25.0, ge=5, allow_inf_nan=False, description="Seconds without a sign of a process's machine before it counts as lost."
    )
    device: str = Field("auto", description="cpu, cuda, cuda:1, mps, or auto: the best there is.")
    deterministic: bool = Field(False, description="Use deterministic algorithms only.")
    cudnn_deterministic: bool | None = Field(None, description="cuDNN's own switch. Default: DETERMINISTIC.")
    cudnn_benchmark: bool | None = Field(None, description="Let cuDNN try its algorithms. Default: torch's.")
    sync_bn: bool = Field(False, description="Batch norm over all processes.")
    compile: bool = Field(False, description="Run the model through torch.compile.")
    use_pl: bool = Field(False, description="Train inside lightning's Trainer; needs scepter-lightning.")

    @field_validator("device")
    @classmethod
    def _is_device(cls, device: str) -> str:
        kind, colon, index = device.partition(":")
        numbered = kind == "cuda" and index.isascii() and index.isdigit()
        if kind not in ("auto", "cpu", "cuda", "mps") or (colon and not numbered):
            raise ValueError("must be cpu, cuda, cuda:N, mps or auto")
        return device

    @field_validator("use_pl")
    @classmethod
    def _has_engine(cls, use_pl: bool) -> bool:
        if use_pl and "lightning" not in registry.ENGINES.names():
            package = registry.FIRST_PARTY["engines"]["lightning"]
            raise ValueError(
                f"needs an engine plugin named lightning, and none is installed (pip install {package})"
            )
        if use_pl:
            try:
                registry.ENGINES.lookup("lightning")
            except UnknownName as error:
                raise ValueError("; ".join(filter(None, (error.message, error.hint)))) from error
        return use_pl


class RunConfig(Section):
    """A whole configuration: `cfg.SOLVER`, `cfg.ENV`, `cfg.PLUGINS`, `cfg.META`."""

    plugins: list[str] = Field([], description="Local modules and files to import first.")
    env: EnvConfig = Field(default_factory=EnvConfig, description="The process environment.")
    solver: Annotated[Section, NamedThing("solvers")] = Field(
        description="The solver and all that it builds."
    )
    meta: Any = Field(None, description="Notes of any form; kept, not read.")


@contextmanager
def located(config: RunConfig) -> Iterator[None]:
    """Inside, what turns out to be wrong with a key is raised with the place where that is written."""
    try:
        yield
    except ConfigError as error:
        error.locate(lambda problem: _place(config, problem))
        raise


def _place(config: RunConfig, problem: Problem) -> Mark | None:
    """Where the key of a problem stands, or the section that lacks it; None where another value than that was found."""
    node = config._node
    with suppress(PathError):
        for step in parse_path(problem.path):
            if isinstance(step, Key):
                node = find_key(node, step.key)
            else:
                items, place = find_item(node, step)
                node = items[place]
    if isinstance(node, Scalar) and problem.found not in (None, node.text, source_text(node)):
        return None  # an option of the command went over it
    return node.mark if node is not config._node else None


def load_config(
    path: str | os.PathLike[str] | AbstractMapping[str, Any],
    overrides: AbstractSequence[str] = (),
    plugins: AbstractSequence[str] = (),
) -> RunConfig:
    """Read and validate a configuration.

    Args:
        path: the YAML file; or what would stand in it, as a dict.
        overrides: `A.B=value` texts, as on the command line; relative code paths in them start at the current
            folder.
        plugins: modules or files to import beside those of PLUGINS; relative to the current folder.

    Raises:
        ConfigError: with every problem of the phase that failed: reading, references and overrides, plugins,
            sections, and what the hooks find wrong between sections.
    """
    if isinstance(path, AbstractMapping):
        return from_python(path, overrides, plugins)
    return _load(compose(path, overrides, now=datetime.now()), plugins)


def from_python(
    config: AbstractMapping[str, Any],
    overrides: AbstractSequence[str] = (),
    plugins: AbstractSequence[str] = (),
) -> RunConfig:
    """Validate a configuration given as a dict of the shape of a YAML file; else as `load_config`."""
    root = node_from_python(dict(config))
    if not isinstance(root, Mapping):
        raise ConfigError("a configuration is a mapping")
    return _load(finish(root, overrides, now=datetime.now()), plugins)


def dump_config(config: RunConfig) -> str:
    """The resolved configuration as YAML: defaults filled in, code paths absolute, references as written.

    Reading it gives an equal configuration. A key whose default follows another key stays empty.
    """
    items = [_plugin_text(config, place, plugin) for place, plugin in enumerate(config.plugins)]
    return dump(config, {"PLUGINS": items} if items else {})


# --- loading ------------------------------------------------------------------------------------


def _load(root: Mapping, plugins: AbstractSequence[str]) -> RunConfig:
    problems: list[Problem] = []
    _import_plugins(root, plugins, problems)
    if problems:
        raise ConfigError(problems)
    config = validate(root, RunConfig, path="", resolve=registry.resolve, problems=problems)
    if config is not None:
        for section in sections(config):
            section._root = config
        problems += _hook_problems(config)
    if problems or config is None:
        raise ConfigError(sorted(problems, key=_position))
    return config  # type: ignore[no-any-return]  # validate makes what it is given


def _position(problem: Problem) -> tuple[bool, int, int]:
    """Sorts problems as a reader of the file meets them, those of overrides last."""
    mark = problem.mark
    return (True, 0, 0) if mark is None or not mark.line else (False, mark.line, mark.column)


def _import_plugins(root: Mapping, plugins: AbstractSequence[str], problems: list[Problem]) -> None:
    """Import what PLUGINS and the caller name, and make the tree's PLUGINS say so with absolute paths."""
    entry = root.entries.get("PLUGINS")
    if entry is not None and not isinstance(entry.node, Sequence) and not _is_null(entry.node):
        return  # no list: validation says so
    written = list(entry.node.items) if entry is not None and isinstance(entry.node, Sequence) else []
    if any(not isinstance(item, Scalar) or item.is_null for item in written):
        return
    scalars = [item for item in written if isinstance(item, Scalar)]
    here = [Scalar(None, str(plugin), plain=False, value=str(plugin)) for plugin in plugins]
    resolved: dict[str, Scalar] = {}
    for scalar in (*scalars, *here):
        text = absolute_plugin(scalar.text, folder_of(scalar.mark))
        resolved.setdefault(text, Scalar(scalar.mark, text, plain=False, value=text, raw=_raw_plugin(scalar)))
    discovery.forget_local([Path(text) for text in resolved if os.path.isabs(text)])  # noqa: PTH117
    for place, (text, scalar) in enumerate(resolved.items()):
        try:
            discovery.import_local(text, folder_of(scalar.mark))
        except ConfigError as error:
            path = f"PLUGINS[{place}]" if scalar.mark else ""
            problems += [
                Problem(p.message, path, scalar.mark, p.found, p.expected, p.hint) for p in error.problems
            ]
    if resolved:
        key_mark, mark = (entry.key_mark, entry.node.mark) if entry else (root.mark, root.mark)
        root.entries["PLUGINS"] = Entry(key_mark, Sequence(mark, list(resolved.values())))


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_null


def folder_of(mark: Mark | None) -> Path:
    """The folder that relative code paths written at `mark` start from: the file's, else the current one."""
    if mark is None or not mark.line:
        return Path.cwd()
    return Path(os.path.abspath(os.path.dirname(mark.file)))  # noqa: PTH100, PTH120


def is_path(plugin: str) -> bool:
    """Whether an entry of PLUGINS is a file, and not a module's name."""
    return plugin.endswith(".py") or "/" in plugin or "\\" in plugin or plugin in (".", "..")


def absolute_plugin(plugin: str, folder: Path) -> str:
    """The entry with its path absolute; a module's name as it is."""
    if not is_path(plugin) or "\0" in plugin:
        return plugin
    return os.path.abspath(os.path.join(folder, os.path.expanduser(plugin)))  # noqa: PTH100, PTH111, PTH118


def _raw_plugin(scalar: Scalar) -> str | None:
    """The entry's source with its references, made absolute where it is a relative path."""
    is_absolute = os.path.isabs(os.path.expanduser(scalar.text))  # noqa: PTH111, PTH117
    if scalar.raw is None or not is_path(scalar.text) or is_absolute:
        return scalar.raw
    return f"{str(folder_of(scalar.mark)).replace('${', '$${')}/{scalar.raw}"


def _plugin_text(config: RunConfig, place: int, plugin: str) -> Any:
    node = config._node.get("PLUGINS") if isinstance(config._node, Mapping) else None
    item = node.items[place] if isinstance(node, Sequence) and place < len(node.items) else None
    if isinstance(item, Scalar) and item.raw is not None and item.text == plugin:
        return verbatim(item)
    return absolute_plugin(plugin, Path.cwd())


# --- across sections ----------------------------------------------------------------------------


def _hook_problems(config: RunConfig) -> list[Problem]:
    """What hooks find wrong between their section and the rest, and roles that are taken twice."""
    problems: list[Problem] = []
    for key, hooks in _hook_lists(config.solver):
        by_role: dict[str, str] = {}
        for place, section in enumerate(hooks):
            path = f"SOLVER.{key}[{place}]"
            hook = registry.HOOKS.get(section["NAME"])
            role = getattr(hook, "role", None)
            if role is not None and role in by_role:
                message = f"a second hook of the role {role!r}, which {by_role[role]} has already"
                problems.append(
                    _at(section, "NAME", path, message, "of each role a mode has one hook at most")
                )
            elif role is not None:
                by_role[role] = f"{path} ({section['NAME']})"
            check = getattr(hook, "check", None)
            if check is not None:
                problems += [
                    _at(section, name, path, message) for name, message in check(section, config) or ()
                ]
    return problems


def _hook_lists(solver: Section) -> Iterator[tuple[str, list[Section]]]:
    fields = type(solver).__pydantic_fields__
    for key, name in keys_of(type(solver)).items():
        if NamedThing("hooks") in fields[name].metadata:
            yield key, getattr(solver, name) or []


def _at(section: Section, key: str, path: str, message: str, hint: str | None = None) -> Problem:
    """A problem of a validated section, at the key where that was written, else at the section."""
    node = section._node
    below = node.get(key) if isinstance(node, Mapping) else None
    where = below or node
    found = source_text(below) if below is not None else None
    return Problem(message, f"{path}.{key}" if key else path, where.mark if where else None, found, hint=hint)


__all__ = [
    "EnvConfig",
    "RunConfig",
    "UnknownName",
    "absolute_plugin",
    "dump_config",
    "folder_of",
    "from_python",
    "is_path",
    "load_config",
    "located",
]
