"""LogHook: log lines, metrics.jsonl, and the event `on_log` for every other sink."""

from __future__ import annotations

from scepter_log.hook import LogHook
from scepter_log.record import LogEvents, LogRecord

__all__ = ["LogEvents", "LogHook", "LogRecord"]
