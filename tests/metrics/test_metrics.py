"""Means and metrics: exact, weighted by batch size, reset between epochs."""

from __future__ import annotations

import math

import pytest
import torch
import torchmetrics

from scepter_core import METRICS, ConfigError, RunError, run
from scepter_core.metrics import WeightedMeans
from scepter_core.metrics.accuracy import AccuracyMetric

ACCURACY = {"NAME": "AccuracyMetric", "KEYS": ["logits", "y"]}
NET = {
    "TRAIN_DATA": {"NAME": "Rows", "BATCH_SIZE": 4},
    "EVAL_DATA": {"NAME": "Rows", "SIZE": 10, "BATCH_SIZE": 4},
    "MODEL": {"NAME": "NormDropNet"},
    "MAX_EPOCHS": 1,
}


def test_e10_means_are_weighted_by_batch_size(configure):
    data = {"NAME": "Floats", "VALUES": [10, 10, 9], "BATCH_SIZE": 2}
    solver = run(configure(EVAL_DATA=data, MAX_EPOCHS=1))
    assert solver.epoch_outputs["eval"]["mean"] == pytest.approx(9.666667, abs=1e-6)


def test_means_fold_and_take_numbers_tensors_and_gaps():
    means = WeightedMeans()
    for k in range(200):
        outputs = {"tensor": torch.tensor(float(k)), "number": k, "text": "a", "flag": True, "vector": torch.ones(1)}
        if k % 2:
            outputs["odd"] = torch.tensor(float(k))
        means.add(outputs, 2)
    assert means.compute() == {"tensor": 99.5, "number": 99.5, "odd": 100.0}
    again = WeightedMeans()
    again.load_state_dict(means.state_dict())
    again.add({"tensor": torch.tensor(0.0)}, 400)
    assert again.compute()["tensor"] == 49.75


def test_a_nan_shows_in_the_mean():
    means = WeightedMeans()
    means.add({"loss": torch.tensor(math.nan)}, 1)
    means.add({"loss": torch.tensor(1.0)}, 1)
    assert math.isnan(means.compute()["loss"])


def test_accuracy_of_several_k():
    metric = AccuracyMetric(topk=[1, 2])
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    metric.update(logits[:3], torch.tensor([0, 2, 0]))
    metric.update(logits[3:], torch.tensor([1]))
    assert {name: float(value) for name, value in metric.compute().items()} == {"acc": 0.25, "acc@2": 0.75}


@pytest.mark.parametrize("topk", [0, -1, []])
def test_topk_is_at_least_one(topk):
    with pytest.raises(ConfigError, match="TOPK must be >= 1"):
        METRICS.build({**ACCURACY, "TOPK": topk})


def test_torchmetrics_by_name_and_ours_agree(configure):
    solver = run(
        configure(
            **NET,
            METRICS=[
                ACCURACY,
                {"NAME": "MulticlassAccuracy", "NUM_CLASSES": 2, "AVERAGE": "micro", "KEYS": ["logits", "y"]},
                {"NAME": "MulticlassRecall", "NUM_CLASSES": 2, "AVERAGE": "none", "KEYS": ["logits", "y"], "LOG_NAME": "recall"},
            ],
        )
    )
    for mode in ("train", "eval"):
        outputs = solver.epoch_outputs[mode]
        assert set(outputs) == {"loss", "acc", "multiclass_accuracy", "recall_0", "recall_1"}
        assert outputs["acc"] == pytest.approx(outputs["multiclass_accuracy"], abs=1e-7)


def test_modes_limits_where_a_metric_is_computed(configure):
    solver = run(configure(**NET, METRICS=[{**ACCURACY, "MODES": ["eval"]}]))
    assert "acc" in solver.epoch_outputs["eval"]
    assert "acc" not in solver.epoch_outputs["train"]


def test_a_metric_without_its_entries_in_training_is_said_once(configure, capsys):
    config = configure(
        METRICS=[{"NAME": "LastValue", "KEYS": ["nothing"], "LOG_NAME": "last"}], MAX_EPOCHS=2
    )
    solver = run(config)
    assert "last" not in solver.epoch_outputs["train"]
    assert capsys.readouterr().out.count("metric last is not computed in training: its outputs have no nothing") == 1


def test_a_metric_without_its_entries_in_eval_names_those_there_are(configure):
    data = {"NAME": "Floats", "VALUES": [1.0]}
    with pytest.raises(RunError, match=r"METRICS LastValue: eval has no nothing; outputs and batch hold: loss, mean, x"):
        run(configure(EVAL_DATA=data, METRICS=[{"NAME": "LastValue", "KEYS": ["nothing"], "MODES": ["eval"]}]))


