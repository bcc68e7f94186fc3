"""From the section TRAIN_DATA, EVAL_DATA or TEST_DATA to batches."""

from __future__ import annotations

import inspect
from typing import Any

import torch.utils.data

from scepter_core.data.loading import LoaderData, is_iterable
from scepter_core.errors import ConfigError, Problem
from scepter_core.registry import DATASETS, SAMPLERS
from scepter_core.sections import LoaderConfig

_TORCH_SAMPLERS = ("RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler")


def build_data(section: LoaderConfig, *, mode: str, seed: int, rank: int = 0, world_size: int = 1, logger: Any = None) -> LoaderData:
    """Build the data set that `section` names and its loader.

    Raises:
        ConfigError: there would be no batch at all: no samples, or all of them dropped; or an order is asked of a stream.
    """
    dataset = DATASETS.build(section, logger=logger)
    sampler = section.sampler
    if is_iterable(dataset):
        _refuse_an_order(section, f"SOLVER.{mode.upper()}_DATA")
    data = LoaderData(
        dataset,
        mode=mode,
        batch_size=section.batch_size,
        shuffle=section.shuffle if section.shuffle is not None else mode == "train",
        drop_last=section.drop_last,
        seed=seed,
        rank=rank,
        world_size=world_size,
        make_sampler=(lambda dataset: _build_sampler(sampler, dataset, logger)) if sampler else None,
        collate=section.collate,
        options={
            "num_workers": section.num_workers,
            "pin_memory": section.pin_memory,
            "persistent_workers": section.persistent_workers,
            "prefetch_factor": section.prefetch_factor,
        },
    )
    if data.iterations == 0:
        raise ConfigError(
            [
                Problem(
                    f"the {mode} data gives no batch: {data.samples} samples, batch size {section.batch_size}, "
                    f"DROP_LAST {str(section.drop_last).lower()}",
                    path=f"SOLVER.{mode.upper()}_DATA",
                    expected="at least one batch in an epoch",
                    hint="check the data set, or lower BATCH_SIZE, or set DROP_LAST: false",
                )
            ]
        )
    return data


def _refuse_an_order(section: LoaderConfig, path: str) -> None:
    asked = {"SHUFFLE": "true" if section.shuffle else "", "SAMPLER": section.sampler.name if section.sampler else ""}
    problems = [
        Problem(
            f"{section.name} can only be read from front to back, so that nothing gives it another order",
            path=f"{path}.{key}",
            found=found,
            hint="leave it out, and shuffle in the data set, or give that __getitem__ and __len__",
        )
        for key, found in asked.items()
        if found
    ]
    if problems:
        raise ConfigError(problems)


def _build_sampler(section: Any, dataset: Any, logger: Any) -> Any:
    thing = SAMPLERS.get(section.name)
    parameters = inspect.signature(thing).parameters
    supplied = {name: dataset for name in ("data_source", "dataset") if name in parameters}
    return SAMPLERS.build(section, logger=logger, **supplied)


def find_sampler(name: str) -> object | None:
    """The sampler of torch.utils.data called `name`, None where there is none."""
    if name in _TORCH_SAMPLERS:
        return getattr(torch.utils.data, name)  # type: ignore[no-any-return]
    return torch.utils.data.DistributedSampler if name == "DistributedSampler" else None


def sampler_names() -> list[str]:
    """The names that `find_sampler` knows."""
    return [*_TORCH_SAMPLERS, "DistributedSampler"]
