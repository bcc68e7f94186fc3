"""One process's failure ends all, soon, and is told once.

The process that fails first writes so into the store that all share. A thread in every process looks there once a
second: where another one has failed, this one has a moment to end by itself, and is then ended, whatever it waits for.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any

import torch.distributed as dist

from scepter_core.distributed.processes import TOLD, Processes, is_lost_connection
from scepter_core.errors import RunError

_LOOK_EVERY = 1.0  # seconds
_GRACE = 6.0  # seconds from another process's failure to the end of this one
_REPORT_WITHIN = 3.0  # seconds in which a process that failed says so, once its connections are gone
_FIRST_ENDS_WITHIN = 0.7  # seconds from what the first one says to its end
_BEATS_WITHIN = 3.0  # seconds, in which a process that runs is heard of
_FAILED, _STANDS, _ENDS, _BEAT = "failed", "stands", "ends", "beat"


class _Store:
    """The store that all share, with how long each thread has been waiting for its answer."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: dict[int, float] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def timed(*arguments: Any) -> Any:
            self.asked[threading.get_ident()] = time.monotonic()
            try:
                return call(*arguments)
            finally:
                del self.asked[threading.get_ident()]

        return timed

    def longest_wait(self) -> float:
        """Seconds since the oldest call that has no answer yet."""
        return time.monotonic() - min(self.asked.copy().values(), default=time.monotonic())


