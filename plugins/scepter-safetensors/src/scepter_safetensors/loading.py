"""From a file that SafetensorsHook wrote back into a model."""

from __future__ import annotations

from os import PathLike

import torch
from safetensors import safe_open
from torch import Tensor, nn

from scepter_core import RunError
from scepter_safetensors.tensors import Place, place_of


def load_into(model: nn.Module, path: str | PathLike[str]) -> dict[str, str]:
    """Load the weights of the file `path` into `model`, strictly; tied weights stay tied.

    A file has tied weights once: the other names are filled from the one that is there. Every tensor of the model
    must be in the file and the other way round, of the same shape. State that is no tensor (`get_extra_state`) is not
    in such files; the model keeps its own.

    Args:
        model: of the class and sizes that were saved, on any device; of any dtype, values are converted.
        path: a local file.

    Returns:
        the file's metadata: `format`, `step`, `epoch`, as text.

    Raises:
        RunError: the file is missing, damaged or none, or does not fit the model; the model is as it was.
    """
    weights, metadata = _read(path)
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    problems = _fill_in_tied(own, weights)
    missing, unexpected = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [
        f"{name} is {tuple(value.shape)}, the model's {tuple(own[name].shape)}"
        for name, value in weights.items()
        if name in own and value.shape != own[name].shape
    ]
    for label, names in (("lacks", missing), ("has besides", unexpected), ("of another shape", shapes)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            problems.append(f"{label}: {', '.join(names[:5])}{more}")
    if problems:
        raise RunError(f"{path} is not of this model; it {'; '.join(problems)}")
    model.load_state_dict(weights, strict=False)  # strictness: above, where extra state may be missing
    return metadata


def _read(path: str | PathLike[str]) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping: it has only keys()
            return weights, dict(file.metadata() or {})
    except Exception as error:  # the reader raises whatever a strange file leads it to
        raise RunError(f"cannot read the weights {path}: {error}") from error


def _fill_in_tied(own: dict[str, Tensor], weights: dict[str, Tensor]) -> list[str]:
    """Give names that `weights` lacks the tensor of a name that the model ties to it; returns what contradicts."""
    there: dict[Place, str] = {}
    contradictions = []
    places = {name: place for name, tensor in own.items() if (place := place_of(tensor)) is not None}
    for name, place in places.items():
        if name in weights and name != (first := there.setdefault(place, name)) and not _same(weights, first, name):
            contradictions.append(f"has different values for {first} and {name}, which the model ties")
    for name, place in places.items():
        if name not in weights and place in there:
            weights[name] = weights[there[place]]
    return contradictions


def _same(weights: dict[str, Tensor], one: str, other: str) -> bool:
    return torch.equal(weights[one], weights[other])
