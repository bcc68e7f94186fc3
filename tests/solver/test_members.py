"""Members of a solver that a run alone does not show."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn

from scepter_core import MODELS, SOLVERS, BaseSolver, RunError, TrainValSolver, load_config, run


def _built(config):
    solver = SOLVERS.build(load_config(config).SOLVER)
    solver.set_up_pre()
    solver.set_up()
    return solver


@MODELS.register_class()
class KeywordNet(nn.Module):
    """Keyword-only inputs, a dict of inputs, BatchNorm, Dropout."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 5, bias=False)
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(5, 2, bias=False)

    def forward(self, *, x, extra=None):
        hidden = self.drop(self.norm(self.layer(x)))
        if extra is not None:
            hidden = hidden + self.layer(extra["x"])
        return {"result": self.head(hidden)}


def test_flops_of_one_sample_and_no_trace(configure):
    solver = _built(configure(MODEL={"NAME": "KeywordNet"}))
    model = solver.model
    model.layer.weight.grad = torch.ones_like(model.layer.weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    draws = (random.random(), np.random.rand(), torch.rand(3))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    solver.register_flops({"x": torch.randn(7, 3), "extra": {"x": torch.randn(7, 3)}, "unused": 1}, keys=["x"])
    norm = 2 * 5  # fvcore counts two operations an element of a batch norm in eval mode
    assert solver._model_flops == 3 * 5 + 5 * 2 + norm
    solver.register_flops({"x": torch.randn(7, 3), "extra": {"x": torch.randn(7, 3)}})
    assert solver._model_flops == 2 * 3 * 5 + 5 * 2 + norm
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    again = (random.random(), np.random.rand(), torch.rand(3))
    assert draws[:2] == again[:2]
    assert torch.equal(draws[2], again[2])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(model.layer.weight.grad, torch.ones_like(model.layer.weight))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_flops_of_inputs_that_are_not_there(configure):
    solver = _built(configure(MODEL={"NAME": "KeywordNet"}))
    with pytest.raises(RunError, match="no y among the inputs x"):
        solver.register_flops({"x": torch.randn(7, 3)}, keys=["x", "y"])


def test_safetensors_export_stores_tied_weights_once(configure):
    @MODELS.register_class()
    class TiedNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.table.weight
            self.register_buffer("slice", torch.arange(12.0).reshape(3, 4).t())

        def forward(self, x):
            return self.head(self.table(x))

    solver = _built(configure(MODEL={"NAME": "TiedNet"}))
    tensors, metadata = solver.save_safetensors()
    assert sorted(tensors) == ["slice", "table.weight"]
    assert all(tensor.is_contiguous() for tensor in tensors.values())
    assert torch.equal(tensors["slice"], solver.model.slice)
    assert metadata == {"format": "pt", "step": "0", "epoch": "0"}


def test_log_vars_are_the_rates_of_the_groups(configure):
    solver = _built(
        configure(
            OPTIMIZER={
                "NAME": "SGD",
                "LEARNING_RATE": 0.1,
                "PARAM_GROUPS": [{"PATTERN": "net.3.*", "LEARNING_RATE": 0.01}],
            },
            MODEL={"NAME": "NormDropNet"},
        )
    )
    assert list(solver.collect_log_vars().items()) == [("pg0_lr", 0.1), ("pg1_lr", 0.01)]


def test_model_to_device_gives_back_another_model(configure):
    solver = _built(configure())
    other = nn.Linear(2, 2)
    assert solver.model_to_device(other) is other
    assert solver.model_to_device() is None


@pytest.mark.parametrize(("precision", "kind"), [("32", torch.float32), ("bf16", torch.bfloat16), ("16", torch.float16)])
def test_train_precision(configure, precision, kind):
    seen = []

    @MODELS.register_class()
    class PrecisionNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1, bias=False)

        def forward(self, x):
            out = self.layer(x.reshape(-1, 1))
            seen.append(out.dtype)
            return {"loss": out.float().mean()}

    solver = run(configure(MODEL={"NAME": "PrecisionNet"}, TRAIN_PRECISION=precision, MAX_EPOCHS=1))
    assert set(seen) == {kind}
    assert (solver.scaler is not None) == (precision == "16")
    # 16: the first scale, 65536, overflows; the scaler leaves that update out and halves it
    assert solver.total_updates == (2 if precision == "16" else 3)
    assert solver.model.layer.weight.dtype == torch.float32


def test_compile_keeps_the_names(configure):
    solver = _built(configure(ENV={"DEVICE": "cpu", "COMPILE": True}))
    assert list(solver.model.state_dict()) == ["w"]


