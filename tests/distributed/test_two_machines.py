"""Two machines of the test's own: network namespaces with a cable between them, which can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator

import pytest

from tests.distributed.conftest import LAST, Many, assert_same


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Machines:
    """Two namespaces, 10.77.0.1 and 10.77.0.2."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.names = [f"scepter-{mark}-{number}" for number in range(2)]
        self.cables = [f"sc{mark}{number}" for number in range(2)]
        for name in self.names:
            _ip("netns", "add", name)
        first, second = self.names
        _ip("link", "add", self.cables[0], "netns", first, "type", "veth", "peer", "name", self.cables[1], "netns", second)
        for number, (name, cable) in enumerate(zip(self.names, self.cables, strict=True)):
            _ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", cable)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", cable, "up")

    def start(self, many: Many, name: str, *arguments: str) -> list[subprocess.Popen[str]]:
        """The same command on both."""
        machines = ["--nnodes", "2", "--rdzv-endpoint", "10.77.0.1:29400"]
        return [
            subprocess.Popen(
                ["ip", "netns", "exec", space, *many.command(name, *arguments, *machines, "--node-rank", str(number))],
                cwd=many.folder, env=many.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for number, space in enumerate(self.names)
        ]  # fmt: skip

    def remove(self) -> None:
        """Take them away again."""
        for name in self.names:
            _ip("netns", "del", name)


@pytest.fixture
def machines() -> Iterator[Machines]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and iproute2 (apt-get install iproute2)")
    try:
        made = Machines()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    yield made
    made.remove()


def _hooks(*more: str) -> str:
    return f"SOLVER.TRAIN_HOOKS=[{', '.join(('{NAME: BackwardHook}', '{NAME: LogHook, LOG_INTERVAL: 3}', *more))}]"


def test_train_across_and_go_on_after_the_cable_was_cut(machines: Machines, many: Many) -> None:
    arguments = ("SOLVER.MODEL.DROP=0.5", "SOLVER.MAX_EPOCHS=12", "ENV.HEARTBEAT_TIMEOUT=6", "ENV.TIMEOUT=60")
    slow = _hooks("{NAME: Told, PAUSE: 0.2}", "{NAME: CheckpointHook, SAVE_LAST: true}")
    both = machines.start(many, "run", *arguments, slow)
    for line in both[0].stdout:
        if "train epoch 3/12 done" in line:
            break
    _ip("-n", machines.names[0], "link", "set", machines.cables[0], "down")
    cut = time.monotonic()
    errors = [process.communicate(timeout=90)[1] for process in both]
    assert time.monotonic() - cut < 45
    assert [process.returncode for process in both] == [1, 1]
    assert "rank 1 on " in errors[0]
    assert "was not heard of for 6 s: its machine, or the network, is gone" in errors[0]
    assert "did not answer for 6 s: the machine that the others meet at, or the network, is gone" in errors[1]

    _ip("-n", machines.names[0], "link", "set", machines.cables[0], "up")
    both = machines.start(many, "run", *arguments, _hooks(LAST), "--resume", "auto")
    outs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs
    assert "resumed from" in outs[0][0]
    assert outs[1][0] == ""

    whole = many.run("whole", *arguments, nproc=2)
    one = whole.state()
    assert_same(one["model"], many.run("run", *arguments, "--resume", "auto", nproc=2).state()["model"])
    assert one["total_updates"] == 60
