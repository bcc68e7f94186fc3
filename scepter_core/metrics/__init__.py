"""Metrics: means weighted by batch size, and torchmetrics by name."""

from scepter_core.metrics.accuracy import AccuracyMetric
from scepter_core.metrics.means import WeightedMeans
from scepter_core.metrics.named import NamedMetrics, find_metric, metric_names

__all__ = ["AccuracyMetric", "NamedMetrics", "WeightedMeans", "find_metric", "metric_names"]
