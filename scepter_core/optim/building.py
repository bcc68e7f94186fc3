"""From the sections OPTIMIZER and LR_SCHEDULER to torch objects over a model's parameters."""

from __future__ import annotations

import fnmatch
import inspect
import warnings
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from scepter_core.config import keywords
from scepter_core.config.section import keys_of
from scepter_core.errors import ConfigError, Problem
from scepter_core.registry import LR_SCHEDULERS, OPTIMIZERS
from scepter_core.sections import OptimizerKeys, ParamGroupConfig, SchedulerKeys

_PATH = "SOLVER.OPTIMIZER"
_KEYS = {"lr": "LEARNING_RATE"}  # other keys are the parameter in upper case
# What torch has for tensors that are spread over processes: a fused form of these only, and these not at all.
_FUSED_OVER_PARTS, _NOT_OVER_PARTS = ("Adam", "AdamW"), ("Adafactor", "Rprop")


def build_optimizer(section: OptimizerKeys, model: nn.Module) -> Optimizer:
    """The optimizer that `section` names, over the parameters of `model` that take a gradient.

    Parameter groups: group 0 holds what no entry of PARAM_GROUPS takes (left out when empty), then one group an entry.

    Raises:
        ConfigError: no parameters at all, an entry that fits none or has a key that the optimizer lacks, or a value
            that it refuses.
    """
    groups = _group_parameters(section, model)
    if _has_parts(model):
        _refuse_for_parts(section)
    arguments = keywords(section)
    arguments.pop("param_groups", None)
    fused = arguments.pop("fused", None) if section.fused == "auto" else section.fused
    if fused == "auto" and _may_fuse(section, arguments, model):
        try:
            return _construct(section, groups, arguments | {"fused": True})
        except ConfigError as error:
            if not isinstance(error.__cause__, RuntimeError):
                raise
            # The class has a fused form, and not for these parameters.
    if fused not in (None, "auto"):
        arguments["fused"] = fused
    return _construct(section, groups, arguments)


def _construct(section: OptimizerKeys, groups: list[dict[str, Any]], arguments: dict[str, Any]) -> Optimizer:
    kind: Any = OPTIMIZERS.get(section.name)
    entries = groups[len(groups) - len(section.param_groups) :]
    for number, entry in enumerate(entries):  # torch looks at the value of an option only where it is the default
        options = {name: value for name, value in entry.items() if name != "params"}
        _accepted(kind, f"{_PATH}.PARAM_GROUPS[{number}]", _fresh(groups), **arguments | options)
    return _accepted(kind, _PATH, _fresh(groups), **arguments)  # type: ignore[no-any-return]


