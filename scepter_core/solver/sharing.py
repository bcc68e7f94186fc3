"""The batches of a step in which every process takes part: what each has of it, and what that counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scepter_core.data import LoaderData, count_samples, is_stream, iterate, iterations_of
from scepter_core.distributed import Processes
from scepter_core.errors import RunError


@dataclass
class EpochStart:
    """Where in an epoch the batches have the size that they have now: its beginning, but for a resume in between.

    Attributes:
        iter: batches before it.
        samples: those that were in them, of all processes.
    """

    iter: int = 0
    samples: int = 0

    def offset(self, data: Any, iteration: int) -> int | None:
        """Samples before the batch `iteration`; None where places are not counted in samples."""
        size = data.step_samples if isinstance(data, LoaderData) else None
        return None if size is None else self.samples + (iteration - self.iter) * size

    def left(self, data: Any, iteration: int) -> int:
        """Batches from `iteration` to the end of the epoch; -1 where nobody knows for sure."""
        if isinstance(data, LoaderData):
            return data.left(iteration, self.offset(data, iteration) or 0)
        return iterations_of(data) - iteration if iterations_of(data) >= 0 and not is_stream(data) else -1


@dataclass(slots=True)
class Share:
    """A batch, and what it counts.

    Attributes:
        batch: this process's part.
        is_last: whether the epoch ends with it, in every process.
        samples: how many of it count; 0 for one that is only there to make the step with the others.
        weight: of its mean loss, so that the mean over the processes is that over the samples of all.
    """

    batch: Any
    is_last: bool
    samples: int
    weight: float = 1.0


def shares(data: Any, processes: Processes, epoch: int, iteration: int, start: EpochStart) -> Iterator[Share]:
    """This process's shares of the batches of `epoch`, from `iteration` on.

    Raises:
        RunError: a stream gave this process no batch at all, and the others some.
    """
    batches = iterate(data, epoch, iteration, start.offset(data, iteration))
    if processes.world_size == 1:
        for batch, is_last in batches:
            yield Share(batch, is_last, count_samples(batch))
    elif isinstance(data, LoaderData) and data.iterations >= 0:
        for number, (batch, is_last) in enumerate(batches, iteration):
            mine, whole = data.batch_sampler.shares_of(number, start.offset(data, number) or 0)  # type: ignore[union-attr]
            weight = mine * processes.world_size / whole if data.batch_sampler.shares > 1 else 1.0  # type: ignore[union-attr]
            yield Share(batch, is_last, count_samples(batch) if mine else 0, weight)
    else:
        yield from _agreed(batches, processes)


def _agreed(batches: Iterator[tuple[Any, bool]], processes: Processes) -> Iterator[Share]:
    """Shares of streams, that end where they end: every step asks all. Who is through goes on with what does not count."""
    kept: Any = None
    while True:
        found = next(batches, None)
        batch, is_last = found if found is not None else (kept, True)
        mine = count_samples(batch) if found is not None else 0
        told = processes.gather((mine, is_last))
        whole = sum(samples for samples, _ in told)
        if whole == 0:
            return
        if batch is None:
            raise RunError("the data gave this process no batch, and others some: it has fewer samples than there are processes")
        kept = batch
        all_last = all(last for _, last in told)
        yield Share(batch, all_last, mine, mine * processes.world_size / whole)
        if all_last:
            return
