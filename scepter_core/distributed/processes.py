"""The processes of one run: who they are, how they find each other, and what they tell each other.

Everything that is sent is of the run's own making, between processes that trust each other.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from scepter_core.errors import ConfigError, FailedElsewhere, Problem, RunError

_T = TypeVar("_T")
TOLD = "told"  # in the store: the first failure was shown
_OVER = "scepter/over"  # in the launcher's store: the exit status of a run that must not be begun anew
_START = "start the processes by --nproc, torchrun or srun; or unset the variables of a launcher"
_PORTS = (20000, 30000)  # where a step of srun finds its port by the number of its job


@dataclass(frozen=True)
class Place:
    """Where a process stands among those of its run.

    Attributes:
        rank, world_size: its number, from 0, and how many there are.
        local_rank, local_world_size: the same among those of its machine.
        restarts: how often the launcher has begun the run anew.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    restarts: int = 0


def place_of(environment: Mapping[str, str]) -> Place:
    """What the launcher says: torchrun (and `--nproc`), else srun; alone where neither is at work.

    Raises:
        ConfigError: what it says is not whole.
    """
    if "TORCHELASTIC_RUN_ID" in environment or environment.get("WORLD_SIZE", "1") != "1":
        rank, world, local = _numbers(environment, "WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK")
        more = {"LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": "0", **environment}
        local_world, restarts = _numbers(more, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
    elif "SLURM_STEP_ID" in environment and environment.get("SLURM_STEP_NUM_TASKS", "1") != "1":
        tasks = "SLURM_STEP_NUM_TASKS"
        rank, world, local = _numbers(environment, tasks, "SLURM_PROCID", tasks, "SLURM_LOCALID")
        (restarts,) = _numbers({"SLURM_RESTART_COUNT": "0", **environment}, tasks, "SLURM_RESTART_COUNT")
        on_this = re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        local_world = int(on_this[0]) if on_this else 1
    else:
        return Place()
    if rank >= world:
        raise ConfigError([Problem(f"there is no process {rank} of {world}, counted from 0", hint=_START)])
    return Place(rank, world, local, local_world, restarts)


def _numbers(environment: Mapping[str, str], size: str, *names: str) -> list[int]:
    """What the launcher says under `names`; `size` is where it says how many processes there are."""
    missing = [name for name in names if name not in environment]
    if missing:
        what = f"one of several processes ({size} {environment.get(size)}), and the environment does not say {', '.join(missing)}"
        raise ConfigError([Problem(what, hint=_START)])
    problems = [
        Problem("must be a number", path=name, found=environment[name], hint=_START)
        for name in names
        if not environment[name].isdecimal()
    ]
    if problems:
        raise ConfigError(problems)
    return [int(environment[name]) for name in names]


def _fill_in_srun(environment: dict[str, str] | os._Environ[str], place: Place) -> None:
    """The variables that torch reads, from those that srun sets; what is set already stays."""
    nodes = environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", "localhost"))
    low, high = _PORTS
    port = low + (int(environment.get("SLURM_JOB_ID", "0")) * 31 + int(environment["SLURM_STEP_ID"])) % (high - low)
    environment.setdefault("MASTER_ADDR", first_node(nodes))
    environment.setdefault("MASTER_PORT", str(port))
    for name, value in (("RANK", place.rank), ("WORLD_SIZE", place.world_size), ("LOCAL_RANK", place.local_rank)):
        environment.setdefault(name, str(value))


def first_node(nodes: str) -> str:
    """The first host of SLURM's list: `a[03-05,9],b` → `a03`."""
    match = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\])?", nodes)
    return (match[1] + (match[2] or "")) if match else nodes


