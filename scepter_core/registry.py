"""What can be named in a configuration: one registry for each kind of thing.

A NAME is looked up among what was registered from code, then among the installed plugins, then among what the engine
offers by itself (the optimizers of torch, for one).
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import PositiveInt

from scepter_core import discovery
from scepter_core._version import __version__
from scepter_core.config import (
    FreeSection,
    MissingKey,
    Named,
    NamedThing,
    Section,
    UnknownName,
    from_python,
    keywords,
    section_model,
    style_of,
    validate,
)
from scepter_core.config import Mapping as MappingNode
from scepter_core.config.section import keys_of
from scepter_core.discovery import Plugin, origin, source
from scepter_core.errors import ConfigError, Problem, nearest
from scepter_core.sections import (
    HookConfig,
    LoaderConfig,
    MetricKeys,
    OptimizerKeys,
    Rate,
    SchedulerKeys,
    SolverConfig,
)

__all__ = [
    "DATASETS",
    "ENGINES",
    "FIRST_PARTY",
    "HOOKS",
    "LR_SCHEDULERS",
    "METRICS",
    "MODELS",
    "OPTIMIZERS",
    "REGISTRIES",
    "SAMPLERS",
    "SOLVERS",
    "STRATEGIES",
    "Registry",
    "UnknownName",
    "origin",
    "resolve",
    "source",
]

_T = TypeVar("_T", bound=Callable[..., object])

_WORDS = {
    "solvers": "solver",
    "hooks": "hook",
    "models": "model",
    "datasets": "data set",
    "samplers": "sampler",
}
_WORDS |= {
    "optimizers": "optimizer",
    "lr_schedulers": "LR scheduler",
    "metrics": "metric",
    "engines": "engine",
    "strategies": "strategy",
}

# What to install for a name that is missing: for messages only, the core imports none of them.
FIRST_PARTY = {
    "hooks": {
        "BackwardHook": "scepter-backward",
        "CheckpointHook": "scepter-checkpoint",
        "DistSamplerHook": "scepter-sampler",
        "LogHook": "scepter-log",
        "LrHook": "scepter-lr",
        "ProbeDataHook": "scepter-probe",
        "SafetensorsHook": "scepter-safetensors",
        "TensorboardLogHook": "scepter-tensorboard",
    },
    "engines": {"lightning": "scepter-lightning"},
}


REFUSALS = (ValueError, AssertionError, FileNotFoundError, ImportError)
"""How constructors say that what they were given will not do, a file or package that is not there included."""


@dataclass(frozen=True, slots=True)
class _Registration:
    """Something registered from code."""

    thing: Callable[..., object]
    module: str
    qualname: str

    @property
    def place(self) -> str:
        return f"{self.module}.{self.qualname}"


class Registry:
    """The things of one kind that a configuration can name.

        @HOOKS.register_class()
        class GradNormHook(Hook): ...

    Args:
        kind: one of `discovery.KINDS`.
        common: the keys that the section of every such thing has beside its own.
        supplied: parameters that the engine gives when it builds one (`params` of an optimizer): no keys.
        renames: keys that are not the parameter's name in upper case, by parameter: `{"lr": "LEARNING_RATE"}`.
        annotations: types of parameters, by name, where the kind knows better than the signature.
        base: the class that they have to derive from, as `module:class`.
        provider: a function of a name that returns what the engine offers under it, or None, as `module:function`.
        provider_names: a function that lists the provider's names, as `module:function`.
    """

    def __init__(
        self,
        kind: str,
        *,
        common: type[Section] = Named,
        supplied: frozenset[str] = frozenset(),
        renames: Mapping[str, str] | None = None,
        annotations: Mapping[str, Any] | None = None,
        base: str | None = None,
        provider: str | None = None,
        provider_names: str | None = None,
    ) -> None:
        self.kind = kind
        self.word = _WORDS[kind]
        self.common = common
        self.supplied = supplied
        self.renames = dict(renames or {})
        self.annotations = dict(annotations or {})
        self._base = base
        self._provider = provider
        self._provider_names = provider_names
        self._registered: dict[str, _Registration] = {}
        discovery.when_forgotten(self._forget)

    def register_class(self, name: str | None = None) -> Callable[[_T], _T]:
        """Decorator that registers a class, under `name` or its own name.

        Registering the same class again, as a re-import does, replaces the earlier one.

        Raises:
            ConfigError: another class has the name, or this one lacks the base class that the kind asks for.
        """
        return self._decorator(name, "class", inspect.isclass)

    def register_function(self, name: str | None = None) -> Callable[[_T], _T]:
        """As `register_class`, for a function that builds and returns the thing."""
        return self._decorator(name, "function", inspect.isroutine)

    def get(self, name: str) -> Callable[..., object]:
        """The class or function of this name.

        Raises:
            ConfigError: there is none, or it cannot be used: see `lookup`.
        """
        try:
            return self.lookup(name)
        except UnknownName as error:
            raise ConfigError([Problem(error.message, hint=error.hint)]) from error.__cause__

    def lookup(self, name: str) -> Callable[..., object]:
        """As `get`, for those who know where the name is written.

        Raises:
            UnknownName: no such name; two distributions claim it; it is disabled, incompatible with this core, fails
                to import, or is not the right thing. Message and hint say which.
        """
        if name in self._registered:
            return self._registered[name].thing
        found = discovery.find(self.kind, name)
        if len(found) > 1:
            owners = " and ".join(plugin.source for plugin in found)
            raise UnknownName(
                f"the {self.word} {name} is claimed by {owners}", "uninstall or --disable-plugin one of them"
            )
        if found:
            return self._load(found[0])
        provided = self._import(self._provider)(name) if self._provider else None
        if provided is None:
            raise self._unknown(name)
        return provided  # type: ignore[no-any-return]

    def names(self) -> list[str]:
        """All names, sorted, without importing a plugin. The engine's own are among them once their module is loaded."""
        names = {*self._registered, *(plugin.name for plugin in discovery.plugins(self.kind))}
        if self._provider_names and self._provider_names.partition(":")[0] in sys.modules:
            names.update(self._import(self._provider_names)())
        return sorted(names)

    def model(self, name: str) -> type[Section]:
        """The model of the section of the thing of this name: the common keys and its own.

        Raises:
            ConfigError: as `get`.
        """
        return self._model(self.get(name))

    def validate(self, cfg: Mapping[str, Any] | Section, path: str = "") -> Section:
        """The section of a configuration given from Python, checked as one from a file is.

        Args:
            cfg: keys and values, NAME among them. A section that is validated is returned as it is.
            path: where it belongs, for messages.

        Raises:
            ConfigError: all that is wrong with it.
        """
        values = cfg if isinstance(cfg, Mapping) else _values(cfg)
        name = values.get("NAME")
        if not isinstance(name, str):
            raise ConfigError(
                [Problem("NAME says what to build", path=path, found=repr(name), expected=f"a {self.word}")]
            )
        model = self.model(name)
        if isinstance(cfg, model):
            return cfg
        problems: list[Problem] = []
        node = cast("MappingNode", from_python(dict(values), None))
        section: Section | None = validate(node, model, path=path, resolve=resolve, problems=problems)
        if section is None:
            raise ConfigError(problems)
        return section

    def build(self, cfg: Mapping[str, Any] | Section, logger: Any = None, **supplied: Any) -> Any:
        """Build the thing that a section names.

        Args:
            cfg: a validated section, or one to validate first.
            logger: given to things of the kind `cls(cfg, logger=logger)`.
            supplied: what the engine adds; a thing is given what its signature has a place for.

        Raises:
            ConfigError: the section is wrong; or the constructor refuses what it is given, by one of `REFUSALS`, or reads
                a key that is not there. What else it raises is raised with a note that names it.
        """
        section = self.validate(cfg)
        name = section.get("NAME")
        thing = self.get(name)
        arguments = _accepted(thing, supplied)
        try:
            if style_of(thing, self.common) == "keywords":
                return thing(**keywords(section), **arguments)
            return thing(section, logger=logger, **arguments)
        except REFUSALS as error:
            raise ConfigError([_refusal(section, error)]) from error
        except MissingKey as error:
            raise ConfigError([_unwritten(name, error)]) from error
        except Exception as error:
            error.add_note(f"while building {name} ({_place(thing)})")
            raise

    def origin(self, thing: object) -> str:
        """Where a class, function or instance comes from, for messages: `scepter-log 0.1.0`, or `my_task.py`."""
        return origin(thing)

    def _decorator(self, name: str | None, what: str, fits: Callable[[object], bool]) -> Callable[[_T], _T]:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the decorator is called: @{self.kind.upper()}.register_{what}()")

        def register(thing: _T) -> _T:
            if not fits(thing):
                raise TypeError(f"register_{what} takes a {what}, not {thing!r}")
            new = _Registration(thing, thing.__module__, thing.__qualname__)
            key = name or thing.__name__
            wrong = self._not_the_right_thing(thing)
            if wrong:
                raise ConfigError(f"cannot register {new.place}: {wrong}")
            old = self._registered.get(key)
            if old is not None and old.place != new.place:
                raise ConfigError(
                    f"cannot register {new.place}: the {self.word} {key} is {old.place} already"
                )
            self._registered[key] = new
            return thing

        return register

    def _forget(self, modules: set[str]) -> None:
        self._registered = {name: one for name, one in self._registered.items() if one.module not in modules}

    def _load(self, plugin: Plugin) -> Callable[..., object]:
        if not plugin.compatible:
            raise UnknownName(
                f"{plugin.name} of {plugin.source} needs {discovery.CORE}{plugin.requires_core}; this is {__version__}",
                f"install versions of {plugin.distribution} and {discovery.CORE} that fit",
            )
        try:
            thing: Any = plugin.load()
        # A plugin's import may fail in any way; the cause goes along.
        except (Exception, SystemExit) as error:
            raise UnknownName(
                f"{plugin.name} of {plugin.source} cannot be imported: {type(error).__name__}: {error}",
                f"reinstall or repair {plugin.distribution}",
            ) from error
        wrong = f"{thing!r} is nothing to call" if not callable(thing) else self._not_the_right_thing(thing)
        if wrong:
            raise UnknownName(f"{plugin.name} of {plugin.source} cannot be used: {wrong}", None)
        return thing  # type: ignore[no-any-return]

    def _not_the_right_thing(self, thing: Callable[..., object]) -> str | None:
        """What speaks against the thing's being of this kind; None if nothing does."""
        if self._base is None:
            return None
        base = self._import(self._base)
        one = f"{'an' if self.word[0] in 'aeiou' else 'a'} {self.word}"
        if not (inspect.isclass(thing) and issubclass(thing, base)):
            return f"{one} has to derive from scepter_core.{base.__name__}"
        if style_of(thing, self.common) == "keywords":
            return f"{one}'s __init__ takes (self, cfg, logger=None)"
        return None

    def _unknown(self, name: str) -> UnknownName:
        message = f"unknown {self.word} {name}"
        if discovery.find_disabled(self.kind, name):
            return UnknownName(
                f"the {self.word} {name} is disabled", "leave out its --disable-plugin, or its section"
            )
        names, first_party = self.names(), FIRST_PARTY.get(self.kind, {})
        if name in first_party:
            return UnknownName(message, f"pip install {first_party[name]}")
        near = nearest(name, [*first_party, *names])
        if near is None:
            return UnknownName(
                message, f"there are: {', '.join(names)}" if names else f"no {self.word} is installed"
            )
        missing = near in first_party and near not in names
        return UnknownName(
            message, f"did you mean {near}?" + (f" (pip install {first_party[near]})" if missing else "")
        )

    def _model(self, thing: Callable[..., object]) -> type[Section]:
        return section_model(
            thing,
            common=self.common,
            supplied=self.supplied,
            renames=self.renames,
            annotations=self.annotations,
        )

    @staticmethod
    def _import(reference: str) -> Any:
        module, _, attribute = reference.partition(":")
        return getattr(import_module(module), attribute)


