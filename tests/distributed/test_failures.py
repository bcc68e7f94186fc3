"""One process in trouble: all end, soon, and the reason is told once; or the run goes on by itself."""

from __future__ import annotations

import signal
import socket
import subprocess
import time

import pytest

from tests.distributed.conftest import LAST, Many, assert_same

EPOCHS = "{NAME: CheckpointHook, SAVE_LAST: true}"


def _trouble(what: str) -> str:
    return f"{{NAME: Trouble, WHAT: {what}}}, {EPOCHS}"


@pytest.mark.parametrize(
    ("what", "first", "status"),
    [
        ("raise", "rank 1 of 2 failed:\nTraceback (most recent call last):\n", 1),
        ("kill", "rank 0 of 2 failed:\nlost the connection to another process: it was killed", 1),
        ("exit", "rank 0 of 2 failed:\nlost the connection to another process: it was killed", 1),
        ("hang", "rank 0 of 2 failed:\nrank 1 did not come to meet the others. Rank 1 stands here:\n", 1),
        ("stop", "rank 0 of 2 failed:\nrank 1 did not come to meet the others. Rank 1 stands still: it was stopped", 1),
    ],
)
def test_all_end_and_the_reason_is_told_once(many: Many, what: str, first: str, status: int) -> None:
    started = time.monotonic()
    done = many.run("run", "ENV.TIMEOUT=4", hooks=_trouble(what), nproc=2)
    assert time.monotonic() - started < 45  # start-up, and 30 s from the failure to the end of the last process
    assert done.status == status
    assert done.err.startswith(first)
    assert done.err.count("failed:") == 1
    told = {
        "raise": "ValueError: no more\nraised by Trouble (team_task.py) in after_iter, train epoch 2, iteration 3\n",
        "kill": "was killed by SIGKILL\n",
        "exit": "ended with status 7\n",
        "hang": "time.sleep(600)\n",
        "stop": "code that lets no thread run.\n",
    }[what]
    assert done.err.count(told) == 1
    assert [path.name for path in (done.work_dir / "checkpoints").iterdir()] == ["ldm_step-5.pth"] or what != "raise"


def test_a_process_that_stands_still_is_missed(many: Many) -> None:
    started = time.monotonic()
    done = many.run("run", "ENV.HEARTBEAT_TIMEOUT=5", hooks=_trouble("stop"), nproc=2)
    assert time.monotonic() - started < 40
    assert done.status == 1
    assert done.err == f"rank 1 on {socket.gethostname()} was not heard of for 5 s: it stands still\n"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_after_a_restart_the_run_ends_as_if_nothing_had_been(many: Many, strategy: str) -> None:
    arguments = (f"ENV.STRATEGY={strategy}", "SOLVER.MODEL.DROP=0.5", "SOLVER.MAX_EPOCHS=3")
    calm = many.run("calm", *arguments, hooks=EPOCHS, nproc=2)
    done = many.run("run", *arguments, "--max-restarts", "1", hooks=_trouble("kill").replace("kill", "kill, AT: 13"), nproc=2)
    assert (calm.status, done.status) == (0, 0), done.err
    assert "resumed from" in done.out
    one, other = calm.state(), done.state()
    for state in (one, other):
        del state["config"]
        del state["hooks"]["train/LogHook"]["state"]["length"]  # the file's times have other digits
    other["hooks"].pop("train/Trouble", None)
    assert_same(one, other)
    assert calm.rows == done.rows


def test_a_restart_never_goes_on_from_another_run(many: Many) -> None:
    many.run("run", hooks=EPOCHS)  # leaves 10, 20 and last
    back = ("--max-restarts", "1", "--resume", f"{many.folder}/run/checkpoints/ldm_step-10.pth")
    done = many.run("run", *back, nproc=2)
    assert done.status == 2
    assert f"SOLVER.RESUME_FROM: after a failure the run would go on from {many.folder}/run/checkpoints/ldm_" in done.err
    done = many.run("other", *back, nproc=2)
    assert done.status == 0, done.err


def test_what_is_over_is_not_begun_anew(many: Many) -> None:
    restarts = ("--max-restarts", "2")
    done = many.run("run", *restarts, "SOLVER.MAX_EPOCHS=8", hooks=f"{{NAME: Told}}, {_trouble('term')}", nproc=2)
    assert (done.status, done.err) == (143, "stopped by SIGTERM\n")
    assert done.out.count("pids") == 1
    again = many.run("run", *restarts, "SOLVER.MAX_EPOCHS=8", hooks=EPOCHS, nproc=2)
    assert again.status == 2
    assert again.err.count("holds the checkpoints of an earlier run") == 1
    assert again.out == ""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_saves_once_and_ends_all(many: Many, signum: int) -> None:
    hooks = f"[{{NAME: BackwardHook}}, {{NAME: Told}}, {EPOCHS}]"
    command = many.command("run", f"SOLVER.TRAIN_HOOKS={hooks}", "SOLVER.MAX_EPOCHS=1000", "--nproc", "2")
    process = subprocess.Popen(
        command, cwd=many.folder, env=many.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not process.stdout.readline().startswith("pids"):
        pass
    time.sleep(0.7)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert err == f"stopped by {signal.Signals(signum).name}\n"
    steps = sorted(int(path.stem.rsplit("-", 1)[1]) for path in (many.folder / "run/checkpoints").iterdir())
    assert [step for step in steps if step % 5] in ([steps[-1]], [])


def test_a_signal_to_one_process_reaches_all(many: Many) -> None:
    done = many.run("run", "SOLVER.MAX_EPOCHS=8", hooks=f"{{NAME: Told}}, {_trouble('term')}", nproc=2)
    assert (done.status, done.err) == (143, "stopped by SIGTERM\n")
    ended = many.run("run", "SOLVER.MAX_EPOCHS=8", "--resume", "auto", hooks=EPOCHS, nproc=2)
    calm = many.run("calm", "SOLVER.MAX_EPOCHS=8", hooks=EPOCHS, nproc=2)
    assert ended.status == 0
    assert_same(calm.state()["model"], ended.state()["model"])


def test_sigusr1_saves_in_the_midst(many: Many) -> None:
    hooks = f"{{NAME: Told}}, {{NAME: Trouble, WHAT: save, AT: 6}}, {LAST}"  # which saves at the end, and under no number
    done = many.run("run", "SOLVER.MAX_EPOCHS=8", hooks=hooks, nproc=2)
    assert done.status == 0, done.err
    [step] = [int(path.stem.rsplit("-", 1)[1]) for path in (done.work_dir / "checkpoints").glob("*[0-9].pth")]
    assert 6 < step < 40