class Processes:
    """This process and the others. Every method that talks is called by all of them, in the same order.

    Alone, no method does more than return what it was given.

    Args:
        place: where this one stands.
        store: what all of them see; None where there is one process.
    """

    def __init__(self, place: Place | None = None, store: Store | None = None) -> None:
        self.place = place or Place()
        self.rank, self.world_size = self.place.rank, self.place.world_size
        self.store = store
        self.launchers_store: Store | None = None  # which outlasts a restart

    @property
    def writes(self) -> bool:
        """Whether this process writes the run's logs and files: the first of all does."""
        return self.rank == 0

    def gather(self, value: _T) -> list[_T]:
        """The value of every process, by rank, in every process."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def of_first(self, make: Callable[[], _T]) -> _T:
        """What `make` returns in the first process, in every process; what it raises there, all of them raise."""
        if self.world_size == 1:
            return make()
        told: list[Any] = [None, None]
        if self.rank == 0:
            try:
                told[0] = make()
            except Exception as error:  # of any kind: the others wait to hear of it
                told[1] = error
        dist.broadcast_object_list(told, src=0)
        if told[1] is not None:
            raise told[1]
        return told[0]  # type: ignore[no-any-return]


_JOINED: Processes | None = None


def join(backend: str = "auto", device: torch.device | None = None, timeout: float = 600.0) -> Processes:
    """Meet the other processes that the launcher started; at once where there are none. A second call changes nothing.

    Args:
        backend: `gloo`, `nccl`, or `auto`: nccl for tensors on CUDA devices, and gloo for those of the host.
        device: this process's.
        timeout: seconds that a process waits for the others before the run ends.

    Raises:
        ConfigError: the address is in use, or not to be reached; or the backend is not for this device.
        FailedElsewhere: `say_over` was called, and the launcher began the processes anew all the same.
    """
    global _JOINED
    if _JOINED is not None:
        return _JOINED
    place = place_of(os.environ)
    if place.world_size == 1:
        return Processes(place)
    if "SLURM_STEP_ID" in os.environ:
        _fill_in_srun(os.environ, place)
    on_cuda = device is not None and device.type == "cuda"
    check_backend(backend, device)
    chosen = {"auto": "cpu:gloo,cuda:nccl" if on_cuda else "gloo", "nccl": "cpu:gloo,cuda:nccl"}.get(backend, backend)
    limit = timedelta(seconds=timeout)
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=limit))
    except (dist.DistNetworkError, dist.DistStoreError, ValueError) as error:
        raise ConfigError([_unreachable(error)]) from error
    store.set_timeout(limit)
    if place.restarts and store.check([_OVER]):
        raise FailedElsewhere(int(store.get(_OVER)))
    dist.init_process_group(
        chosen,
        store=PrefixStore(f"scepter/{place.restarts}", store),
        rank=rank,
        world_size=world_size,
        timeout=limit,
        device_id=device if on_cuda and "nccl" in chosen else None,
    )
    _JOINED = Processes(place, PrefixStore(f"scepter/{place.restarts}/run", store))
    _JOINED.launchers_store = store
    return _JOINED


def check_backend(backend: str, device: torch.device | None) -> None:
    """Raise ConfigError for `nccl` where the device is no GPU."""
    if backend == "nccl" and (device is None or device.type != "cuda"):
        raise ConfigError(
            [Problem("is for GPUs, and the device is another one", path="ENV.BACKEND", found="nccl", expected="gloo or auto")]
        )


def _unreachable(error: Exception) -> Problem:
    address, port = os.environ.get("MASTER_ADDR", "unset"), os.environ.get("MASTER_PORT", "unset")
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        return Problem(
            f"port {port} of {socket.gethostname()} is in use, and the processes of this run were to meet there",
            path="MASTER_PORT",
            found=port,
            expected="a free port",
            hint="set the environment variable MASTER_PORT to another one, or start by --nproc, which finds one",
        )
    return Problem(
        f"the processes of the run could not meet at {address}, port {port}: {_first_line(error)}",
        path="MASTER_ADDR",
        found=address,
        expected="the address of the machine of rank 0, as the others reach it",
        hint="set the environment variables MASTER_ADDR and MASTER_PORT, or start by --nproc or torchrun",
    )


def leave() -> None:
    """Part from the other processes, at the end of all work. Nothing where there are none."""
    global _JOINED
    _JOINED = None
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def say_told() -> None:
    """Where this process ends by an error, it has said so: the others need not wait for it."""
    if _JOINED is not None and _JOINED.store is not None:
        with suppress(dist.DistError, RuntimeError):
            _JOINED.store.set(TOLD, "")


def say_over(exit_status: int) -> None:
    """The run ends for good: by a signal, or an error that another start would meet again."""
    if _JOINED is not None and _JOINED.launchers_store is not None:
        with suppress(dist.DistError, RuntimeError):
            _JOINED.launchers_store.set(_OVER, str(exit_status))


def is_lost_connection(error: BaseException) -> bool:
    """Whether `error` says that another process did not answer, rather than that this one failed."""
    if isinstance(error, dist.DistError):
        return True
    signs = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "timed out waiting")
    return isinstance(error, RuntimeError) and not isinstance(error, RunError) and any(
        sign in str(error).lower() for sign in signs
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
