"""A run's state as one dictionary of plain values and tensors, and back.

Everything in it is read by `torch.load(weights_only=True)`: no object of ours is ever pickled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from scepter_core._version import __version__
from scepter_core.checkpoints import FORMAT
from scepter_core.data import LoaderData, get_streams, set_streams
from scepter_core.errors import RunError
from scepter_core.optim import load_optimizer, load_scheduler, optimizer_state, scheduler_state
from scepter_core.registry import origin
from scepter_core.runconfig import dump_config
from scepter_core.sections import MODES
from scepter_core.solver.changes import ChangeReport
from scepter_core.solver.sharing import EpochStart

if TYPE_CHECKING:
    from scepter_core.bus import Hook
    from scepter_core.solver.base import BaseSolver

_KEYS = (
    *("model", "optimizer", "lr_scheduler", "scaler", "epoch", "iter", "total_iter", "total_updates"),
    *("position", "window", "data", "rng", "hooks", "metrics", "config"),
)
# Options of torch's optimizers that came with later versions: torch gives them a value where a saved state has none.
_LATER_OPTIONS = {"maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
_PLAIN = (type(None), bool, int, float, str, bytes, torch.Tensor)


def save_state(solver: BaseSolver) -> dict[str, Any]:
    """The whole resumable state. Tensors are the run's own, not copies: copy before the next step."""
    gather = solver.processes.gather
    # Hooks first: what one of them still has to report (an update that was left out) changes the counters.
    hooks = {
        name: {"origin": origin(hook), "state": hook.state_dict(), "ranks": gather(hook.rank_state_dict())}
        for name, hook in _keyed_hooks(solver)
    }
    solver.strategy.synchronise_buffers(solver.model)
    state: dict[str, Any] = {
        "format": FORMAT,
        "version": __version__,
        "model": solver.model.state_dict(),
        "optimizer": optimizer_state(solver.optimizer, solver._configured_options) if solver.optimizer else None,
        "lr_scheduler": scheduler_state(solver.lr_scheduler) if solver.lr_scheduler is not None else None,
        "scaler": solver.scaler.state_dict() if solver.scaler else None,
        **solver.counters.state_dict(solver.mode),
        "window": _window(solver),
        "data": _data(solver),
        "rng": {f"rank{rank}": streams for rank, streams in enumerate(gather(get_streams(solver.device)))},
        "hooks": hooks,
        "metrics": {
            "ranks": gather(_metrics(solver)),
            "epoch_outputs": {mode: dict(outputs) for mode, outputs in solver.epoch_outputs.items()},
        },
        "config": dump_config(solver.root) if solver.root is not None else "",
    }
    _refuse_objects(state, "")
    return state


def load_state(solver: BaseSolver, state: Mapping[str, Any]) -> None:
    """Put the run where `state` was saved. Either all of it is loaded, or the error comes before any of it.

    Raises:
        RunError: the state is not one of ours, or of another model or optimizer.
    """
    if not isinstance(state, Mapping) or "format" not in state:
        raise RunError("not a checkpoint of this engine: it has no `format`")
    if state["format"] != FORMAT:
        raise RunError(f"the checkpoint has format {state['format']}; this version reads format {FORMAT}")
    lacking = [name for name in _KEYS if name not in state]
    if lacking:
        raise RunError(f"the checkpoint is not whole: it has no {', '.join(lacking)}")
    try:
        _load(solver, state)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RuntimeError, OverflowError) as error:
        raise RunError(f"the checkpoint is not as this version writes it: {type(error).__name__} {error}") from error


