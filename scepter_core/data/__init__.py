"""Data: batches whose order and randomness depend on the position alone."""

from scepter_core.data.building import build_data, find_sampler, sampler_names
from scepter_core.data.loading import LoaderData, count_samples, is_stream, iterate, iterations_of, to_device
from scepter_core.data.seeding import get_streams, key, seed_streams, set_streams

__all__ = [
    "LoaderData",
    "build_data",
    "count_samples",
    "find_sampler",
    "get_streams",
    "is_stream",
    "iterate",
    "iterations_of",
    "key",
    "sampler_names",
    "seed_streams",
    "set_streams",
    "to_device",
]
