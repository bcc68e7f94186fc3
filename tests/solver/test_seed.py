"""What docs/seed.md shows and no other test does: the calls of a user, one after the other, and the order of hooks."""

from __future__ import annotations

import functools

import pytest

import scepter_core
from scepter_core import SOLVERS, BaseSolver, load_config


@pytest.fixture
def solver(configure):
    cfg = load_config(
        configure(
            EVAL_DATA={"NAME": "Floats", "VALUES": [1]},
            METRICS=[{"NAME": "MeanMetric", "KEYS": ["mean"], "LOG_NAME": "average"}],
            LR_SCHEDULER={"NAME": "StepLR", "STEP_SIZE": 1},
            TRAIN_HOOKS=[{"NAME": "LrHook", "WARMUP_FUNC": None}, {"NAME": "BackwardHook"}],
            EVAL_HOOKS=[{"NAME": "LogHook"}],
        )
    )
    return SOLVERS.build(cfg.SOLVER, logger=None)


def test_a_solver_is_registered_built_and_run(solver, tmp_path):
    assert isinstance(solver, BaseSolver)
    assert type(solver) is scepter_core.TrainValSolver
    assert (solver.datas, solver.optimizer, list(solver.model.parameters())) == ({}, None, [])
    assert not (tmp_path / "run").exists()
    solver.set_up_pre()
    solver.set_up()
    solver.solve()
    assert (solver.epoch, solver.total_updates) == (2, 6)
    assert float(solver.model.w) == pytest.approx(-3.3)  # three updates at rate 1, three at 0.1


def telling(order, call):
    @functools.wraps(call)
    def told():
        order.append(call.__name__)
        return call()

    return told


def test_the_calls_of_a_user_build_in_order(solver, monkeypatch):
    order = []
    for name in ("construct_hook", "construct_data", "construct_model", "construct_metrics", "model_to_device", "init_opti"):
        monkeypatch.setattr(solver, name, telling(order, getattr(solver, name)))
    solver.set_up_pre()
    assert order == ["construct_hook"]
    assert {mode: [type(hook).__name__ for hook in hooks] for mode, hooks in solver.hooks_dict.items()} == {
        "train": ["LrHook", "BackwardHook"], "eval": ["LogHook"], "test": [],
    }  # fmt: skip
    solver.set_up()
    assert order[1:] == ["construct_data", "construct_model", "construct_metrics", "model_to_device", "init_opti"]
    assert {mode: len(data.dataset) for mode, data in solver.datas.items()} == {"train": 3, "eval": 1}
    assert [name for name, _ in solver.model.named_parameters()] == ["w"]
    assert solver.metrics.compute("eval") == {}
    assert [group["lr"] for group in solver.optimizer.param_groups] == [1.0]
    assert type(solver.lr_scheduler).__name__ == "StepLR"


def test_priorities(configure):
    names = ("CheckpointHook", "BackwardHook", "LogHook", "TensorboardLogHook", "LrHook", "DistSamplerHook", "ProbeDataHook",
             "SafetensorsHook")
    cfg = load_config(configure(TRAIN_HOOKS=[{"NAME": name} for name in names]))
    solver = SOLVERS.build(cfg.SOLVER)
    solver.set_up_pre()
    assert {type(hook).__name__: hook.priority for hook in solver.hooks_dict["train"]} == {
        "CheckpointHook": 300, "BackwardHook": 0, "LogHook": 100, "TensorboardLogHook": 100, "LrHook": 200,
        "DistSamplerHook": 400, "ProbeDataHook": 200, "SafetensorsHook": 200,
    }  # fmt: skip