def test_a_metric_that_is_no_torchmetrics_one(configure):
    data = {"NAME": "Floats", "VALUES": [1.0, 7.0]}
    solver = run(configure(EVAL_DATA=data, METRICS=[{"NAME": "LastValue", "KEYS": ["x"], "FACTOR": 2.0}]))
    assert solver.epoch_outputs["eval"]["last_value"] == 14.0


def test_two_metrics_of_one_name_are_refused(configure):
    with pytest.raises(ConfigError, match="two metrics are called accuracy"):
        run(configure(**NET, METRICS=[ACCURACY, ACCURACY]))


@METRICS.register_class()
class TakesGraphs(torchmetrics.Metric):
    """How many of the values that it was given had a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("graphs", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, value) -> None:
        self.graphs += value.requires_grad

    def compute(self):
        return self.graphs


def test_a_metric_keeps_no_graph_of_a_step(configure):
    solver = run(configure(**NET, METRICS=[{"NAME": "TakesGraphs", "KEYS": ["logits"]}]))
    assert solver.epoch_outputs["train"]["takes_graphs"] == 0


def test_save_eval_data(configure, tmp_path):
    from safetensors.torch import load_file

    keys = dict(NET, MAX_EPOCHS=2, EXTRA_KEYS=["loss", "x"], SAVE_EVAL_DATA=True, METRICS=[ACCURACY])
    solver = run(configure(**keys))
    folder = tmp_path / "run" / "eval"
    assert sorted(path.name for path in folder.iterdir()) == ["1.safetensors", "2.safetensors"]
    saved = load_file(folder / "2.safetensors")
    assert {name: tuple(value.shape) for name, value in saved.items()} == {
        "logits": (10, 2),
        "y": (10,),
        "loss": (3,),
        "x": (10, 4),
    }
    accuracy = (saved["logits"].argmax(-1) == saved["y"]).double().mean()
    assert float(accuracy) == solver.epoch_outputs["eval"]["acc"]


def test_eval_data_that_cannot_be_saved_is_named(configure):
    with pytest.raises(RunError, match="SAVE_EVAL_DATA: nothing is not there"):
        run(configure(**NET, EXTRA_KEYS=["nothing"], SAVE_EVAL_DATA=True))


def test_one_meaning_of_a_scalar_output(configure, tmp_path):
    import json

    import numpy as np
    from torch import nn

    from scepter_core import MODELS

    @MODELS.register_class()
    class ScalarsNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(()))
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            loss = (self.w * x.mean()).reshape(1)
            numbers = {"np": np.float32(2.5), "whole": np.int64(3), "yes": np.True_}
            return {"loss": loss, "seen": self.seen, "w": self.w, "of_each": 2 * x, **numbers}

    data = {"NAME": "Floats", "VALUES": [1, 1, 1, 1]}
    hooks = [{"NAME": "BackwardHook"}, {"NAME": "LogHook", "LOG_INTERVAL": 4}]
    solver = run(configure(MODEL={"NAME": "ScalarsNet"}, TRAIN_DATA=data, TRAIN_HOOKS=hooks, MAX_EPOCHS=1))
    means = {"loss": -1.5, "seen": 2.5, "w": -1.5, "np": 2.5, "whole": 3.0}
    assert solver.epoch_outputs["train"] == means
    rows = [json.loads(line)["values"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{**means, "pg0_lr": 1.0}, means]


def test_a_result_that_is_no_number_is_left_out_and_said_once(configure, capsys):
    metrics = [ACCURACY, {"NAME": "MulticlassROC", "NUM_CLASSES": 2, "KEYS": ["logits", "y"], "MODES": ["eval"]}]
    solver = run(configure(**dict(NET, MAX_EPOCHS=2), METRICS=metrics))
    assert set(solver.epoch_outputs["eval"]) == {"loss", "acc"}
    said = "METRICS MulticlassROC: multiclass_roc is a tuple and no number: it is left out"
    assert capsys.readouterr().out.count(said) == 1


def test_keys_that_the_metric_has_no_place_for_are_a_config_error(configure):
    wrong = {"NAME": "MeanSquaredError", "KEYS": ["mean"]}
    with pytest.raises(ConfigError) as caught:
        run(configure(METRICS=[wrong]))
    (problem,) = caught.value.problems
    assert (problem.path, problem.expected) == ("SOLVER.METRICS[0].KEYS", "names for preds, target")


def test_values_that_the_metric_cannot_take_are_named_with_their_shapes(configure):
    wrong = {"NAME": "MulticlassAccuracy", "NUM_CLASSES": 3, "KEYS": ["x", "mean"]}
    with pytest.raises(RunError) as caught:
        run(configure(METRICS=[wrong]))
    assert str(caught.value) == (
        "METRICS MulticlassAccuracy cannot take what train gives it: IndexError: tuple index out of range\n"
        "    given: x (float32 of shape [1]), mean (float32 of shape [])"
    )
