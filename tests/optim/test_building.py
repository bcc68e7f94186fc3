"""Optimizers from configurations: parameter groups, options, and every class that torch has."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scepter_core import OPTIMIZERS, ConfigError, run
from scepter_core.optim import build_optimizer, optimizer_names


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 2, bias=False)


def _build(**keys):
    section = OPTIMIZERS.validate({"NAME": "SGD", "LEARNING_RATE": 0.1, **keys})
    return build_optimizer(section, Net())


def test_parameters_go_to_the_first_group_that_fits():
    optimizer = _build(
        WEIGHT_DECAY=0.5,
        MOMENTUM=0.9,
        PARAM_GROUPS=[
            {"PATTERN": ["*.bias", "norm.*"], "WEIGHT_DECAY": 0.0},
            {"PATTERN": "head.*", "LEARNING_RATE": 0.01, "MOMENTUM": 0.0},
        ],
    )
    groups = [
        ([tuple(p.shape) for p in g["params"]], g["lr"], g["weight_decay"], g["momentum"]) for g in optimizer.param_groups
    ]
    assert groups == [
        ([(4, 3)], 0.1, 0.5, 0.9),
        ([(4,), (4,), (4,)], 0.1, 0.0, 0.9),
        ([(2, 4)], 0.01, 0.5, 0.0),
    ]


def test_an_empty_rest_makes_no_group():
    assert len(_build(PARAM_GROUPS=[{"PATTERN": "*", "LEARNING_RATE": 0.3}]).param_groups) == 1


def test_a_pattern_that_fits_nothing_is_refused():
    with pytest.raises(ConfigError) as caught:
        _build(PARAM_GROUPS=[{"PATTERN": "*.bias"}, {"PATTERN": "haed.*"}])
    (problem,) = caught.value.problems
    assert problem.path == "SOLVER.OPTIMIZER.PARAM_GROUPS[1].PATTERN"
    assert problem.message == "no parameter is left that fits"
    assert problem.found == "haed.*"


def test_an_option_that_the_optimizer_lacks_is_refused():
    with pytest.raises(ConfigError) as caught:
        _build(PARAM_GROUPS=[{"PATTERN": "*.bias", "WEIGHT_DECAYS": 0.0}])
    (problem,) = caught.value.problems
    assert (problem.path, problem.hint) == (
        "SOLVER.OPTIMIZER.PARAM_GROUPS[0].WEIGHT_DECAYS",
        "did you mean WEIGHT_DECAY?",
    )


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"WEIGHT_DECAY": "much"}, ".WEIGHT_DECAY", "must be a number"),
        ({"MOMENTUM": True}, ".MOMENTUM", "must be a number"),
        ({"WEIGHT_DECAY": -1}, "", "SGD refuses a value: Invalid weight_decay value: -1.0"),
    ],
)
def test_the_options_of_a_group_are_checked_as_the_optimizers_own(entry, path, message):
    with pytest.raises(ConfigError) as caught:
        _build(PARAM_GROUPS=[{"PATTERN": "*.bias", **entry}])
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (f"SOLVER.OPTIMIZER.PARAM_GROUPS[0]{path}", message)


@pytest.mark.parametrize(("fused", "expected"), [("auto", True), (True, True), (False, False), (None, None)])
def test_fused(fused, expected):
    assert _build(FUSED=fused).defaults["fused"] is expected


def test_fused_auto_is_off_where_it_cannot_work():
    section = OPTIMIZERS.validate({"NAME": "SGD", "LEARNING_RATE": 0.1})
    assert build_optimizer(section, nn.Embedding(3, 2, sparse=True)).defaults["fused"] is None
    assert _build(FOREACH=True).defaults["fused"] is None


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), True, "fast"])
def test_a_learning_rate_is_finite_and_positive(rate):
    with pytest.raises(ConfigError, match="LEARNING_RATE"):
        OPTIMIZERS.validate({"NAME": "SGD", "LEARNING_RATE": rate})


@pytest.mark.parametrize("name", sorted(optimizer_names()))
def test_every_optimizer_of_torch_trains_or_says_why_it_cannot(configure, name):
    keys = {
        "TRAIN_DATA": {"NAME": "Rows", "BATCH_SIZE": 4},
        "MODEL": {"NAME": "NormDropNet" if name != "Muon" else "MatrixNet"},
        "OPTIMIZER": {"NAME": name, "LEARNING_RATE": 0.01},
        "MAX_EPOCHS": 1,
    }
    if name == "LBFGS":
        with pytest.raises(ConfigError, match="LBFGS needs a closure"):
            run(configure(**keys))
        return
    if name == "SparseAdam":
        keys["MODEL"] = {"NAME": "SparseNet"}
    solver = run(configure(**keys))
    assert type(solver.optimizer) is getattr(torch.optim, name)
    assert solver.total_updates == 4
    assert all(torch.isfinite(value).all() for value in solver.model.state_dict().values())


def test_a_value_that_torch_refuses_is_a_config_error():
    with pytest.raises(ConfigError, match=r"SOLVER\.OPTIMIZER: SGD refuses a value: Invalid momentum value: -1"):
        _build(MOMENTUM=-1)


def test_what_torch_refuses_by_another_error_is_a_config_error_too():
    with pytest.raises(ConfigError, match="SGD refuses a value: `fused` and `foreach` cannot be `True` together"):
        _build(FUSED=True, FOREACH=True)