def _fresh(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [dict(group) for group in groups]  # the constructor writes its defaults into them


def _may_fuse(section: OptimizerKeys, arguments: dict[str, Any], model: nn.Module) -> bool:
    if "FUSED" not in getattr(type(section), "__scepter_keywords__", {}):
        return False
    if _has_parts(model) and section.name not in _FUSED_OVER_PARTS:
        return False
    sparse = any(getattr(module, "sparse", False) for module in model.modules())
    return not (sparse or arguments.get("foreach") or arguments.get("differentiable"))


def _has_parts(model: nn.Module) -> bool:
    """Whether other processes hold parts of the parameters."""
    return any(hasattr(parameter, "full_tensor") for parameter in model.parameters())


def _refuse_for_parts(section: OptimizerKeys) -> None:
    if section.name in _NOT_OVER_PARTS:
        key, found, expected = "NAME", section.name, "another optimizer, or ENV.STRATEGY: ddp"
    elif section.fused is True and section.name not in _FUSED_OVER_PARTS:
        key, found, expected = "FUSED", "true", f"auto or false; or one of {', '.join(_FUSED_OVER_PARTS)}"
    else:
        return
    what = f"torch has no such {section.name} for parameters that are divided among processes"
    raise ConfigError([Problem(what, path=f"{_PATH}.{key}", found=found, expected=expected)])


def _group_parameters(section: OptimizerKeys, model: nn.Module) -> list[dict[str, Any]]:
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not named:
        raise ConfigError(
            [Problem("the model has no parameter that takes a gradient", path=_PATH)]
        )
    problems: list[Problem] = []
    groups: list[dict[str, Any]] = []
    left = dict(named)
    for number, entry in enumerate(section.param_groups):
        patterns = [entry.pattern] if isinstance(entry.pattern, str) else entry.pattern
        taken = [name for name in left if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        if not taken:
            problems.append(
                Problem(
                    "no parameter is left that fits",
                    path=f"SOLVER.OPTIMIZER.PARAM_GROUPS[{number}].PATTERN",
                    found=", ".join(patterns),
                    expected="a shell pattern of names such as " + ", ".join(list(left or named)[:5]),
                )
            )
        groups.append({"params": [left.pop(name) for name in taken], **_options(section, number, entry, problems)})
    if problems:
        raise ConfigError(problems)
    return [{"params": list(left.values())}, *groups] if left else groups


def _options(section: OptimizerKeys, number: int, entry: ParamGroupConfig, problems: list[Problem]) -> dict[str, Any]:
    """The options of the optimizer that an entry of PARAM_GROUPS has of its own, typed as the optimizer's are."""
    ours = {key: section[key] for key, field in keys_of(type(section)).items() if field in section.model_fields_set}
    own = {"LEARNING_RATE": entry.learning_rate, **(entry.model_extra or {})}
    given = {key: value for key, value in own.items() if value is not None}
    together = {**ours, **given, "NAME": section.name, "PARAM_GROUPS": []}
    try:
        checked = OPTIMIZERS.validate(together, path=f"{_PATH}.PARAM_GROUPS[{number}]")
    except ConfigError as error:
        problems.extend(error.problems)
        return {}
    return {name: value for name, value in keywords(checked).items() if _KEYS.get(name, name.upper()) in given}


def build_scheduler(section: SchedulerKeys, optimizer: Optimizer, *, planned_updates: int) -> LRScheduler:
    """The scheduler that `section` names, over `optimizer`; those of SCHEDULERS, where it is made of others, too.

    `auto` for T_MAX or TOTAL_STEPS, given or as the default, and a OneCycleLR without any total, mean the length of the
    run; of the stretch between its milestones, for a part of a SequentialLR.

    Args:
        planned_updates: updates of the whole run, -1 where nobody knows.

    Raises:
        ConfigError: the length of the run is asked for and not known, or the class refuses a value.
    """
    length = planned_updates if section.unit == "update" else -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's advice on call order is for those who call step()
        return _build_scheduler(section, optimizer, length, "SOLVER.LR_SCHEDULER")


def _build_scheduler(section: SchedulerKeys, optimizer: Optimizer, length: int, path: str) -> LRScheduler:
    arguments = keywords(section)
    kind: Any = LR_SCHEDULERS.get(section.name)
    for name in _automatic(section, kind, arguments):
        if length < 1:
            raise ConfigError(
                [
                    Problem(
                        "the length of the run is not known in the scheduler's unit",
                        path=f"{path}.{name.upper()}",
                        expected="UNIT: update, and MAX_STEPS or a loader with a length; or a number here",
                    )
                ]
            )
        arguments[name] = length
    if "schedulers" in arguments:
        stretches = _stretches(arguments.get("milestones"), length, len(arguments["schedulers"]))
        arguments["schedulers"] = [
            _build_scheduler(part, optimizer, stretch, f"{path}.SCHEDULERS[{place}]")
            for place, (part, stretch) in enumerate(zip(arguments["schedulers"], stretches, strict=True))
        ]
    scheduler: LRScheduler = _accepted(kind, path, optimizer=optimizer, **arguments)
    return scheduler


def _automatic(section: SchedulerKeys, kind: Any, arguments: dict[str, Any]) -> list[str]:
    """The arguments that are the length of the run."""
    parameters = inspect.signature(kind).parameters.values()
    defaults = {parameter.name: "auto" for parameter in parameters if parameter.default == "auto"}
    found = [name for name, value in {**defaults, **arguments}.items() if value == "auto"]
    if section.name == "OneCycleLR" and not any(arguments.get(name) for name in ("total_steps", "epochs")):
        found.append("total_steps")
    return list(dict.fromkeys(found))


def _stretches(milestones: list[int] | None, length: int, parts: int) -> list[int]:
    """How long each part of a composed scheduler is in force; -1 where nobody knows."""
    if milestones is None:  # all at once
        return [length] * parts
    ends = [*milestones, length]
    return [end - begin if end > 0 else -1 for begin, end in zip([0, *milestones], ends, strict=True)]


def _accepted(kind: Any, path: str, *args: Any, **arguments: Any) -> Any:
    """What `kind` makes of the arguments; a value that it refuses is the configuration's error."""
    try:
        return kind(*args, **arguments)
    except (ValueError, RuntimeError) as error:
        raise ConfigError([Problem(f"{kind.__name__} refuses a value: {error}", path=path)]) from error
