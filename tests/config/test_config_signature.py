"""From classes and functions to the models of their sections."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import BaseModel, Field

from scepter_core.config import (
    FreeSection,
    Mapping,
    Named,
    Section,
    from_python,
    keywords,
    section_model,
    style_of,
    validate,
)
from scepter_core.config.section import keys_of
from scepter_core.errors import ConfigError, Problem

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

T = TypeVar("T")


class Common(Named):
    batch_size: int = Field(1, ge=1)
    shuffle: bool | None = None


class Tensor:
    """Stands for what YAML cannot write."""


class Inner(BaseModel):
    depth: int = Field(1, ge=1)


@dataclass
class Size:
    width: int
    label: str = "none"


class Colour(enum.Enum):
    RED = "red"


def section(thing: Any, values: dict[str, Any], **options: Any) -> Any:
    problems: list[Problem] = []
    node = from_python({"NAME": "it", **values})
    assert isinstance(node, Mapping)
    made = validate(node, section_model(thing, **options), path="IT", resolve=no_names, problems=problems)
    if problems:
        raise ConfigError(problems)
    return made


def no_names(kind: str, name: str) -> type[Section]:
    raise LookupError(kind, name)


class TestStyles:
    def test_the_three_styles(self) -> None:
        class Base:
            Config = Common

            def __init__(self, cfg: Any, logger: Any = None) -> None: ...

        class Plain(Base): ...

        class Own(Base):
            class Config(Common):
                x: int = 1

        class OwnWithInit(Own):
            def __init__(self, cfg: Any, logger: Any = None) -> None: ...

        class Legacy(Base):
            def __init__(self, cfg: Any, logger: Any = None) -> None: ...

        class LegacyAlone:
            def __init__(self, cfg: Any, logger: Any = None, **kwargs: Any) -> None: ...

        class Keywords:
            def __init__(self, cfg: Any, size: int) -> None: ...

        def legacy(cfg: Any, logger: Any = None, *args: Any, **kwargs: Any) -> None: ...

        styles = [
            style_of(thing, Common)
            for thing in (Base, Plain, Own, OwnWithInit, Legacy, LegacyAlone, Keywords, legacy)
        ]
        assert styles == ["config", "config", "config", "config", "free", "free", "keywords", "free"]

    def test_a_config_is_joined_with_the_common_keys(self) -> None:
        class Foreign:
            class Config(BaseModel):
                warn_above: float = Field(100.0, gt=0)

        class Ours:
            class Config(Common):
                warn_above: float = 1.0

        assert section_model(Ours, common=Common) is Ours.Config
        assert set(keys_of(section_model(Foreign, common=Common))) == {
            "NAME",
            "BATCH_SIZE",
            "SHUFFLE",
            "WARN_ABOVE",
        }
        made = section(Foreign, {"WARN_ABOVE": 3, "BATCH_SIZE": 2}, common=Common)
        assert (made.warn_above, made.WARN_ABOVE, made.batch_size, made.get("BATCH_SIZE")) == (3.0, 3.0, 2, 2)
        assert isinstance(made, Foreign.Config)
        with pytest.raises(ConfigError, match="unknown key"):
            section(Foreign, {"NOTHING": 3}, common=Common)

    def test_the_free_style_checks_common_keys_and_takes_the_rest(self) -> None:
        class Legacy:
            def __init__(self, cfg: FreeSection, logger: Any = None) -> None: ...

        made = section(Legacy, {"BATCH_SIZE": 2, "DEPTH": {"A": 1}}, common=Common)
        assert (made.batch_size, made.BATCH_SIZE, made.DEPTH.A, made.get("X", 4)) == (2, 2, 1, 4)
        with pytest.raises(ConfigError, match=r"IT.BATCH_SIZE: must be >= 1"):
            section(Legacy, {"BATCH_SIZE": 0}, common=Common)


class TestKeywords:
    def test_keys_are_the_parameters_in_upper_case(self) -> None:
        class Model:
            def __init__(
                self, hidden_size: int = 64, *, act: Literal["relu", "gelu"] = "relu", T_max: float = 1
            ) -> None: ...

        made = section(Model, {"HIDDEN_SIZE": 8, "T_MAX": 3})
        assert (made.HIDDEN_SIZE, made.ACT, made.T_MAX) == (8, "relu", 3.0)
        assert keywords(made) == {"hidden_size": 8, "T_max": 3.0}
        with pytest.raises(ConfigError) as caught:
            section(Model, {"HIDDEN_SIZ": 8, "ACT": "tanh"})
        assert [problem.message for problem in caught.value.problems] == [
            "must be one of 'relu', 'gelu'",
            "unknown key",
        ]
        assert caught.value.problems[1].hint == "did you mean HIDDEN_SIZE?"

    def test_what_was_not_given_is_left_to_the_signature(self) -> None:
        marker = object()

        def thing(a: int, b: Any = marker, c: list[int] = [1]) -> None: ...  # noqa: B006

        made = section(thing, {"A": 1})
        assert keywords(made) == {"a": 1}
        assert made.B is marker
        with pytest.raises(ConfigError, match=r"IT.A: required key is missing"):
            section(thing, {})

    def test_types_that_yaml_cannot_write_drop_out(self) -> None:
        def thing(
            lr: float | Tensor = 1,
            betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.99),
            weight: Tensor | None = None,
            only: Tensor = Tensor(),  # noqa: B008
            unresolved: Unknown = 3,
            items: Sequence[int] = (),
            any_of: Iterable[str] = (),
        ) -> None: ...

        model = section_model(thing)
        assert set(keys_of(model)) == {"NAME", "LR", "BETAS", "UNRESOLVED", "ITEMS", "ANY_OF"}
        made = section(
            thing, {"LR": 2, "BETAS": [0, 1], "UNRESOLVED": {"a": 1}, "ITEMS": [1], "ANY_OF": ["x"]}
        )
        assert keywords(made) == {
            "lr": 2.0, "betas": (0.0, 1.0), "unresolved": {"a": 1}, "items": [1], "any_of": ["x"],
        }  # fmt: skip

    def test_what_cannot_be_built_says_so(self) -> None:
        def by_place(x: int, /) -> None: ...

        def by_tensor(x: Tensor) -> None: ...

        def optional(x: int = 1, /, y: int = 2) -> None: ...

        with pytest.raises(
            ConfigError, match="cannot be built from a configuration: its parameter x is by place only"
        ):
            section_model(by_place)
        with pytest.raises(ConfigError, match="its parameter x is of a type that YAML cannot write"):
            section_model(by_tensor)
        assert set(keys_of(section_model(optional))) == {"NAME", "Y"}
        assert set(keys_of(section_model(by_tensor, supplied=frozenset({"x"})))) == {"NAME"}

    def test_parameters_without_annotation_go_by_their_default(self) -> None:
        def thing(flag=False, rate=0, text="x", free=None) -> None:  # type: ignore[no-untyped-def]
            ...

        made = section(thing, {"FLAG": True, "RATE": 0.5, "FREE": [1, {"A": 2}]})
        assert keywords(made) == {"flag": True, "rate": 0.5, "free": [1, {"A": 2}]}
        for wrong in ({"FLAG": 3}, {"RATE": "x"}, {"TEXT": [1]}):
            with pytest.raises(ConfigError):
                section(thing, wrong)

    def test_a_default_of_none_makes_null_a_value(self) -> None:
        def thing(size: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

        assert keywords(section(thing, {"SIZE": None})) == {"size": None}

    def test_functions_classes_and_their_names(self) -> None:
        def thing(
            f: Callable[[int], int],
            c: type[Tensor] | None = None,
            many: list[Callable[..., Any]] | None = None,
        ) -> None: ...

        made = section(
            thing, {"F": "math:sqrt", "C": "collections:OrderedDict", "MANY": ["math:sin", "math:cos"]}
        )
        built = keywords(made)
        assert (built["f"](9), built["c"].__name__, built["many"][1](0)) == (3.0, "OrderedDict", 1.0)
        with pytest.raises(ConfigError, match="must be the name of a function or class as module:attribute"):
            section(thing, {"F": "sqrt"})
        with pytest.raises(ConfigError, match=r"IT\.F: cannot import math:nothing"):
            section(thing, {"F": "math:nothing"})
        with pytest.raises(ConfigError, match=r"IT\.MANY\[1\]: cannot import nowhere:f"):
            section(thing, {"F": "math:sin", "MANY": ["math:sin", "nowhere:f"]})

    def test_the_fields_of_a_dataclass_are_typed_keys(self) -> None:
        def thing(size: Size) -> None: ...

        assert keywords(section(thing, {"SIZE": {"WIDTH": 2.0, "LABEL": 7}})) == {"size": Size(2, "7")}
        wrong = {"WIDHT": 3, "LABEL": [1]}
        with pytest.raises(ConfigError) as caught:
            section(thing, {"SIZE": wrong})
        assert [(problem.path, problem.message) for problem in caught.value.problems] == [
            ("IT.SIZE.WIDHT", "unknown key"),
            ("IT.SIZE.LABEL", "must be a string"),
            ("IT.SIZE.WIDTH", "required key is missing"),
        ]

    def test_kwargs_are_no_keys(self) -> None:
        def thing(a: int = 1, *args: int, **kwargs: Any) -> None: ...

        with pytest.raises(ConfigError, match=r"IT.B: unknown key"):
            section(thing, {"B": 1})

    def test_renames_and_shared_keys(self) -> None:
        def optimizer(params: Any, lr: float = 1e-3) -> None: ...

        options: dict[str, Any] = {"supplied": frozenset({"params"}), "renames": {"lr": "LEARNING_RATE"}}
        assert keywords(section(optimizer, {"LEARNING_RATE": 0.1}, **options)) == {"lr": 0.1}

        class Data:
            def __init__(self, batch_size: int, shuffle: bool = True) -> None: ...

        both = section(Data, {"BATCH_SIZE": 4}, common=Common)
        assert (both.batch_size, keywords(both)) == (4, {"batch_size": 4})
        assert keywords(section(Data, {"SHUFFLE": False}, common=Common)) == {
            "batch_size": 1,
            "shuffle": False,
        }

    def test_a_shared_key_that_the_thing_requires_is_required(self) -> None:
        class Data:
            def __init__(self, shuffle: bool) -> None: ...

        with pytest.raises(ConfigError, match=r"IT.SHUFFLE: required key is missing"):
            section(Data, {}, common=Common)

    def test_classes_with_new_generics_inheritance_partials_and_wrappers(self) -> None:
        class ByNew:
            def __new__(cls, task: Literal["a", "b"], top: int = 1) -> Any:
                return (task, top)

        class Parent(Generic[T]):
            def __init__(self, size: Annotated[int, Field(ge=2)], colour: Colour = Colour.RED) -> None: ...

        class Child(Parent[int]): ...

        def function(a: int, b: int = 2) -> None: ...

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> None: ...

        assert set(keys_of(section_model(ByNew))) == {"NAME", "TASK", "TOP"}
        assert section(Child, {"SIZE": 2, "COLOUR": "red"}).COLOUR is Colour.RED
        with pytest.raises(ConfigError, match=r"IT.SIZE: must be >= 2"):
            section(Child, {"SIZE": 1})
        assert keywords(section(functools.partial(function, b=5), {"A": 1})) == {"a": 1}
        assert keywords(section(wrapper, {"A": 1, "B": 3})) == {"a": 1, "b": 3}
        assert set(keys_of(section_model(object))) == {"NAME"}

    def test_a_parameter_called_name_gets_the_name(self) -> None:
        def thing(name: str, size: int = 1) -> None: ...

        assert keywords(section(thing, {})) == {"name": "it"}

    def test_paths_and_nested_models(self) -> None:
        def thing(root: Path, inner: Inner, more: dict[str, Inner] = {}) -> None: ...  # noqa: B006

        made = section(thing, {"ROOT": "a/b", "INNER": {"DEPTH": 2}, "MORE": {"x": {"DEPTH": 3}}})
        built = keywords(made)
        assert (built["root"], built["inner"].depth, built["more"]["x"].depth) == (Path("a/b"), 2, 3)
        with pytest.raises(ConfigError) as caught:
            section(thing, {"ROOT": "a", "INNER": {"DEPTH": 0}, "MORE": {"x": {"DEPT": 3}}})
        assert [(p.path, p.message) for p in caught.value.problems] == [
            ("IT.INNER.DEPTH", "must be >= 1"),
            ("IT.MORE.x.DEPT", "unknown key"),
        ]

    def test_models_are_made_once(self) -> None:
        def thing(a: int = 1) -> None: ...

        assert section_model(thing) is section_model(thing)
        assert section_model(thing) is not section_model(thing, common=Common)
