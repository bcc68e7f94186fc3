"""SIGTERM and SIGINT: the run ends where it stands, and goes on from there."""

from __future__ import annotations

import os
import signal
import time

import pytest

from scepter_core import Stopped

EIGHT = [1.0] * 8


def go_on(job):
    """Resume in this process, to the end, without the hook that sends signals."""
    solver = job.run(
        "SOLVER.RESUME_FROM=auto", "SOLVER.TRAIN_HOOKS[Signal]=!delete", "SOLVER.TRAIN_DATA.SECONDS=0"
    )
    assert solver.total_updates == 8
    return float(solver.model.w.detach())


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_g15_signal_in_a_step(probe, recorder, signum, status):
    job = probe(
        EIGHT, epochs=1, SAVE_LAST=True, hooks=[{"NAME": "Signal", "AT_STEP": 3, "SIGNUM": int(signum)}]
    )
    with pytest.raises(Stopped) as caught:
        job.run()
    assert (caught.value.exit_status, caught.value.signum) == (status, signum)
    assert signum.name in str(caught.value)
    assert job.names == {"p-3"}, "one save, and no last one"
    assert job.weight("p-3") == -3.0
    assert go_on(job) == -8.0
    assert job.weight("p-last") == -8.0


def test_g15_kind_of_the_file_is_signal(probe, monkeypatch):
    from scepter_core import HOOKS, Hook, hookimpl

    kinds = []

    @HOOKS.register_class()
    class CheckpointTestKinds(Hook):
        @hookimpl(optionalhook=True)
        def on_checkpoint(self, solver, path, kind):
            kinds.append(kind)

    job = probe(EIGHT, epochs=1, hooks=[{"NAME": "Signal", "AT_STEP": 3}, {"NAME": "CheckpointTestKinds"}])
    with pytest.raises(Stopped):
        job.run()
    assert kinds == ["signal"]


def test_g15_signal_in_mid_window_keeps_its_gradient(probe):
    job = probe([2.0] * 8, epochs=1, hooks=[{"NAME": "Signal", "AT_STEP": 3}], solver={"ACCU_STEP": 2})
    with pytest.raises(Stopped):
        job.run()
    assert job.read("p-3")["window"]["count"] == 1
    solver = job.run("SOLVER.RESUME_FROM=auto", "SOLVER.TRAIN_HOOKS[Signal]=!delete")
    assert (float(solver.model.w.detach()), solver.total_updates) == (-8.0, 4)


def test_g15_signal_in_the_last_step_of_an_epoch_skips_nothing(probe, recorder):
    job = probe(epochs=2, evals=[0.5, 0.7], SAVE_BEST_BY="acc", hooks=[{"NAME": "Signal", "AT_STEP": 3}])
    with pytest.raises(Stopped):
        job.run()
    assert job.names == {"p-3"}
    solver = job.run("SOLVER.RESUME_FROM=auto", "SOLVER.TRAIN_HOOKS[Signal]=!delete")
    assert recorder(solver).evals == [1, 2]
    assert solver.total_updates == 6
    assert job.read("p-best")["epoch"] == 2


def test_g15_signal_during_eval(probe, recorder):
    job = probe(
        [1.0] * 4, epochs=2, evals=[0.5, 0.7], SAVE_BEST_BY="acc", INTERVAL=0,
        eval_hooks=[{"NAME": "Signal", "AT_EVAL": 1}],
    )  # fmt: skip
    with pytest.raises(Stopped):
        job.run()
    assert job.names == {"p-4"}
    assert job.read("p-4")["position"]["pending"] == ["eval"], "the eval that was cut is still to come"
    assert job.read("p-4")["total_iter"] == {"train": 4, "eval": 0, "test": 0}, "and counts from its beginning"
    solver = job.run("SOLVER.RESUME_FROM=auto", "SOLVER.EVAL_HOOKS[Signal]=!delete")
    assert recorder(solver).evals == [1, 2]
    assert float(solver.model.w.detach()) == -8.0
    assert job.read("p-best")["epoch"] == 2