def test_a_solver_of_ones_own(configure):
    calls = []

    @SOLVERS.register_class()
    class OwnLossSolver(BaseSolver):
        def __init__(self, cfg, logger=None):
            super().__init__(cfg, logger=logger)
            self.factor = cfg.get("FACTOR", 1.0)

        def run_step_train(self, batch_data, batch_idx=0, step=None, rank=None):
            calls.append((batch_idx, step, rank))
            outputs = super().run_step_train(batch_data, batch_idx, step, rank)
            return {"loss": outputs["loss"] * self.factor}

        def collect_log_vars(self):
            return super().collect_log_vars() | {"factor": self.factor}

    solver = run(configure(NAME="OwnLossSolver", FACTOR=2.0))
    assert float(solver.model.w) == -12.0
    assert calls == [(0, 0, 0), (1, 1, 0), (2, 2, 0), (0, 3, 0), (1, 4, 0), (2, 5, 0)]
    assert solver.collect_log_vars()["factor"] == 2.0


def test_a_run_train_that_runs_all_epochs_ends_the_loop(configure):
    @SOLVERS.register_class()
    class AllAtOnceSolver(TrainValSolver):
        def run_train(self):
            super().run_train()
            while self.epoch < self.max_epochs:
                self.epoch += 1
                self.counters.iter["train"] = 0
                super().run_train()

    solver = run(configure(NAME="AllAtOnceSolver", MAX_EPOCHS=3))
    assert (solver.epoch, solver.train_steps, float(solver.model.w)) == (3, 9, -9.0)


def test_a_solver_whose_members_are_its_own(configure):
    """A GAN's way: two optimizers, no BackwardHook, a loader of its own."""

    @SOLVERS.register_class()
    class PairSolver(BaseSolver):
        def construct_data(self):
            self.datas["train"] = [{"x": torch.tensor([float(k)])} for k in (1, 2, 3)]

        def construct_model(self):
            self.model = nn.ModuleDict({"a": nn.Linear(1, 1, bias=False), "b": nn.Linear(1, 1, bias=False)})
            nn.init.zeros_(self.model["a"].weight)
            nn.init.zeros_(self.model["b"].weight)

        def init_opti(self):
            self.optimizers = {name: torch.optim.SGD(part.parameters(), lr=1.0) for name, part in self.model.items()}

        def run_step_train(self, batch_data, batch_idx=0, step=None, rank=None):
            outputs = {}
            for name, sign in (("a", 1), ("b", -1)):
                loss = sign * self.model[name](batch_data["x"].reshape(1, 1)).mean()
                loss.backward()
                self.optimizers[name].step()
                self.optimizers[name].zero_grad()
                outputs[f"loss_{name}"] = loss
            return outputs

    solver = run(configure(NAME="PairSolver", TRAIN_HOOKS=[], MAX_EPOCHS=1))
    assert solver.steps_per_epoch == 3
    assert [float(part.weight.detach()) for part in solver.model.values()] == [-6.0, 6.0]


def test_probes_of_model_and_solver_last_one_step(configure):
    from scepter_core import HOOKS, Hook, Probing

    seen = []

    @MODELS.register_class()
    class ProbingNet(Probing, nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            if x.mean() != 2:
                self.register_probe({"x": float(x.mean()), "who": "model"})
            return {"loss": self.w * x.mean()}

    @HOOKS.register_class()
    class ProbeReader(Hook):
        def after_iter(self, solver):
            seen.append(dict(solver.probe_data))
            if solver.train_steps == 2:
                solver.register_probe({"who": "solver"})
                seen.append(dict(solver.probe_data))

    data = {"NAME": "Floats", "VALUES": [1, 2, 3], "SHUFFLE": False}
    run(configure(MODEL={"NAME": "ProbingNet"}, TRAIN_DATA=data, MAX_EPOCHS=1, TRAIN_HOOKS=[{"NAME": "ProbeReader"}]))
    assert seen == [{"x": 1.0, "who": "model"}, {}, {"who": "solver"}, {"x": 3.0, "who": "model"}]


def test_entries_that_forward_has_no_parameter_for_are_named(configure):
    rows = {"NAME": "Rows", "BATCH_SIZE": 4}  # of x and y
    with pytest.raises(RunError) as caught:
        run(configure(TRAIN_DATA=rows))
    assert str(caught.value) == (
        "the model's forward and the train data do not fit: got an unexpected keyword argument 'y'\n"
        "    forward takes: x\n    a batch holds: x, y"
    )