def _load(solver: BaseSolver, state: Mapping[str, Any]) -> None:
    check_weights(solver.model, state["model"])
    _check_optimizer(solver, state)
    solver.strategy.load_weights(solver.model, state["model"])
    solver.counters.load_state_dict(state)
    solver.epoch_start = _epoch_start(solver, state)
    if not solver.has("train"):
        return  # an eval or a test of these weights: nothing of the training goes on, and its logs stay as they are
    report = ChangeReport(solver, state["config"])
    if solver.optimizer and state["optimizer"] is not None:
        notices = load_optimizer(solver.optimizer, _parts(solver, state["optimizer"]), solver._configured_options)
        report.add("SOLVER.OPTIMIZER", notices)
    if solver.lr_scheduler is not None and state["lr_scheduler"] is not None:
        report.add("SOLVER.LR_SCHEDULER", load_scheduler(solver.lr_scheduler, state["lr_scheduler"]))
    if solver.scaler and state["scaler"]:
        solver.scaler.load_state_dict(state["scaler"])
    report.add("ENV.SEED", _changed_seed(solver, state["data"]))
    report.add("SOLVER.TRAIN_DATA", _changed_length(solver, state["data"]))
    report.add("--nproc", _changed_processes(solver, state["data"]))
    _load_stream(solver, state["data"].get("streams", []))
    _load_window(solver, state["window"])
    _load_metrics(solver, state["metrics"])
    _load_hooks(solver, state["hooks"])
    streams = state["rng"].get(f"rank{solver.rank}")
    if streams is not None:
        set_streams(streams, solver.device)


