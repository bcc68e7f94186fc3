"""How a run ends before its end: errors, requests, interrupts; and what is refused before it begins."""

from __future__ import annotations

import logging
import os
import signal
import traceback

import lightning.pytorch
import pytest
import torch

from scepter_core import SOLVERS, BaseSolver, ConfigError, Stopped, TrainValSolver, run


@SOLVERS.register_class()
class LightningTestOwnStep(TrainValSolver):
    """Halves the batch: what `run_step_train` may do."""

    def run_step_train(self, batch_data, batch_idx=0, step=None, rank=None):
        assert step == self.total_iter
        return super().run_step_train({"x": batch_data["x"] / 2}, batch_idx, step, rank)


@SOLVERS.register_class()
class LightningTestOwnLoop(TrainValSolver):
    def run_train(self):
        super().run_train()


def fail(error):
    def act(solver):
        raise error

    return act


def ended(config, use_pl, kind, **keys):
    """The run's solver, and what ended it."""
    solver = SOLVERS.build(_loaded(config(use_pl, **keys)), logger=logging.Logger("test"))
    solver.set_up_pre()
    solver.set_up()
    with pytest.raises(kind) as raised:
        solver.solve()
    return solver, raised.value


def _loaded(settings):
    from scepter_core import load_config

    return load_config(settings).solver


@pytest.mark.parametrize("event", ["before_epoch", "before_iter", "after_iter", "after_epoch"])
def test_an_error_in_a_hook(config, acts, event):
    error = ValueError("on purpose")
    acts[event, 3] = fail(error)
    rows = []
    for use_pl in (False, True):
        solver, raised = ended(config, use_pl, ValueError)
        assert raised is error
        assert traceback.extract_tb(raised.__traceback__)[-1].name == "act"
        assert [row[0] for row in solver.rows[-2:]] == ["on_exception", "after_solve"]
        assert sum(row[0] in ("on_exception", "after_solve") for row in solver.rows) == 2
        rows.append(solver.rows)
    assert rows[0] == rows[1]


def test_an_error_in_the_model(config, monkeypatch):
    rows = []
    for use_pl in (False, True):
        with monkeypatch.context() as patch:
            calls = iter(range(10))

            def forward(self, x, calls=calls):
                if next(calls) == 4:
                    raise FloatingPointError("in the model")
                return {"loss": self.net(x).mean()}

            from scepter_core import MODELS

            patch.setattr(MODELS.get("LightningTestNet"), "forward", forward)
            solver, raised = ended(config, use_pl, FloatingPointError)
        assert traceback.extract_tb(raised.__traceback__)[-1].name == "forward"
        rows.append(solver.rows)
    assert rows[0] == rows[1]
    assert rows[0][-2][1:6] == ("train", 2, 1, 4, 4)


@pytest.mark.parametrize("event", ["before_epoch", "before_all_iter", "after_iter", "after_all_iter", "after_epoch"])
def test_a_stray_stop_iteration_is_no_end_of_the_training(config, acts, event):
    acts[event, 3] = fail(StopIteration("stray"))
    _, raised = ended(config, True, RuntimeError)
    assert "StopIteration" in str(raised)
    assert repr(raised.__cause__) == "StopIteration('stray')"


def test_an_interrupt_stays_one(config, acts):
    acts["after_iter", 2] = fail(KeyboardInterrupt())
    before = signal.getsignal(signal.SIGINT)
    solver, _ = ended(config, True, KeyboardInterrupt)
    assert solver.rows[-2][-2:] == ("KeyboardInterrupt", "")
    assert signal.getsignal(signal.SIGINT) is before


def test_an_exit_stays_one(config, acts):
    acts["after_iter", 2] = fail(SystemExit(7))
    _, raised = ended(config, True, SystemExit)
    assert raised.code == 7


