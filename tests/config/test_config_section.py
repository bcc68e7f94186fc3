"""Sections as the code that they configure sees them."""

from __future__ import annotations

import copy
import pickle

import pytest
from pydantic import Field, ValidationError

from scepter_core.config import FreeSection, Named, Reference, Section, section_model
from scepter_core.errors import ConfigError


class Typed(Named):
    warn_above: float = 100.0
    window: int | None = None
    other: int = Field(3, alias="RENAMED")


class Legacy:
    def __init__(self, cfg: FreeSection, logger: object = None) -> None:
        self.cfg = cfg


def plain(hidden: int = 64) -> int:
    return hidden


def test_a_typed_section_answers_as_those_of_scepter_do() -> None:
    cfg = Typed(name="x", warn_above=2.0)
    assert (cfg.warn_above, cfg.WARN_ABOVE, cfg["WARN_ABOVE"], cfg.get("WARN_ABOVE", 7)) == (
        2.0,
        2.0,
        2.0,
        2.0,
    )
    assert (cfg.get("NOTHING"), cfg.get("NOTHING", 7), cfg.get("WINDOW", 7)) == (None, 7, None)
    assert (cfg.have("WARN_ABOVE"), cfg.have("WINDOW"), cfg.have("NOTHING")) == (True, False, False)
    assert ("WINDOW" in cfg, "NOTHING" in cfg, "window" in cfg) == (True, False, False)
    assert (cfg.RENAMED, cfg["RENAMED"]) == (3, 3)


def test_what_is_not_there_is_an_attribute_error_with_the_nearest_key() -> None:
    with pytest.raises(AttributeError, match="no key WARN_ABOV; did you mean WARN_ABOVE"):
        _ = Typed(name="x").WARN_ABOV
    with pytest.raises(KeyError, match="NOTHING"):
        _ = Typed(name="x")["NOTHING"]
    assert not hasattr(Typed(name="x"), "nothing")


def test_keys_can_be_set_in_either_case() -> None:
    cfg = Typed(name="x")
    cfg.WARN_ABOVE = 5.0
    cfg.window = 2
    assert (cfg.warn_above, cfg.WINDOW) == (5.0, 2)
    assert cfg.model_fields_set == {"name", "warn_above", "window"}


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError):
        Typed(name="x", nothing=1)  # type: ignore[call-arg]


def test_sections_are_equal_by_their_values() -> None:
    first, second = Typed(name="x", window=1), Typed(name="x", window=1)
    second._root = object()
    assert first == second
    assert first != Typed(name="x", window=2)


def test_a_free_section_holds_anything() -> None:
    cfg = FreeSection(A=1, B={"C": {"D": 2}}, L=[{"E": 3}, 4], NONE=None)
    assert (cfg.A, cfg.B.C.D, cfg.L[0].E, cfg.L[1]) == (1, 2, 3, 4)
    assert (cfg["A"], cfg.get("X", 5), cfg.have("A"), cfg.have("X"), "A" in cfg) == (1, 5, True, False, True)
    assert (list(cfg.keys()), dict(cfg.items())["A"]) == (["A", "B", "L", "NONE"], 1)
    assert (cfg.NONE, cfg.get("NONE", 5), cfg.have("NONE")) == (None, None, False)
    with pytest.raises(AttributeError):
        _ = cfg.X


def test_sections_travel_to_worker_processes() -> None:
    typed = section_model(plain)(name="x", HIDDEN=3)  # type: ignore[call-arg]
    free = section_model(Legacy)(name="y", DEPTH={"A": 1})  # type: ignore[call-arg]
    for section in (typed, free, Typed(name="z")):
        section._root = section_model  # what must not travel
        for made in (pickle.loads(pickle.dumps(section)), copy.deepcopy(section)):
            assert made == section
            assert type(made) is type(section)
    assert pickle.loads(pickle.dumps(typed))._root is None
    assert pickle.loads(pickle.dumps(free)).DEPTH.A == 1


def test_a_reference_is_called_as_what_it_names() -> None:
    assert Reference("math:sqrt")(9) == 3.0
    assert Reference("os:path.basename").resolve()("a/b") == "b"
    with pytest.raises(ConfigError, match=r"cannot import math:nothing: AttributeError"):
        Reference("math:nothing").resolve()
    with pytest.raises(ConfigError, match="cannot import no_such_module:x: ModuleNotFoundError"):
        Reference("no_such_module:x")()


def test_a_section_is_a_section() -> None:
    assert issubclass(section_model(plain), Section)
    assert isinstance(Typed(name="x"), Section)
