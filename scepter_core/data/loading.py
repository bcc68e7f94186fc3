"""Batches of one mode: from any position, the same whatever the number of workers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from scepter_core.data.sampling import EpochSampler, KeyedBatch, KeyedBatches
from scepter_core.data.seeding import get_streams, key, seed_streams, set_streams
from scepter_core.data.streams import StreamBatches, StreamProgress, is_filler


class KeyedDataset(Dataset[Any]):
    """A map-style data set whose samples are made under their batch's key, in a worker or not."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitems__(self, batch: KeyedBatch) -> list[Any]:
        seed_streams(batch.key)
        fetch = getattr(self.dataset, "__getitems__", None)
        return list(fetch(batch)) if fetch is not None else [self.dataset[index] for index in batch]

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]


class LoaderData:
    """What `solver.datas[mode]` holds: a data set and the loader that makes batches of it.

    Attributes:
        dataset: the data set that NAME named.
        sampler: what gives the order: the engine's own, or that of SAMPLER; None for an iterable data set.
        batch_sampler: groups the sampler's indices; None for an iterable data set.
        loader: the torch DataLoader.
        progress: how far an iterable data set is read; None for a map-style one.
        batch_size: samples in a full batch, of this process.
        world_size: processes that a batch of the run is divided among.

    Args:
        dataset: map-style, or iterable (anything with `__iter__` and without `__getitem__`, or an IterableDataset).
        make_sampler: given the data set, returns a sampler; None for the engine's own.
        collate: joins samples to a batch; None for torch's.
        seed, mode, rank, world_size: what the random keys are made of, and which share of each batch this process has.
        options: further arguments of DataLoader (`num_workers`, `pin_memory`, …).
    """

    def __init__(
        self,
        dataset: Any,
        *,
        mode: str,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        make_sampler: Callable[[Any], Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.dataset, self.mode, self.batch_size, self.drop_last = dataset, mode, batch_size, drop_last
        self.world_size = world_size
        self.sampler: Any = None
        self.batch_sampler: KeyedBatches | None = None
        self.progress: StreamProgress | None = None
        self._passes: list[Any] = []  # the loader's iterators whose workers live
        common: dict[str, Any] = {
            "worker_init_fn": _leave_signals_to_the_run,
            "generator": torch.Generator().manual_seed(key(seed, mode, "loader")),
            **(options or {}),
        }
        if self.is_iterable:
            self._stream = StreamBatches(
                dataset,
                batch_size=batch_size,
                drop_last=drop_last,
                collate=collate,
                seed=seed,
                mode=mode,
                rank=rank,
                world_size=world_size,
            )
            self.loader: DataLoader[Any] = DataLoader(
                self._stream, batch_size=None, collate_fn=_as_it_is, **common
            )
            self.progress = StreamProgress(self._stream, self.loader.num_workers)
        else:
            size = len(dataset) if hasattr(dataset, "__len__") else 0
            self.sampler = (
                make_sampler(dataset)
                if make_sampler
                else EpochSampler(size, shuffle=shuffle, seed=seed, mode=mode)
            )
            self.batch_sampler = KeyedBatches(
                self.sampler, batch_size, drop_last, seed=seed, mode=mode, rank=rank, world_size=world_size
            )
            self.loader = DataLoader(
                KeyedDataset(dataset), batch_sampler=self.batch_sampler, collate_fn=collate, **common
            )

    @property
    def dataloader(self) -> DataLoader[Any]:
        """The loader, under the name that SCEPTER's hooks know."""
        return self.loader

    @property
    def is_iterable(self) -> bool:
        """Whether the data set can only be read from front to back."""
        return is_iterable(self.dataset)

    @property
    def samples(self) -> int | None:
        """Samples in the data set, None where it has no length."""
        try:
            return len(self.dataset)
        except TypeError:
            return None

    @property
    def iterations(self) -> int:
        """Batches in an epoch, -1 where nobody knows: without a length, and where several workers share a stream."""
        try:
            if self.batch_sampler is not None:
                return len(self.batch_sampler)
        except TypeError:
            return -1
        if self.samples is None or self.loader.num_workers > 1 or self.world_size > 1:
            return -1  # each worker ends with a short batch of its own
        return self.samples // self.batch_size if self.drop_last else -(-self.samples // self.batch_size)

    @property
    def step_samples(self) -> int | None:
        """Samples in a full batch of all processes, None where a place in an epoch is no number of samples.

        So it is where several workers read a stream, each to an end of its own, or each process a part of its own.
        """
        if self.batch_sampler is not None:
            return self.batch_sampler.size if self.batch_sampler.counts_samples else None
        is_one = self.loader.num_workers <= 1 and self._stream.every == self.world_size
        return self.batch_size * self.world_size if is_one else None

    def close(self) -> None:
        """End all workers. A further pass starts new ones."""
        passes, self._passes, self.loader._iterator = self._passes, [], None
        for iterator in passes:
            iterator._shutdown_workers()  # else the collector ends them, after their queues, and waits for each
            for worker in iterator._workers:
                worker.kill()  # one that did not end in time: SIGTERM, which torch sends, it leaves to the run

    def _pass(self) -> Iterator[Any]:
        """A pass of the loader, remembered for as long as it has workers."""
        iterator = iter(self.loader)
        self._passes = [one for one in self._passes if any(worker.is_alive() for worker in one._workers)]
        if self.loader.num_workers > 0 and iterator not in self._passes:
            self._passes.append(iterator)
        return iterator

    def left(self, start: int, offset: int) -> int:
        """Batches in an epoch behind its first `start`, which hold `offset` samples; -1 where nobody knows."""
        if self.batch_sampler is not None and self.batch_sampler.counts_samples and self.iterations >= 0:
            return self.batch_sampler.left(offset)
        return self.iterations - start if self.iterations >= 0 and not self.is_iterable else -1

    def batches(self, epoch: int, start: int = 0, offset: int | None = None) -> Iterator[tuple[Any, bool]]:
        """The batches of `epoch` (from 1) without its first `start`, each with whether it is the epoch's last.

        A map-style data set begins there without reading what comes before; so does an iterable one with a state, right
        after that was loaded into `progress`. Any other iterable one is read up to there.

        Args:
            offset: the samples in those first batches, where batches had another size then.
        """
        if self.progress is not None:
            yield from self._stream_batches(self.progress, epoch, start, offset)
        elif self.batch_sampler is not None:
            by_sample = offset is not None and self.batch_sampler.counts_samples
            self.batch_sampler.seek(epoch, start, offset if by_sample else None)
            if self.iterations < 0:
                yield from _marking_the_last(self._pass())
                return
            last = start + self.left(start, self.batch_sampler.offset) - 1
            for number, batch in enumerate(self._pass(), start):
                yield batch, number == last

    def _stream_batches(
        self, progress: StreamProgress, epoch: int, start: int, offset: int | None
    ) -> Iterator[tuple[Any, bool]]:
        skip = offset if offset is not None and offset != start * (self.step_samples or 0) else 0
        saved = progress.begin(epoch, start, by_sample=skip > 0)
        if saved is not None:
            self.close()  # workers that were kept know nothing of it
            skip = 0
        self._stream.seek(epoch, saved, skip)
        source = self._with_own_streams(self._pass())
        batches = _marking_the_last(given for given in source if not is_filler(given))
        for number, (given, is_last) in enumerate(batches, start if saved is not None or skip else 0):
            progress.passed(given)
            if number >= start:
                yield given.batch, is_last

    def _with_own_streams(self, source: Iterator[Any]) -> Iterator[Any]:
        # Read in the run's own process, an iterable data set must not see the streams that the steps draw from.
        if self.loader.num_workers > 0:
            yield from source
            return
        own = None
        while True:
            steps = get_streams()
            if own is not None:
                set_streams(own)
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                own = get_streams()
                set_streams(steps)
            yield batch


def is_iterable(dataset: Any) -> bool:
    """Whether `dataset` can only be read from front to back."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


def iterate(data: Any, epoch: int, start: int, offset: int | None = None) -> Iterator[tuple[Any, bool]]:
    """The batches of `data` from `start` on, each with whether it is the last: of a LoaderData, or of any iterable.

    Of an iterable of batches (a solver's own loader), the first `start` are read and left. `offset` is as in
    `LoaderData.batches`.
    """
    if isinstance(data, LoaderData):
        yield from data.batches(epoch, start, offset)
        return
    source = iter(data)
    for _ in range(start):
        next(source, None)
    yield from _marking_the_last(source)


def is_stream(data: Any) -> bool:
    """Whether `data` (a LoaderData, a DataLoader) reads a data set that can only be read from front to back."""
    if isinstance(data, LoaderData):
        return data.is_iterable
    return isinstance(getattr(data, "dataset", None), IterableDataset)


def iterations_of(data: Any) -> int:
    """Batches in an epoch of `data`, -1 where nobody knows."""
    if isinstance(data, LoaderData):
        return data.iterations
    try:
        return len(data)
    except TypeError:
        return -1


def _marking_the_last(source: Iterator[Any]) -> Iterator[tuple[Any, bool]]:
    missing = object()
    batch = next(source, missing)
    while batch is not missing:
        following = next(source, missing)
        yield batch, following is missing
        batch = following


def _as_it_is(batch: Any) -> Any:
    """For torch's loader, which else makes tensors of what a stream's batch holds besides."""
    return batch


def _leave_signals_to_the_run(worker: int) -> None:
    """Workers end when the run tells them to.

    Ctrl-C, a job scheduler and a service manager signal every process of the run, and the step under way needs them.
    """
    for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):  # Windows has no SIGUSR1
            signal.signal(getattr(signal, name), _do_nothing)


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """A handler and not SIG_IGN, which the programs that a data set starts would inherit."""


def to_device(batch: Any, device: torch.device) -> Any:
    """`batch` with every tensor in it, at any depth of dicts, lists and tuples, on `device`."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch


def count_samples(batch: Any) -> int:
    """Samples in `batch`: the first axis of the first tensor that has one, else the length of its first list, else 1."""
    values = list(batch.values()) if isinstance(batch, Mapping) else [batch]
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim > 0:
            return int(value.shape[0])
    for value in values:
        if isinstance(value, list | tuple):
            return len(value)
        if isinstance(value, Mapping) and value:
            return count_samples(value)
    return 1