class Watch:
    """Watches over the other processes, while it is entered.

    Args:
        processes: those of the run.
        heartbeat: seconds without a sign of another process, or of its machine, after which it counts as lost.
    """

    def __init__(self, processes: Processes, heartbeat: float) -> None:
        self.processes, self.heartbeat = processes, heartbeat
        self._done, self._over = threading.Event(), threading.Event()
        self._main = threading.get_ident()
        self._threads: list[threading.Thread] = []
        # A connection of its own: a call that waits on the other one must not keep the thread from looking.
        self._store: Any = _Store(processes.store.clone()) if processes.store is not None else None  # type: ignore[attr-defined]

    def __enter__(self) -> Watch:
        if self._store is not None:
            self._beat(0)
            self._threads = [threading.Thread(target=call, name="watch", daemon=True) for call in (self._look, self._guard)]
            for thread in self._threads:
                thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._over.set()
        for thread in self._threads:
            # Python aborts where it ends while one is within a call of the store; one that hangs there is no reason to stay.
            thread.join(timeout=2)

    def first_failure(self, error: BaseException) -> BaseException | None:
        """What to show of `error`, with which this process ends: None where another process failed before.

        Where it only says that another process was lost, it is put into words; a process that hangs is shown where it
        stands. Call `say_told` when it is shown.
        """
        if self._store is None:
            return error
        self._done.set()  # what ends this process from now on is this error
        # The launcher ends every process when one is gone: not before this one has had its say.
        with contextlib.suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        me = str(self.processes.rank)
        try:
            lost = is_lost_connection(error)
            timed_out = re.search("tim(ed|e) ?out", str(error), re.IGNORECASE) is not None
            began, beats = time.monotonic(), self._beats() if timed_out else {}
            self._store.set(f"{_ENDS}/{me}", "")
            is_first = not (lost and self._heard_within(_REPORT_WITHIN, _FAILED)) and (
                self._store.compare_set(_FAILED, "", me).decode() == me
            )
            if is_first:
                return self._in_words(error, beats, timed_out) if lost else error
            self._heard_within(_GRACE + _REPORT_WITHIN, TOLD)
            if timed_out:
                time.sleep(max(0.0, began + _BEATS_WITHIN - time.monotonic()))
                self._end(self._frozen(beats))
            time.sleep(_FIRST_ENDS_WITHIN)  # the launcher takes the status of the run from who ends first
            return None
        except (dist.DistError, RuntimeError):  # the store is gone, and with it who held it
            return _lost("the process that the others meet at", error)

    def _in_words(self, error: BaseException, beats: dict[int, str], timed_out: bool) -> BaseException:
        if not timed_out:
            return _lost("another process", error)
        others = [rank for rank in range(self.processes.world_size) if rank != self.processes.rank]
        self._heard_within(_GRACE + 2, *(f"{_STANDS}/{rank}" for rank in others))
        hung = [rank for rank in others if self._store.check([f"{_STANDS}/{rank}"])]
        frozen = self._frozen(beats)
        if not hung and not frozen:
            return _lost("another process", error)
        self._end(frozen)
        places = [self._store.get(f"{_STANDS}/{rank}").decode() for rank in hung]
        places += [f"Rank {rank} stands still: it was stopped, or is in code that lets no thread run.\n" for rank in frozen]
        late = ", ".join(f"rank {rank}" for rank in (*hung, *frozen))
        return RunError(f"{late} did not come to meet the others. " + "\n".join(places))

    # --- signs of life ---------------------------------------------------------------------------------------------

    def _beat(self, count: int) -> None:
        self._store.set(f"{_BEAT}/{self.processes.rank}", f"{count} {socket.gethostname()} {os.getppid()} {os.getpid()}")

    def _beats(self) -> dict[int, str]:
        """The last beat of each of the others."""
        others = [rank for rank in range(self.processes.world_size) if rank != self.processes.rank]
        return {rank: self._store.get(f"{_BEAT}/{rank}").decode() for rank in others if self._store.check([f"{_BEAT}/{rank}"])}

    def _frozen(self, beats: dict[int, str]) -> dict[int, str]:
        """Of `beats`, some seconds old, those of processes that have not run since, nor end by themselves."""
        now = self._beats()
        return {
            rank: beat
            for rank, beat in beats.items()
            if now[rank] == beat and not any(self._store.check([f"{sign}/{rank}"]) for sign in (_STANDS, _ENDS))
        }

    def _end(self, frozen: dict[int, str]) -> None:
        """Kill those of this machine: the launcher would wait half a minute for each to end by itself."""
        for beat in filter(_is_sibling, frozen.values()):
            with contextlib.suppress(OSError):  # it is gone
                os.kill(int(beat.split(" ")[3]), signal.SIGKILL)

    def _heard_within(self, seconds: float, *names: str) -> bool:
        """Whether all `names` are there within `seconds`."""
        until = time.monotonic() + seconds
        while not self._store.check(list(names)):
            if time.monotonic() >= until:
                return False
            time.sleep(0.05)
        return True

    # --- the threads -----------------------------------------------------------------------------------------------

    def _guard(self) -> None:
        """End where the store does not answer: a cable that was pulled tells nobody."""
        while not self._over.wait(_LOOK_EVERY):
            if self._store.longest_wait() > self.heartbeat:
                place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                _say(f"{place} did not answer for {self.heartbeat:g} s: the machine that the others meet at, or the network, is gone")
                os._exit(1)

    def _look(self) -> None:
        beats: dict[int, tuple[str, float]] = {}
        count = 0
        try:
            while not self._done.wait(_LOOK_EVERY):
                count += 1
                self._beat(count)
                if self._store.check([_FAILED]):
                    self._end_after_another()
                    return
                self._listen(beats)
        except (dist.DistError, RuntimeError) as error:
            if not self._done.wait(_GRACE):  # the main thread may see it too, and says more
                _say(str(_lost("the process that the others meet at", error)))
                os._exit(1)

    def _end_after_another(self) -> None:
        if self._done.wait(_GRACE):
            return
        frame = sys._current_frames().get(self._main)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        with contextlib.suppress(dist.DistError, RuntimeError):
            self._store.set(f"{_STANDS}/{self.processes.rank}", f"Rank {self.processes.rank} stands here:\n{stack}")
            self._heard_within(_GRACE, TOLD)
        os._exit(1)

    def _listen(self, beats: dict[int, tuple[str, float]]) -> None:
        """The first process hears all the others; they hear it by the store, or not at all."""
        if self.processes.rank != 0:
            return
        now = time.monotonic()
        for rank, beat in self._beats().items():
            if beat != beats.get(rank, (None, 0.0))[0]:
                beats[rank] = (beat, now)
            elif now - beats[rank][1] > self.heartbeat:
                host = beat.split(" ")[1]
                why = "it stands still" if _is_sibling(beat) else "its machine, or the network, is gone"
                self._store.compare_set(_FAILED, "", str(self.processes.rank))
                _say(f"rank {rank} on {host} was not heard of for {self.heartbeat:g} s: {why}")
                self._end({rank: beat})
                os._exit(1)


def _is_sibling(beat: str) -> bool:
    """Whether it is of a process that the launcher of this one started, on this machine."""
    return beat.split(" ")[1:3] == [socket.gethostname(), str(os.getppid())]


def _lost(whom: str, error: BaseException) -> RunError:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    reason = re.sub(r"^\[\S+\] |\. This is typically.*$", "", text)  # gloo's place in its source, and its guess
    return RunError(f"lost the connection to {whom}: it was killed, or its machine or the network failed ({reason})")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
