"""Batches of a data set that can only be read from front to back, and where its readers stand.

A stream that has `state_dict` and `load_state_dict` is resumed without reading anything again: with every batch comes the
state that its worker had right after it, so that what was made ahead, and not trained on, is not counted.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from scepter_core.data.seeding import get_streams, key, seed_streams, set_streams

_FILLER = -1  # in place of a worker's number: no batch


class StreamBatch(NamedTuple):
    """A batch on its way to the run.

    Attributes:
        batch: what training gets.
        worker: the number of the worker that made it.
        state: of the worker right after it, frozen: the stream may change its own afterwards. None: it has none.
    """

    batch: Any
    worker: int
    state: bytes | None


class StreamBatches(IterableDataset[StreamBatch]):
    """Makes the batches of a stream, in a worker or in the run's own process.

    The random streams are keyed by (seed, mode, epoch, worker), and by the process where the data set `splits_by_rank`
    itself; each epoch begins with the state in which the data set was built.

    Args:
        dataset: anything with `__iter__`.
        batch_size: samples in a batch.
        drop_last: leave out a smaller last batch, of each worker.
        collate: joins samples to a batch; None for torch's.
        seed, mode, rank: what the random keys are made of.
        world_size: processes that read it; each takes every n-th sample, unless the data set `splits_by_rank` itself.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        drop_last: bool,
        collate: Callable[[list[Any]], Any] | None,
        seed: int,
        mode: str,
        rank: int,
        world_size: int = 1,
    ) -> None:
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.collate = collate or default_collate
        self.seed, self.mode, self.rank = seed, mode, rank
        # One that knows of processes says so, and gives each its own samples; of any other, each takes every n-th.
        self.every = 1 if getattr(dataset, "splits_by_rank", False) else world_size
        self.has_state = all(callable(getattr(dataset, name, None)) for name in ("state_dict", "load_state_dict"))
        self._as_built = pickle.dumps(dataset.state_dict()) if self.has_state else b""
        self._is_used = False
        self._saved: Mapping[str, Any] | None = None  # where a resumed epoch begins
        # Epoch, whether `_saved` is its beginning, and samples to skip. Shared memory, for workers that outlive an epoch.
        self._place = torch.zeros(3, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def seek(self, epoch: int, saved: Mapping[str, Any] | None = None, skip: int = 0) -> None:
        """The next pass is that of `epoch` (from 1), from its front, or from where `saved` was taken.

        Args:
            skip: samples of the whole stream, of all processes, that are read from its front and left.
        """
        self._saved = saved
        self._place.copy_(torch.tensor([epoch, saved is not None, skip]))

    def __iter__(self) -> Iterator[StreamBatch]:
        info = get_worker_info()
        worker = info.id if info else 0
        epoch, is_resumed, skip = self._place.tolist()
        saved = self._saved if is_resumed else None
        if saved and worker < saved["next"]:
            yield StreamBatch(None, _FILLER, None)  # the loader begins with the first worker: it has had its turn
        state = saved["workers"][worker] if saved else None
        if state and state["ended"]:
            return
        items = self._begin(epoch, worker, state, skip)
        ended = False
        while not ended:
            samples = list(islice(items, self.batch_size))
            ended = len(samples) < self.batch_size
            if not samples or (ended and self.drop_last):
                return
            batch = self.collate(samples)
            yield StreamBatch(batch, worker, self._freeze(ended))

    def _begin(self, epoch: int, worker: int, state: Mapping[str, Any] | None, skip: int) -> Iterator[Any]:
        own = self.rank if self.every == 1 else 0  # an order that is divided must be the same in every process
        seed_streams(key(self.seed, self.mode, epoch, "worker", worker, own))
        if state:
            self.dataset.load_state_dict(state["dataset"])
        elif self.has_state and self._is_used:  # in a new worker it is as built anyway
            self.dataset.load_state_dict(pickle.loads(self._as_built))
        self._is_used = True
        items: Iterator[Any] = iter(self.dataset)
        if state:
            set_streams(state["rng"])
        if self.every == 1:
            return islice(items, skip, None)
        first = self.every - 1 if state else skip + self.rank  # a state is right behind one
        return islice(items, first, None, self.every)

    def _freeze(self, ended: bool) -> bytes | None:
        if not self.has_state:
            return None
        return pickle.dumps({"dataset": self.dataset.state_dict(), "rng": get_streams(), "ended": ended})


@dataclass(frozen=True, slots=True)
class _Place:
    """Where training stands in a stream: after `iteration` batches of `epoch`, with the workers' states."""

    epoch: int
    iteration: int
    next: int
    workers: tuple[bytes | None, ...]


class StreamProgress:
    """Follows, in the run's process, which batches of a stream training has had.

    Args:
        stream: whose batches they are.
        workers: how many processes make them; 0 and 1 are the same.
    """

    def __init__(self, stream: StreamBatches, workers: int) -> None:
        self._kind = type(stream.dataset).__qualname__
        self._has_state, self._workers = stream.has_state, max(workers, 1)
        self._places: deque[_Place] = deque(maxlen=2)  # before the present step, and after it
        self._loaded: Mapping[str, Any] | None = None

    def begin(self, epoch: int, start: int, *, by_sample: bool = False) -> Mapping[str, Any] | None:
        """The pass of `epoch` begins after `start` batches.

        Args:
            by_sample: without a state, it begins there too, and not at the front: samples are skipped.

        Returns:
            what the workers go on from; None where the stream is read from its front.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is None or (loaded["epoch"], loaded["iter"]) != (epoch, start):
            self._places.append(_Place(epoch, start if by_sample else 0, 0, (None,) * self._workers))
            return None
        states = tuple(state and pickle.dumps(state) for state in loaded["workers"])
        self._places.append(_Place(epoch, start, loaded["next"], states))
        return loaded

    def passed(self, given: StreamBatch) -> None:
        """Training gets this batch now."""
        last = self._places[-1]
        workers = (*last.workers[: given.worker], given.state, *last.workers[given.worker + 1 :])
        following = (given.worker + 1) % self._workers
        self._places.append(_Place(last.epoch, last.iteration + 1, following, workers))

    def state_dict(self, epoch: int, iteration: int) -> dict[str, Any] | None:
        """What a resume after `iteration` batches of `epoch` goes on from; None where it has to read them again."""
        loaded = self._loaded  # of a run that was resumed and has not trained yet: an eval came first
        if loaded is not None and (loaded["epoch"], loaded["iter"]) == (epoch, iteration):
            return {"dataset": self._kind, **loaded}
        for place in self._places:
            if self._has_state and (place.epoch, place.iteration) == (epoch, iteration):
                workers = [state and pickle.loads(state) for state in place.workers]
                return {"dataset": self._kind, "epoch": epoch, "iter": iteration, "next": place.next, "workers": workers}
        return None

    def load_state_dict(self, state: Mapping[str, Any] | None) -> str | None:
        """Go on from what `state_dict` gave.

        Returns:
            why the stream has to be read from its front instead; None where it need not.
        """
        self._loaded = None
        if not self._has_state:
            return "it has no `state_dict` and `load_state_dict`"
        if state is None:
            return "the checkpoint has no state of it"
        if state["dataset"] != self._kind:
            return f"the checkpoint's state is that of {state['dataset']}"
        if len(state["workers"]) != self._workers:
            return f"the checkpoint has the states of {len(state['workers'])} readers, and there are {self._workers} now"
        self._loaded = {name: state[name] for name in ("epoch", "iter", "next", "workers")}
        return None


def is_filler(given: StreamBatch) -> bool:
    """Whether it only takes a worker's turn."""
    return given.worker == _FILLER
