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
    """The indices of one process's share of a batch, and the key of the random streams that it is made with."""

    key: int = 0


class KeyedBatches(Sampler[KeyedBatch]):
    """Batches of a sampler's indices, each with its key, from any position of any epoch.

    A batch of the run is `batch_size * world_size` indices, and each process has its share of it: the same batches come
    about whatever the number of processes is that a batch is divided among. A sampler that gives each process another
    order already (torch's DistributedSampler) is taken as it is.

    Args:
        sampler: gives indices, or whole batches where it is a torch BatchSampler.
        batch_size: indices in a share.
        drop_last: leave out a smaller last batch.
        seed, mode, rank, world_size: what the keys are made of, and which share this is.
    """

    def __init__(
        self,
        sampler: Iterable[Any],
        batch_size: int,
        drop_last: bool,
        *,
        seed: int,
        mode: str,
        rank: int,
        world_size: int = 1,
    ) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        self.seed, self.mode, self.rank = seed, mode, rank
        self.shares = 1 if _knows_ranks(sampler) else world_size
        self.size = batch_size * self.shares
        self.epoch, self.start, self.offset = 1, 0, 0

    def seek(self, epoch: int, start: int, offset: int | None = None) -> None:
        """The next pass is that of `epoch` (from 1), without its first `start` batches.

        Args:
            offset: the samples in those batches, where they had another size than now.
        """
        self.epoch, self.start = epoch, start
        self.offset = start * self.size if offset is None else offset
        if isinstance(self.sampler, EpochSampler):
            self.sampler.epoch = epoch

    def __len__(self) -> int:
        """Batches in a whole epoch. Raises TypeError where the sampler has no length."""
        return self.left(0)

    def left(self, offset: int) -> int:
        """Batches in an epoch behind its first `offset` samples. Raises TypeError where the sampler has no length."""
        samples = len(self.sampler)  # type: ignore[arg-type]  # a sampler without a length: the TypeError is meant
        if isinstance(self.sampler, BatchSampler):
            return -(-samples // self.shares)
        samples = max(samples - offset, 0)
        return samples // self.size if self.drop_last else -(-samples // self.size)

    @property
    def counts_samples(self) -> bool:
        """Whether a place in an epoch is a number of samples, whatever the size of a batch and its number of shares."""
        return not isinstance(self.sampler, BatchSampler) and not _knows_ranks(self.sampler)

    def shares_of(self, number: int, offset: int) -> tuple[int, int]:
        """How much of a batch is this process's, and how much there is: in samples, of a BatchSampler in its batches.

        Args:
            number: of the batch in its epoch.
            offset: samples before it.
        """
        if self.shares == 1:
            return 1, 1
        if isinstance(self.sampler, BatchSampler):
            row = min(self.shares, len(self.sampler) - number * self.shares)
            return int(self.rank < row), row
        try:
            whole = min(self.size, len(self.sampler) - offset)  # type: ignore[arg-type]
        except TypeError:  # without a length: the last batch is not known for the last
            whole = self.size
        return len(range(*_part(whole, self.rank, self.shares))), whole

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
        own = self.rank if self.shares == 1 else 0  # an order that is divided must be the same in every process
        seed_streams(key(self.seed, self.mode, self.epoch, "sampler", own))
        try:
            return list(self.sampler) if hasattr(self.sampler, "__len__") else iter(self.sampler)
        finally:
            set_streams(streams)

    def _batches(self) -> Iterator[list[Any]]:
        indices = iter(self.sampler if isinstance(self.sampler, EpochSampler) else self._drawn())
        if isinstance(self.sampler, BatchSampler):
            rows = islice(indices, self.start * self.shares, None)
            while row := list(islice(rows, self.shares)):
                yield row[min(self.rank, len(row) - 1) if self.shares > 1 else 0]
            return
        indices = islice(indices, self.offset, None)
        while batch := list(islice(indices, self.size)):
            if len(batch) == self.size or not self.drop_last:
                # Every process makes every step: one without a share of a small last batch repeats a sample that does
                # not count.
                yield batch[slice(*_part(len(batch), self.rank, self.shares))] or batch[:1]


def _part(samples: int, rank: int, shares: int) -> tuple[int, int]:
    """From where to where the share of `rank` is: shares differ by one sample at most."""
    if shares == 1:
        return 0, samples
    each, more = divmod(samples, shares)
    start = rank * each + min(rank, more)
    return start, start + each + (rank < more)


def _knows_ranks(sampler: Any) -> bool:
    """Whether a sampler, or the one within a batch sampler, divides its samples among processes by itself."""
    return any(hasattr(one, "num_replicas") for one in (sampler, getattr(sampler, "sampler", None)))
