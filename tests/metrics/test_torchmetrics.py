"""Metrics of torchmetrics by their own names: every class that it has."""

from __future__ import annotations

import inspect

import pytest
import torch
import torchmetrics

from scepter_core import METRICS, ConfigError
from scepter_core.logging import make_logger
from scepter_core.metrics import NamedMetrics

pytestmark = pytest.mark.filterwarnings("ignore:Metric .* will save all targets")

# Values for whatever keys a class asks for; a class with a required key that is not among them fails its test.
VALUES = {
    "TASK": "multiclass",
    "NUM_CLASSES": 3,
    "THRESHOLD": 0.5,
    "P": 2.0,
    "DATA_RANGE": 1.0,
    "THINGS": [0, 1],
    "STUFFS": [2],
    "METRIC_FUNC": "torchmetrics.functional:scale_invariant_signal_noise_ratio",
    "MIN_PRECISION": 0.5,
    "MIN_RECALL": 0.5,
    "MIN_SPECIFICITY": 0.5,
    "MIN_SENSITIVITY": 0.5,
}
NAMES = [
    name
    for name in torchmetrics.__all__
    if isinstance(getattr(torchmetrics, name), type)
    and issubclass(getattr(torchmetrics, name), torchmetrics.Metric)
    and name != "Metric"
]
WRAPPERS = {name for name in NAMES if getattr(torchmetrics, name).__module__.startswith("torchmetrics.wrappers")}


def _built(sections):
    return NamedMetrics(sections, torch.device("cpu"), make_logger())._slots[0].metrics["eval"]


def _section(name):
    """The section with the keys that it asks for, and KEYS for each value that its `update` takes."""
    taken = inspect.signature(getattr(torchmetrics, name).update).parameters.values()
    named = [one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    keys = named[1:] or ["preds", "target"]  # a class that makes others by their TASK names nothing
    try:
        return METRICS.validate({"NAME": name, "KEYS": keys})
    except ConfigError as error:
        missing = [problem.path for problem in error.problems if problem.message == "required key is missing"]
        if not missing:
            raise
        return METRICS.validate({"NAME": name, "KEYS": keys, **{key: VALUES[key] for key in missing}})


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_metric_of_torchmetrics_builds_or_says_why_it_cannot(name):
    try:
        section = _section(name)
    except ConfigError as error:
        assert name in WRAPPERS
        assert f"{name} cannot be built from a configuration: its parameter" in str(error)
        return
    try:
        metric = _built([section])
    except ConfigError as error:  # what it needs follows from another of its values
        assert str(error).startswith(f"{name} cannot be built: ")
        metric = _built([METRICS.validate({**section._values(), **_more(section)})])
    assert isinstance(metric, torchmetrics.Metric)


def _more(section):
    return {key: value for key, value in VALUES.items() if key in section and section[key] is None}


def test_the_loop_is_over_something():
    assert {"Accuracy", "F1Score", "MeanSquaredError", "BootStrapper"} <= set(NAMES)


@pytest.mark.parametrize("name", ["Metric", "MetricCollection", "Accuracyy"])
def test_what_is_no_metric_is_unknown(name):
    with pytest.raises(ConfigError, match=f"unknown metric {name}"):
        METRICS.validate({"NAME": name, "KEYS": ["a"]})