def weights_for_export(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of `model.state_dict()`, each contiguous and on the CPU, of tied ones the first name only."""
    weights: dict[str, torch.Tensor] = {}
    seen: set[tuple[Any, ...]] = set()
    parameters = {name: id(parameter) for name, parameter in model.named_parameters(remove_duplicate=False)}
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            continue  # extra state: no tensor
        if value.layout is not torch.strided:
            weights[name] = value.detach().to("cpu", copy=True)
            continue
        place: tuple[Any, ...]
        if hasattr(value, "full_tensor"):  # what this process has of it may be empty, and all must gather the same ones
            place = (parameters.get(name, name),)
        else:
            kind = (value.dtype, value.is_conj(), value.is_neg())
            place = (value.device, value.data_ptr(), tuple(value.shape), value.stride(), kind)
        if value.numel() and place in seen:
            continue
        seen.add(place)
        whole = value.full_tensor() if hasattr(value, "full_tensor") else value
        weights[name] = whole.detach().to("cpu", copy=True).contiguous()
    return weights


def check_weights(model: nn.Module, weights: Mapping[str, Any]) -> None:
    """Raise RunError, naming what differs, unless `weights` are of a model with the same names and shapes."""
    own = model.state_dict()
    missing, unexpected = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [
        f"{name} is {tuple(weights[name].shape)}, the model's {tuple(value.shape)}"
        for name, value in own.items()
        if isinstance(value, torch.Tensor) and name in weights and weights[name].shape != value.shape
    ]
    parts = [
        f"{label}: {', '.join(names[:5])}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"
        for label, names in (("lacks", missing), ("has besides", unexpected), ("of another shape", shapes))
        if names
    ]
    if parts:
        raise RunError(f"the checkpoint is of another model; it {'; '.join(parts)}")


def _check_optimizer(solver: BaseSolver, state: Mapping[str, Any]) -> None:
    saved = state["optimizer"]
    if solver.optimizer is None or saved is None:
        return
    there = [len(group["params"]) for group in saved["param_groups"]]
    here = [len(group["params"]) for group in solver.optimizer.param_groups]
    if there != here:
        raise RunError(f"the checkpoint's optimizer has parameter groups of {there} parameters, this run's {here}")
    known = set(solver.optimizer.state_dict()["param_groups"][0])
    if known - set(saved["param_groups"][0]) - _LATER_OPTIONS:
        raise RunError("the checkpoint is of another kind of optimizer")
    if "fused" in solver.optimizer.defaults:
        _check_shapes(solver.optimizer, saved["state"])


def _check_shapes(optimizer: torch.optim.Optimizer, saved: Mapping[int, Mapping[str, Any]]) -> None:
    """A fused step reads and writes as many numbers as the parameter has, whatever the length of its state."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, values in saved.items():
        for name, value in values.items():
            shape = torch.Size() if name == "step" else parameters[number].shape
            if getattr(value, "shape", shape) != shape:  # a tensor, or one still to be read
                raise RunError(
                    f"the checkpoint's optimizer has {name} of shape {tuple(value.shape)} for parameter {number}, "
                    f"expected {tuple(shape)}: the model's parameters have another order or other shapes now"
                )


def _parts(solver: BaseSolver, optimizer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The optimizer's state with what this process holds of each tensor."""
    if not solver.strategy.sharded:
        return optimizer
    parameters = [parameter for group in solver.optimizer.param_groups for parameter in group["params"]]
    state = {
        number: {name: solver.strategy.part_of(value, parameters[number]) for name, value in values.items()}
        for number, values in optimizer["state"].items()
    }
    return {**optimizer, "state": state}


def _data(solver: BaseSolver) -> dict[str, Any]:
    """How far the data is read, in samples where they are counted, and what its order follows from."""
    done = solver.counters.state_dict(solver.mode)["iter"]
    return {
        "seed": solver.env.seed,
        "steps_per_epoch": solver.steps_per_epoch,
        "world_size": solver.world_size,
        "samples": solver.epoch_start.offset(solver.datas.get("train"), done),
        "streams": solver.processes.gather(_stream(solver)),
    }


def _epoch_start(solver: BaseSolver, state: Mapping[str, Any]) -> EpochStart:
    """From where on this run's batches have their size: where other ones were read before, from where it stands."""
    samples = state["data"].get("samples")
    start = EpochStart()
    if samples is None or samples == start.offset(solver.datas.get("train"), state["iter"]):
        return start
    return EpochStart(state["iter"], samples)


def _window(solver: BaseSolver) -> dict[str, Any] | None:
    if solver.counters.window == 0 or solver.window_closes:
        return None
    gradients = solver.strategy.window_gradients(solver.model)
    return {"count": solver.counters.window, "size": solver.window_size, "gradients": gradients}


def _load_window(solver: BaseSolver, window: Mapping[str, Any] | None) -> None:
    if window:
        solver.window_size = window["size"]
    solver.counters.window = window["count"] if window else 0
    for name, parameter in solver.model.named_parameters():
        gradient = window["gradients"].get(name) if window else None
        if gradient is not None:
            gradient = solver.strategy.part_of(gradient, parameter).to(parameter.device)
        parameter.grad = gradient


def _metrics(solver: BaseSolver) -> dict[str, Any]:
    """What this process has seen of the epochs that are under way."""
    return {
        "means": {mode: means.state_dict() for mode, means in solver.means.items()},
        "named": solver.metrics.state_dict() if solver.metrics else {},
    }


def _stream(solver: BaseSolver) -> dict[str, Any] | None:
    """Where the workers of a training stream stand; None between epochs, and where no stream with a state is read."""
    counters, data = solver.counters, solver.datas.get("train")
    if not (isinstance(data, LoaderData) and data.progress and (counters.in_epoch or counters.cut)):
        return None
    return data.progress.state_dict(counters.epoch, counters.state_dict(solver.mode)["iter"])


def _load_stream(solver: BaseSolver, saved: Sequence[Mapping[str, Any] | None]) -> None:
    counters, data = solver.counters, solver.datas.get("train")
    if not (isinstance(data, LoaderData) and data.progress and (counters.in_epoch or counters.cut)):
        return
    of_these = len(saved) == solver.world_size
    reason = data.progress.load_state_dict(saved[solver.rank] if of_these else None)
    if reason is not None and counters.iter["train"] > 0:
        solver.logger.warning(
            "the stream of TRAIN_DATA is read again from the front, up to batch %d: %s", counters.iter["train"], reason
        )


def _load_metrics(solver: BaseSolver, saved: Mapping[str, Any]) -> None:
    ranks = of_this_rank(saved["ranks"], solver.rank, solver.world_size)
    for mode in MODES:
        solver.means[mode].load_state_dict(*(state["means"][mode] for state in ranks))
    solver.epoch_outputs.update({mode: dict(outputs) for mode, outputs in saved["epoch_outputs"].items()})
    if solver.metrics:
        solver.metrics.load_state_dict([state["named"] for state in ranks])


def of_this_rank(states: Sequence[Any], rank: int, world_size: int) -> Sequence[Any]:
    """Of the states that the processes had: its own; where there were others, all for the first one, none for the rest."""
    if len(states) == world_size:
        return states[rank : rank + 1]
    return states if rank == 0 else []


def _changed_seed(solver: BaseSolver, saved: Mapping[str, Any]) -> list[str]:
    if saved["seed"] in (None, solver.env.seed):  # None: of a converted file, and not known
        return []
    return [f"ENV.SEED was {saved['seed']}, is now {solver.env.seed}"]


def _changed_length(solver: BaseSolver, saved: Mapping[str, Any]) -> list[str]:
    if saved["steps_per_epoch"] in (None, solver.steps_per_epoch) or _processes(saved) != solver.world_size:
        return []
    return [f"an epoch had {saved['steps_per_epoch']} training steps, and has {solver.steps_per_epoch} now"]


def _changed_processes(solver: BaseSolver, saved: Mapping[str, Any]) -> list[str]:
    before = _processes(saved)
    if before == solver.world_size:
        return []
    done = solver.counters.iter["train"]
    is_counted = None not in (saved.get("samples"), solver.epoch_start.offset(solver.datas.get("train"), done))
    goes_on = "it goes on with the next sample"
    if done and not is_counted:  # several workers of a stream, a sampler that divides by itself
        goes_on = "in this epoch some samples can be read twice and others not at all"
    return [f"the run had {before} {'process' if before == 1 else 'processes'}, and has {solver.world_size} now: {goes_on}"]


def _processes(saved: Mapping[str, Any]) -> int:
    return int(saved.get("world_size", 1))


def _keyed_hooks(solver: BaseSolver) -> Iterator[tuple[str, Hook]]:
    """Every hook with the name its state is kept under: mode/NAME, with its own key or ordinal where it has one."""
    for mode in MODES:
        seen: dict[str, int] = {}
        for hook in solver.hooks_dict[mode]:
            name = f"{mode}/{type(hook).__name__}" + (f":{hook.state_key}" if hook.state_key else "")
            seen[name] = seen.get(name, 0) + 1
            yield (name if seen[name] == 1 else f"{name}#{seen[name]}"), hook


def _say_it_is_gone(solver: BaseSolver, name: str, entry: Mapping[str, Any]) -> None:
    if entry["state"] or any(entry.get("ranks", [])):
        solver.logger.warning("the checkpoint has state of %s (%s), which is not listed", name, entry["origin"])
    else:
        solver.logger.info("the checkpoint is of a run with %s (%s), which is not listed", name, entry["origin"])


def _load_hooks(solver: BaseSolver, saved: Mapping[str, Any]) -> None:
    hooks = dict(_keyed_hooks(solver))
    for name, entry in saved.items():
        if name not in hooks:
            _say_it_is_gone(solver, name, entry)
            continue
        if entry["state"]:
            hooks[name].load_state_dict(entry["state"])
        if any(ranks := entry.get("ranks", [])):
            hooks[name].load_rank_state_dicts(list(of_this_rank(ranks, solver.rank, solver.world_size)))
    lacking = [name for name in hooks if name not in saved]
    if lacking:
        begin = "it begins" if len(lacking) == 1 else "they begin"
        solver.logger.warning("the checkpoint has no state of %s: %s anew", ", ".join(lacking), begin)


def _refuse_objects(value: Any, path: str) -> None:
    if isinstance(value, _PLAIN):
        return
    if isinstance(value, Mapping):
        for name, entry in value.items():
            _refuse_objects(name, path)
            _refuse_objects(entry, f"{path}.{name}" if path else str(name))
    elif type(value) in (list, tuple, torch.Size):
        for number, entry in enumerate(value):
            _refuse_objects(entry, f"{path}[{number}]")
    elif not isinstance(value, torch.dtype):
        raise RunError(
            f"the state {path} is a {type(value).__module__}.{type(value).__qualname__}: a checkpoint holds numbers, "
            "text, tensors, and lists and dicts of them, so that reading one runs no code"
        )
