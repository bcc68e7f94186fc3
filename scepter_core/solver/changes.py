"""What of the configuration differs from a checkpoint's, and whether the resumed run can still be the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scepter_core.config import Mapping, Node, Scalar, parse_yaml
from scepter_core.data import is_stream
from scepter_core.errors import ConfigError
from scepter_core.registry import HOOKS
from scepter_core.runconfig import dump_config

if TYPE_CHECKING:
    from scepter_core.solver.base import BaseSolver

# What decides neither which batches there are nor what a step makes of them. Any other key may.
_WATCHING = re.compile(
    r"PLUGINS|ENV\.(BACKEND|USE_PL)"
    r"|SOLVER\.(MODE|WORK_DIR|LOG_FILE|FILE_SYSTEM|MAX_EPOCHS|MAX_STEPS|EVAL_INTERVAL|TEST_INTERVAL|EXTRA_KEYS"
    r"|SAVE_EVAL_DATA|METRICS|EVAL_DATA|TEST_DATA|EVAL_HOOKS|TEST_HOOKS)\b.*"
    r"|SOLVER\.TRAIN_DATA\.(PIN_MEMORY|PERSISTENT_WORKERS|PREFETCH_FACTOR|FILE_SYSTEM)\b.*"
)
_LEFT_OUT = re.compile(r"META\b.*|SOLVER\.RESUME_FROM")
_HOOK = re.compile(r"SOLVER\.\w+_HOOKS\[([^]#]+)[^]]*\]")
_LONGEST = 60  # characters of a value that a line shows


@dataclass(frozen=True, slots=True)
class Change:
    """One key.

    Attributes:
        path: where it stands, `SOLVER.TRAIN_DATA.BATCH_SIZE`; an entry of a list of sections goes by its NAME.
        before, now: its values as text, `${env:…}` as written; None: not there.
    """

    path: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.path} is new: {_short(self.now)}"
        if self.now is None:
            return f"{self.path} was {_short(self.before)}, is gone"
        return f"{self.path} was {_short(self.before)}, is now {_short(self.now)}"


class ChangeReport:
    """Says at a resume, a line a key, what differs between a checkpoint's configuration and the run's.

    First, as warnings, the keys with which the run can differ from the one that was never stopped.

    Args:
        solver: the run, with its data.
        before: the checkpoint's `config`.
    """

    def __init__(self, solver: BaseSolver, before: str) -> None:
        self._logger = solver.logger
        now = dump_config(solver.root) if solver.root is not None else ""
        changes = changed_keys(before, now)
        self._said = [change.path for change in changes]
        watching = [change for change in changes if _keeps_the_run(solver, change.path)]
        for change in changes:
            if change not in watching:
                self._warn(str(change))
        for change in watching:
            self._logger.info("changed since the checkpoint: %s", change)

    def add(self, section: str, notices: list[str]) -> None:
        """Say, as warnings, what differs though nothing in `section` of the configuration changed."""
        if not any(path.startswith(section) for path in self._said):
            for notice in notices:
                self._warn(notice)

    def _warn(self, change: str) -> None:
        self._logger.warning(
            "changed since the checkpoint, and the run can differ from one that was never stopped: %s", change
        )


def changed_keys(before: str, now: str) -> list[Change]:
    """Every key whose value differs between two configurations, in the order of the second.

    A key with nothing behind it, or an empty list, is as one that is not there. Of a section with another NAME, the keys that only one of
    the two has go without saying; so do hooks that only one of them lists.
    """
    old, new = _values(before), _values(now)
    if not old or not new:
        return []  # of a file that another program made, or a solver without a configuration
    changes = [Change(path, old.get(path), new.get(path)) for path in {**new, **old} if old.get(path) != new.get(path)]
    renamed = tuple(change.path.removesuffix("NAME") for change in changes if change.path.endswith(".NAME"))
    return [change for change in changes if _is_worth_saying(change, renamed)]


def _is_worth_saying(change: Change, renamed: tuple[str, ...]) -> bool:
    one_sided = change.before is None or change.now is None
    names_its_section = change.path.endswith(".NAME") and not _HOOK.match(change.path)
    if one_sided and not names_its_section and change.path.startswith(renamed):
        return False
    return _LEFT_OUT.fullmatch(change.path) is None


def _keeps_the_run(solver: BaseSolver, path: str) -> bool:
    if path == "SOLVER.TRAIN_DATA.NUM_WORKERS":
        return not is_stream(solver.datas.get("train"))
    hook = _HOOK.match(path)
    if hook is not None and path.startswith("SOLVER.TRAIN_HOOKS"):
        return getattr(HOOKS.get(hook[1]), "role", None) is None
    return _WATCHING.fullmatch(path) is not None


def _values(text: str) -> dict[str, str]:
    """The keys of a configuration that have a value, by path."""
    try:
        root = parse_yaml(text, "config")
    except ConfigError:
        return {}
    return dict(_leaves(root, "")) if isinstance(root, Mapping) else {}


def _leaves(node: Node, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Scalar):
        if not node.is_empty:
            yield path, node.text
    elif isinstance(node, Mapping):
        for key, entry in node.entries.items():
            yield from _leaves(entry.node, f"{path}.{key}" if path else key)
    elif all(isinstance(item, Mapping) and item.name for item in node.items):
        seen: dict[str, int] = {}
        for item in node.items:
            name = str(getattr(item, "name", ""))
            seen[name] = seen.get(name, 0) + 1
            yield from _leaves(item, f"{path}[{name}]" if seen[name] == 1 else f"{path}[{name}#{seen[name]}]")
    else:
        yield path, _flow(node)


def _flow(node: Node) -> str:
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(entry.node)}" for key, entry in node.entries.items()) + "}"
    return "[" + ", ".join(map(_flow, node.items)) + "]"


def _short(text: str | None) -> str:
    text = text or "''"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
