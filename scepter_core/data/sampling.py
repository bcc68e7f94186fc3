"""Which samples make which batch: a function of (seed, epoch) that can start anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, Sampler

from scepter_core.data.seeding import get_streams, key, seed_streams, set_streams


class EpochSampler(Sampler[int]):
    """The engine's own order of samples: that of epoch n depends on (seed, n) alone.

    Args:
        size: number of samples.
        shuffle: a new order each epoch; else 0, 1, 2, …
        seed: the run's seed, joined with the mode's name.
    """

    def __init__(self, size: int, *, shuffle: bool, seed: int, mode: str) -> None:
        self.size, self.shuffle, self.seed, self.mode = size, shuffle, seed, mode
        self.epoch = 1

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        if not self.shuffle:
            return iter(range(self.size))
        generator = torch.Generator().manual_seed(key(self.seed, self.mode, self.epoch, "order"))
        return iter(torch.randperm(self.size, generator=generator).tolist())


class KeyedBatch(list[Any]):
    """The indices of one batch, and the key of the random streams that it is made with."""

    key: int = 0


class KeyedBatches(Sampler[KeyedBatch]):
    """Batches of a sampler's indices, each with its key, from any position of any epoch.

    Args:
        sampler: gives indices, or whole batches where it is a torch BatchSampler.
        batch_size: indices in a batch.
        drop_last: leave out a smaller last batch.
        seed, mode, rank: what the keys are made of.
    """

    def __init__(
        self, sampler: Iterable[Any], batch_size: int, drop_last: bool, *, seed: int, mode: str, rank: int
    ) -> None:
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last
        self.seed, self.mode, self.rank = seed, mode, rank
        self.epoch, self.start = 1, 0

    def seek(self, epoch: int, start: int) -> None:
        """The next pass is that of `epoch` (from 1), without its first `start` batches."""
        self.epoch, self.start = epoch, start
        if isinstance(self.sampler, EpochSampler):
            self.sampler.epoch = epoch

    def __len__(self) -> int:
        """Batches in a whole epoch. Raises TypeError where the sampler has no length."""
        samples = len(self.sampler)  # type: ignore[arg-type]  # a sampler without a length: the TypeError is meant
        if isinstance(self.sampler, BatchSampler):
            return samples
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def __iter__(self) -> Iterator[KeyedBatch]:
        for number, indices in enumerate(self._batches(), self.start):
            batch = KeyedBatch(indices)
            batch.key = key(self.seed, self.mode, self.epoch, number, self.rank)
            yield batch

    def _drawn(self) -> Iterable[Any]:
        """The order of a sampler that users bring: under a key of the position, where it draws from the global streams.

        All at once where there is an end: an order drawn bit by bit would mix with what the steps draw.
        """
        streams = get_streams()
        seed_streams(key(self.seed, self.mode, self.epoch, "sampler", self.rank))
        try:
            return list(self.sampler) if hasattr(self.sampler, "__len__") else iter(self.sampler)
        finally:
            set_streams(streams)

    def _batches(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler if isinstance(self.sampler, EpochSampler) else self._drawn())
        if isinstance(self.sampler, BatchSampler):
            yield from islice(indices, self.start, None)
            return
        indices = islice(indices, self.start * self.batch_size, None)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch
