"""Says on an exception which hook it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType, MethodType, TracebackType

from scepter_core.bus.implementations import Implementation, describe_hook
from scepter_core.errors import Stopped

_RAISED_BY = "raised by "


class Blame:
    """Adds the note `raised by LogHook (scepter-log 0.1.0) in after_iter, train epoch 1, iteration 3` to an exception.

    An exception gets one such note, from the event nearest to where it was raised. A request to stop gets none: it is
    no hook's failure.

    Args:
        describe: where the run is; its text ends the note.
    """

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe

    def __call__(self, error: BaseException, implementation: Implementation) -> None:
        """Note that `implementation` raised `error`."""
        notes = getattr(error, "__notes__", ())
        if isinstance(error, Stopped) or any(note.startswith(_RAISED_BY) for note in notes):
            return
        parts = [
            f"{_RAISED_BY}{describe_hook(implementation.hook)} in {implementation.event}",
            self._describe(),
        ]
        error.add_note(", ".join(filter(None, parts)))

    def by_traceback(self, error: BaseException, candidates: Sequence[Implementation]) -> None:
        """Note which of the candidates raised `error`: the one whose code stands innermost in its traceback."""
        culprit = None
        traceback: TracebackType | None = error.__traceback__
        while traceback is not None:
            here = [one for one in candidates if _runs_in(one, traceback.tb_frame)]
            culprit = here[0] if here else culprit
            traceback = traceback.tb_next
        if culprit is not None:
            self(error, culprit)


def _runs_in(implementation: Implementation, frame: FrameType) -> bool:
    """Whether the frame is a call of this implementation, by its code and, for methods, by its instance."""
    function = implementation.function
    if not isinstance(function, MethodType):
        return frame.f_code is getattr(function, "__code__", None)
    code = getattr(function.__func__, "__code__", None)
    if frame.f_code is not code:
        return False
    first = code.co_varnames[:1] if code.co_argcount else ()
    return not first or frame.f_locals.get(first[0], function.__self__) is function.__self__