def _values(section: Section) -> dict[str, Any]:
    """A section's keys and values as they would be given from Python."""
    if isinstance(section, FreeSection):
        return dict(section.items())
    return {key: section[key] for key in keys_of(type(section))}


def _accepted(thing: Callable[..., object], supplied: dict[str, Any]) -> dict[str, Any]:
    """Those of `supplied` that the thing's signature has a place for."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # a class made in C may have none
        return supplied
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return supplied
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in supplied.items() if name in names}


def _refusal(section: Section, error: BaseException) -> Problem:
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    return Problem(
        f"{section.get('NAME')} cannot be built: {str(error) or type(error).__name__}",
        path=section._path,
        mark=getattr(section._node, "mark", None),
        hint=f"raised in {frame.f_code.co_filename}, line {line} (all of the traceback: SCEPTER_TRACEBACK=1)",
    )


def _unwritten(name: str, error: MissingKey) -> Problem:
    section = error.section
    return Problem(
        f"{name} reads this key, and it is not there",
        path=f"{section._path}.{error.key}".removeprefix("."),
        mark=getattr(section._node, "mark", None),
        hint=error.hint,
    )


def _place(thing: object) -> str:
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', thing)}"


SOLVERS = Registry("solvers", common=SolverConfig, base="scepter_core.solver:BaseSolver")
HOOKS = Registry("hooks", common=HookConfig, base="scepter_core.bus:Hook")
MODELS = Registry("models")
DATASETS = Registry("datasets", common=LoaderConfig)
SAMPLERS = Registry(
    "samplers",
    supplied=frozenset({"dataset", "data_source"}),
    provider="scepter_core.data:find_sampler",
    provider_names="scepter_core.data:sampler_names",
)
OPTIMIZERS = Registry(
    "optimizers",
    common=OptimizerKeys,
    supplied=frozenset({"params"}),
    renames={"lr": "LEARNING_RATE"},
    annotations={"lr": Rate},
    provider="scepter_core.optim:find_optimizer",
    provider_names="scepter_core.optim:optimizer_names",
)
LR_SCHEDULERS = Registry(
    "lr_schedulers",
    common=SchedulerKeys,
    supplied=frozenset({"optimizer", "last_epoch"}),
    annotations={
        "T_max": PositiveInt | Literal["auto"],
        "total_steps": PositiveInt | Literal["auto"] | None,
        "total_iters": PositiveInt,
        "step_size": PositiveInt,
        "step_size_up": PositiveInt,
        "step_size_down": PositiveInt | None,
        "lr_lambda": Callable[..., Any] | list[Callable[..., Any]],
        "schedulers": Annotated[list[Section], NamedThing("lr_schedulers")],
    },
    provider="scepter_core.optim:find_scheduler",
    provider_names="scepter_core.optim:scheduler_names",
)
METRICS = Registry(
    "metrics",
    common=MetricKeys,
    provider="scepter_core.metrics:find_metric",
    provider_names="scepter_core.metrics:metric_names",
)
ENGINES = Registry("engines", base="scepter_core.solver:Engine")
STRATEGIES = Registry(
    "strategies",
    supplied=frozenset({"processes", "device"}),
    base="scepter_core.distributed:Strategy",
    provider="scepter_core.distributed:find_strategy",
    provider_names="scepter_core.distributed:strategy_names",
)

REGISTRIES: dict[str, Registry] = {
    registry.kind: registry
    for registry in (
        *(SOLVERS, HOOKS, MODELS, DATASETS, SAMPLERS, OPTIMIZERS, LR_SCHEDULERS, METRICS, ENGINES),
        STRATEGIES,
    )
}


def resolve(kind: str, name: str) -> type[Section]:
    """The model of the section of the thing that `name` names among those of `kind`.

    Raises:
        UnknownName: as `Registry.lookup`.
    """
    registry = REGISTRIES[kind]
    return registry._model(registry.lookup(name))
