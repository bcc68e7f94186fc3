"""Starting the processes of a run on this machine: torch's elastic agent does it, and begins anew what fails."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.rendezvous.api import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from scepter_core.errors import ConfigError, Problem

_AFTER_THE_LAST = 15  # seconds from the end of the last process to that of the launcher, where the agent hangs
_INTERFACE_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


@dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        nproc: processes on this machine.
        nnodes: machines.
        node_rank: this machine's number, from 0; the machine of number 0 is where the others meet. None: they find out.
        endpoint: `host:port` where the machines meet; not needed for one.
        max_restarts: how often the run goes on from its last checkpoint after a failure.
        meet_within: seconds that a machine waits for the others.
        end_within: seconds that processes have to save and end when the run is stopped.
    """

    nproc: int
    nnodes: int = 1
    node_rank: int | None = None
    endpoint: str = ""
    max_restarts: int = 0
    meet_within: int = 600
    end_within: int = 120


def launch(what: Launch, arguments: Sequence[str]) -> int:
    """Run `scepter ARGUMENTS` in every process, and return the exit status of the run.

    Raises:
        ConfigError: several machines, and no place to meet; or they did not meet.
    """
    if what.nnodes > 1 and not what.endpoint:
        raise ConfigError(
            [Problem("machines need a place to meet", path="--rdzv-endpoint", expected="HOST:PORT of one of them")]
        )
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed"):  # what there is to say is said below, and by the processes
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // what.nproc)))
    address = _address_towards(what.endpoint)
    if what.nnodes > 1 and (interface := _interface_of(address)) is not None:
        # The name of this machine may lead anywhere; the way to the others is known.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    config = LaunchConfig(
        min_nodes=what.nnodes,
        max_nodes=what.nnodes,
        nproc_per_node=what.nproc,
        run_id="scepter" if what.nnodes > 1 else uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=what.endpoint or "localhost:0",
        rdzv_configs={"timeout": what.meet_within, **({} if what.node_rank is None else {"is_host": what.node_rank == 0})},
        max_restarts=what.max_restarts,
        local_addr=address,
        shutdown_timeout=what.end_within,
    )
    try:
        with _passing_on_sigusr1(), _ending_after_its_processes(what):
            elastic_launch(config, sys.executable)("-m", "scepter_core", *arguments)
    except ChildFailedError as error:
        return _status_of(*error.get_first_failure())
    except SignalException as error:
        return 128 + int(error.sigval)
    except RendezvousError as error:
        raise ConfigError(
            [
                Problem(
                    f"the machines did not meet: {error}",
                    path="--rdzv-endpoint",
                    found=what.endpoint or "localhost",
                    expected=f"one HOST:PORT for all {what.nnodes} machines, which every one can reach",
                )
            ]
        ) from error
    return 0


def _status_of(rank: int, failure: ProcessFailure) -> int:
    """The run's exit status from that of the process that failed first; a process that said nothing is told of here."""
    code = failure.exitcode
    if code in (1, 2) or code > 128:  # as this command ends: it has said why
        return code
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    sys.stderr.write(f"rank {rank} (process {failure.pid}) {how}\n")
    return 1


def _address_towards(endpoint: str) -> str:
    """This machine's address as the one at `endpoint` sees it."""
    if not endpoint:
        return "127.0.0.1"
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ConfigError([Problem("is no address", path="--rdzv-endpoint", found=endpoint, expected="HOST:PORT")])
    try:
        (family, _, _, _, place), *_ = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing: it only asks for the way
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(
            [Problem(f"cannot be reached: {error}", path="--rdzv-endpoint", found=endpoint, expected="HOST:PORT")]
        ) from error


def _interface_of(address: str) -> str | None:
    """The network interface that has `address`; None where that cannot be told."""
    try:
        import fcntl  # not on Windows
    except ImportError:
        return None
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            packed = fcntl.ioctl(probe.fileno(), _INTERFACE_ADDRESS, struct.pack("256s", name.encode()[:15]))
            if socket.inet_ntoa(packed[20:24]) == address:
                return name
    return None


def _children() -> list[int] | None:
    """The processes that the main thread of this one started and that run; None where that cannot be told."""
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")  # of Linux
    if not listed.exists():
        return None
    return [int(pid) for pid in listed.read_text().split() if _runs(Path("/proc", pid, "stat"))]


def _runs(stat: Path) -> bool:
    with suppress(OSError):  # it has gone by now
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"  # one that ended, and that nobody asked about yet
    return False


@contextmanager
def _ending_after_its_processes(what: Launch) -> Iterator[None]:
    """End when they are gone for good: the agent asks the other machines, which a dead network keeps from answering."""
    over = threading.Event()

    def look() -> None:
        gone = 0
        while not over.wait(1):
            gone = gone + 1 if _children() == [] and started else 0
            started.extend(_children() or [])
            if gone > _AFTER_THE_LAST:
                os._exit(1)

    started: list[int] = []
    if what.nnodes > 1 and what.max_restarts == 0:
        threading.Thread(target=look, name="launch", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def _passing_on_sigusr1() -> Iterator[None]:
    """While the run lasts, SIGUSR1 (save, and go on) reaches its processes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(signum: int, frame: Any) -> None:
        for child in _children() or []:
            with suppress(ProcessLookupError):
                os.kill(child, signum)

    if not hasattr(signal, "SIGUSR1"):  # Windows has none
        yield
        return
    before = signal.signal(signal.SIGUSR1, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
