"""Metrics: means weighted by batch size, and torchmetrics by name.

torchmetrics is slow to import: it is, when a configuration names a metric.
"""

from scepter_core.metrics.collecting import EvalData
from scepter_core.metrics.means import WeightedMeans, add_up, as_scalar
from scepter_core.metrics.named import NamedMetrics, find_metric, metric_names

__all__ = ["EvalData", "NamedMetrics", "WeightedMeans", "add_up", "as_scalar", "find_metric", "metric_names"]