def test_g15_keep_last_counts_the_signals_file(probe):
    job = probe(
        EIGHT, epochs=1, INTERVAL=0, INTERVAL_STEPS=2, KEEP_LAST=1, hooks=[{"NAME": "Signal", "AT_STEP": 5}]
    )
    with pytest.raises(Stopped):
        job.run()
    assert job.names == {"p-5"}


def test_time_limit_ends_the_run_as_sigterm_does(probe):
    job = probe(EIGHT, epochs=1, data={"SECONDS": 0.1}, hooks=[{"NAME": "Signal"}])
    with pytest.raises(Stopped) as caught:
        job.run(max_seconds=0.4)
    assert caught.value.exit_status == 143
    (name,) = job.names
    assert name in {f"p-{step}" for step in range(8)}
    assert job.weight(name) == -float(name.removeprefix("p-"))
    assert go_on(job) == -8.0


@pytest.mark.parametrize(
    ("to_all", "signum", "status"), [(False, signal.SIGTERM, 143), (True, signal.SIGINT, 130)]
)
def test_g15_signal_from_outside_with_workers(probe, to_all, signum, status):
    """As a scheduler ends a job, and as Ctrl-C does, which reaches the workers too."""
    job = probe(
        EIGHT, epochs=1, data={"SECONDS": 0.4, "NUM_WORKERS": 2}, hooks=[{"NAME": "Signal", "SAY": True}]
    )
    child, output = job.start()
    with output:
        for line in output:
            if line.strip() == "step 3":
                (os.killpg if to_all else os.kill)(child, signum)
                break
        rest = output.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status, rest
    assert "Traceback" not in rest
    (name,) = job.names
    assert name in ("p-3", "p-4", "p-5")  # two batches are made at a time
    assert job.weight(name) == -float(name.removeprefix("p-"))
    deadline = time.monotonic() + 5
    with pytest.raises(ProcessLookupError):  # noqa: PT012  # nothing of the session is left
        while time.monotonic() < deadline:
            os.killpg(child, 0)
            time.sleep(0.05)
    assert go_on(job) == -8.0


def test_g15_second_interrupt_in_the_save_leaves_no_broken_file(probe):
    hooks = [{"NAME": "Signal", "AT_STEP": 3, "SIGNUM": int(signal.SIGINT)}, {"NAME": "InterruptInWrite"}]
    job = probe(EIGHT, epochs=1, hooks=hooks)
    done = job.process()
    assert done.returncode == 130, done.stderr
    assert {name for name in job.names if not name.startswith(".")} <= {"p-3"}
    if "p-3" in job.names:
        assert job.weight("p-3") == -3.0
    solver = job.run(
        "SOLVER.RESUME_FROM=auto",
        "SOLVER.TRAIN_HOOKS[Signal]=!delete",
        "SOLVER.TRAIN_HOOKS[InterruptInWrite]=!delete",
    )
    assert float(solver.model.w.detach()) == -8.0


@pytest.mark.parametrize("background", [True, False])
def test_g15_sigterm_in_a_save_lets_it_end(probe, background):
    hooks = [{"NAME": "InterruptInWrite", "SIGNUM": int(signal.SIGTERM)}]
    job = probe(EIGHT, epochs=1, INTERVAL_STEPS=2, ASYNC=background, hooks=hooks, data={"SECONDS": 0.05})
    done = job.process()
    assert done.returncode == 143, done.stderr
    assert job.names in ({"p-2"}, {"p-2", "p-3"})  # in the background the next step may be under way
    assert [job.weight(name) for name in sorted(job.names)] == [-2.0, -3.0][: len(job.names)]
    solver = job.run("SOLVER.RESUME_FROM=auto", "SOLVER.TRAIN_HOOKS[InterruptInWrite]=!delete")
    assert float(solver.model.w.detach()) == -8.0


def test_sigusr1_saves_and_the_run_goes_on(probe, recorder):
    hooks = [{"NAME": "Signal", "AT_STEP": 2, "SIGNUM": int(signal.SIGUSR1), "PRIORITY": 0}]
    job = probe([1.0] * 5, epochs=1, INTERVAL=0, hooks=hooks)
    solver = job.run()
    assert job.names == {"p-2"}
    assert float(solver.model.w.detach()) == -5.0
