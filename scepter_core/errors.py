"""What the engine raises when the user, and not the engine, has to act.

Every error here carries a message meant to be read as it is: the command line prints it without a traceback and ends
with the error's `exit_status`.
"""

from __future__ import annotations

import difflib
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from scepter_core import locations

_LONGEST = 1000  # characters of a part of a message


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a configuration: 1-based line and column of `file`.

    Line 0 says that the place has no line, as with an override of the command line, whose own text is then `file`.
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration, with everything needed to mend it.

    Attributes:
        message: what is wrong, in a few words.
        path: the YAML path of the key or section, `SOLVER.TRAIN_HOOKS[0].INTERVAL`; empty for a whole file.
        mark: where it stands; None when the configuration came from Python.
        found: what was written there.
        expected: what would have been right.
        hint: what to do.
    """

    message: str
    path: str = ""
    mark: Mark | None = None
    found: str | None = None
    expected: str | None = None
    hint: str | None = None

    def __post_init__(self) -> None:
        """Mask secrets, whoever shows the problem."""
        if self.found is not None:
            option = self.path.rpartition("FILE_SYSTEM")[2] if "FILE_SYSTEM" in self.path else ""
            object.__setattr__(self, "found", locations.shown(option, self.found))
        if self.mark is not None and not self.mark.line:  # an override: what was written is the place itself
            object.__setattr__(self, "mark", replace(self.mark, file=locations.shown_override(self.mark.file)))

    def __str__(self) -> str:
        parts = (str(self.mark) if self.mark else "", self.path, self.message)
        head = ": ".join(_shown(part) for part in parts if part)
        details = (("found", self.found), ("expected", self.expected), ("hint", self.hint))
        lines = [f"    {label + ':':<9} {_shown(text)}" for label, text in details if text is not None]
        return "\n".join([head, *lines])


def _shown(text: str) -> str:
    """The text; of one that nobody would read to its end, the beginning."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


class ScepterError(Exception):
    """Base of the errors whose message is written for the user."""

    exit_status = 1


class ConfigError(ScepterError):
    """The configuration or the command is wrong; nothing was started.

    Args:
        problems: all that is wrong, or one message without a place.
    """

    exit_status = 2

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem(problems),) if isinstance(problems, str) else tuple(dict.fromkeys(problems))
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def locate(self, mark_of: Callable[[Problem], Mark | None]) -> None:
        """Give every problem that has no place yet the one that `mark_of` knows."""
        self.problems = tuple(replace(one, mark=one.mark or mark_of(one)) for one in self.problems)
        self.args = ("\n".join(str(problem) for problem in self.problems),)


class RunError(ScepterError):
    """The run failed for a reason that its user can act on: a loss that is not finite, a disk that is full."""


class FailedElsewhere(ScepterError):
    """Another process of the run failed, and says why; or the run is over, and the launcher began it anew.

    Args:
        exit_status: that of this process.
    """

    def __init__(self, exit_status: int = 1) -> None:
        self.exit_status = exit_status
        super().__init__("another process of the run failed")


class Stopped(ScepterError):
    """The run was asked to end: by a signal, or by its time limit.

    Attributes:
        signum: the signal's number. A time limit counts as SIGTERM.
    """

    def __init__(self, signum: int, reason: str = "") -> None:
        self.signum = signum
        super().__init__(reason or f"stopped by {signal.Signals(signum).name}")

    @property
    def exit_status(self) -> int:  # type: ignore[override]  # 128 + n, as shells report a death by signal n
        return 128 + self.signum


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` is most likely a misspelling of, or None."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """`did you mean X?`, or None when nothing is near."""
    found = nearest(word, candidates)
    return f"did you mean {found}?" if found else None