def test_a_request_ends_it_after_the_step(config, acts):
    acts["before_iter", 3] = lambda solver: solver.request_stop(signal.SIGTERM)
    rows = []
    for use_pl in (False, True):
        solver, raised = ended(config, use_pl, Stopped)
        assert (raised.signum, solver.train_steps, solver.iter) == (signal.SIGTERM, 4, 1)
        rows.append(solver.rows)
    assert rows[0] == rows[1]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_the_runs(config, acts, signum):
    handlers = []
    acts["before_iter", 1] = lambda solver: handlers.append(signal.getsignal(signum).__qualname__)
    acts["before_iter", 4] = lambda solver: os.kill(os.getpid(), signum)
    before = signal.getsignal(signum)
    for use_pl in (False, True):
        with pytest.raises(Stopped) as raised:
            run(config(use_pl), logger=logging.Logger("test"))
        assert raised.value.signum == signum
        assert signal.getsignal(signum) is before
    assert handlers == ["_signals.<locals>.stop"] * 2


@pytest.mark.parametrize("event", ["after_iter", "on_exception"])
def test_a_second_interrupt_ends_it_at_once(config, acts, event):
    acts["before_iter", 2] = acts[event, 3] = lambda solver: os.kill(os.getpid(), signal.SIGINT)
    for use_pl in (False, True):
        with pytest.raises(KeyboardInterrupt):
            run(config(use_pl), logger=logging.Logger("test"))


def test_a_solver_with_a_step_of_its_own(train):
    native, lightning = (train(use_pl, NAME="LightningTestOwnStep") for use_pl in (False, True))
    assert lightning.rows == native.rows
    assert lightning.rows != train(True).rows


def test_a_solver_with_a_loop_of_its_own_is_refused(train):
    assert train(False, NAME="LightningTestOwnLoop").solver.train_steps == 6
    with pytest.raises(ConfigError) as raised:
        train(True, NAME="LightningTestOwnLoop")
    assert str(raised.value) == (
        "ENV.USE_PL: LightningTestOwnLoop has a run_train of its own, and the Trainer's loop would take its place\n"
        "    found:    true\n"
        "    hint:     set USE_PL to false; or override run_iteration or run_step_train instead, which both loops call"
    )


def test_several_processes_are_refused(train, monkeypatch):
    monkeypatch.setattr(BaseSolver, "world_size", 2)
    with pytest.raises(ConfigError, match="the Trainer runs in one process here, and the run has 2"):
        train(True)


def test_the_environment_of_slurm_changes_nothing(train, monkeypatch):
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "1", "SLURM_PROCID": "2"}.items():
        monkeypatch.setenv(name, value)
    handlers = signal.getsignal(signal.SIGUSR1)
    assert train(True).weights == train(False).weights
    assert signal.getsignal(signal.SIGUSR1) is handlers


def test_the_variables_of_lightning_change_nothing(train, monkeypatch):
    for name, value in {"LIMIT_TRAIN_BATCHES": "1", "PRECISION": "bf16-mixed", "FAST_DEV_RUN": "1"}.items():
        monkeypatch.setenv(f"PL_TRAINER_{name}", value)
    assert train(True).weights == train(False).weights


@pytest.mark.parametrize("wanted", [False, True])
def test_switches_of_torch_stay_as_env_says(config, acts, wanted):
    seen = []
    acts["after_iter", 2] = lambda solver: seen.append(
        (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    )
    for use_pl in (False, True):
        settings = config(use_pl)
        settings["ENV"] |= {"DETERMINISTIC": wanted, "CUDNN_BENCHMARK": False}
        run(settings, logger=logging.Logger("test"))
    torch.use_deterministic_algorithms(False)
    assert seen == [(wanted, wanted, False)] * 2


def test_nothing_is_left_and_nothing_is_said(train, tmp_path, capfd, monkeypatch, recwarn):
    monkeypatch.chdir(tmp_path)
    train(True)
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir()] == ["lightning"]
    assert sorted(path.name for path in (tmp_path / "lightning" / "run").iterdir()) == ["config.yaml", "std_log.txt"]


def test_model_and_optimizer_stay_where_they_are(train, monkeypatch):
    monkeypatch.setattr(lightning.pytorch.LightningModule, "cpu", lambda module: pytest.fail("moved to the CPU"))
    assert train(True).solver.train_steps == 6
