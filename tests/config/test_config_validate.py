"""Values against types, and every problem in words and with its place."""

from __future__ import annotations

import datetime
import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, PositiveInt, field_validator, model_validator

from scepter_core.config import (
    FreeSection,
    Mapping,
    Named,
    NamedThing,
    Section,
    UnknownName,
    parse_yaml,
    section_model,
)
from scepter_core.config import validate as validate_node
from scepter_core.errors import ConfigError, Problem


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Inner(BaseModel):
    depth: int = Field(1, ge=1)


def check(annotation: Any, text: str, **field: Any) -> Any:
    """The value of `KEY: text` for a field of this type; a list of problems where it is wrong."""
    default = field.pop("default", ...)
    model = type(
        "Model", (Section,), {"__annotations__": {"key": annotation}, "key": Field(default, **field)}
    )
    problems: list[Problem] = []
    node = parse_yaml(f"KEY: {text}\n", "cfg.yaml")
    assert isinstance(node, Mapping)
    made = validate_node(node, model, path="", resolve=resolve, problems=problems)
    return problems if made is None else made.key


class Legacy:
    def __init__(self, cfg: FreeSection, logger: object = None) -> None: ...


def sized(size: int, rate: float = 0.5) -> None: ...


def other(size: int = 1, depth: int = 1) -> None: ...


THINGS: dict[str, Any] = {"sized": sized, "other": other, "legacy": Legacy}


class Common(Named):
    priority: int = 0


def resolve(kind: str, name: str) -> type[Section]:
    if name == "broken":
        raise ConfigError("broken cannot be imported: no module named x")
    if name not in THINGS:
        raise UnknownName(f"unknown {kind} {name}", "did you mean sized?")
    return section_model(THINGS[name], common=Common)


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "2.0", 2), (int, "1e3", 1000), (int, "0x10", 16), (int | None, "null", None), (int | None, "None", None),
        (bool, "yes", True), (bool, "Off", False), (bool, "ON", True), (bool, "1", True), (bool, "0", False),
        (float, "1", 1.0), (float, "1e-3", 0.001), (float, ".inf", math.inf), (float, "9" * 400, math.inf),
        (str, "1e5", "1e5"), (str, "010", "010"), (str, "2024-01-01", "2024-01-01"), (str, "on", "on"), (str, "'x'", "x"),
        (str, "true", "true"), (str, '""', ""), (str | None, "~", None), (str | None, "no", "no"), (str, "None", "None"),
        (int | str, "3", 3), (int | str, "x", "x"), (str | bool, "true", True), (str | bool, "yes", "yes"),
        (int | str, "'3'", "3"), (str | float, "2", 2.0), (int | float, "2", 2), (int | float, "2.5", 2.5),
        (bool | Literal["auto"] | None, "auto", "auto"), (bool | Literal["auto"] | None, "no", False),
        (bool | Literal["auto"] | None, "null", None), (Literal[32, "bf16", 16], "32", 32),
        (Literal[32, "bf16", 16], "bf16", "bf16"), (Literal["16", "32"], "16", "16"), (Literal[True, "x"], "yes", True),
        (Colour, "red", Colour.RED), (Colour, "2", Colour.TWO), (Colour, "RED", Colour.RED),
        (list[int], "[1, 2.0]", [1, 2]), (tuple[float, float], "[0, 1]", (0.0, 1.0)), (tuple[int, ...], "[1]", (1,)),
        (set[str], "[a, b, a]", {"a", "b"}), (dict[str, float], "{a: 1}", {"a": 1.0}), (dict[int, str], "{1: a}", {1: "a"}),
        (list[str] | str, "a", "a"), (list[str] | str, "[a, 1]", ["a", "1"]), (list[int] | list[str], "[a]", ["a"]),
        (Path, "a/b", Path("a/b")), (Any, "{a: [1, x, null]}", {"a": [1, "x", None]}), (list, "[1, a]", [1, "a"]),
        (datetime.date, "2024-01-02", datetime.date(2024, 1, 2)), (datetime.timedelta, "90", datetime.timedelta(seconds=90)),
        (PositiveInt, "3", 3), (Inner, "{DEPTH: 2}", Inner(depth=2)), (None, "null", None), (dict, "{a: 1}", {"a": 1}),
        (list[Inner] | None, "[{DEPTH: 2}]", [Inner(depth=2)]),
    ],
)  # fmt: skip
def test_values_are_read_as_their_type_wants(annotation: Any, text: str, value: Any) -> None:
    made = check(annotation, text)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "message", "expected"),
    [
        (int, "true", "must be an integer", "an integer"),
        (int, "2.7", "must be an integer", "an integer"),
        (int, "'3'", "must be an integer", "an integer"),
        (int, ".inf", "must be an integer", "an integer"),
        (int, "[1]", "must be an integer", "an integer"),
        (PositiveInt, "true", "must be an integer", "an integer >= 1"),
        (PositiveInt, "0", "must be >= 1", "an integer >= 1"),
        (Annotated[float, Field(gt=0, le=1.5)], "2", "must be <= 1.5", "a number > 0 and <= 1.5"),
        (Annotated[float, Field(gt=0)], "0", "must be > 0", "a number > 0"),
        (Annotated[float, Field(allow_inf_nan=False)], ".nan", "must be a finite number", "a number finite"),
        (float, "true", "must be a number", "a number"),
        (float, "'1'", "must be a number", "a number"),
        (float, "1_000", "must be a number", "a number"),
        (bool, "2", "must be a boolean", "a boolean"),
        (bool, "'yes'", "must be a boolean", "a boolean"),
        (bool, "maybe", "must be a boolean", "a boolean"),
        (str, "[1]", "must be a string", "a string"),
        (str, "{a: 1}", "must be a string", "a string"),
        (list[str], "logits", "must be a list of strings", "a list of strings"),
        (tuple[float, float], "[1]", "must be a list of 2 values", "a list of 2 values"),
        (dict[str, int], "[1]", "must be a mapping", "a mapping"),
        (Literal["a", "b"], "c", "must be one of 'a', 'b'", "one of 'a', 'b'"),
        (Literal["a", "b"] | None, "c", "must be one of 'a', 'b'", "one of 'a', 'b' or null"),
        (Literal[32, "32", 16], "8", "must be one of 32, 16", "one of 32, 16"),
        (Colour, "blue", "must be one of 'red', 2", "one of 'red', 2"),
        (int | Literal["auto"], "x", "must be an integer or 'auto'", "an integer or 'auto'"),
        (Annotated[int, Field(ge=1)] | Literal["auto"], "0", "must be >= 1", "an integer >= 1 or 'auto'"),
        (Annotated[str, Field(min_length=1)], "''", "must not be empty", "a string not empty"),
        (
            Annotated[list[int], Field(max_length=1)],
            "[1, 2]",
            "must have at most 1 entries",
            "a list of integers at most 1 long",
        ),
        (Inner, "3", "must be a section", "a section: keys and values below it"),
        (Callable[..., Any], "sqrt", "must be the name of a function or class as module:attribute", None),
        (datetime.date, "yesterday", None, "a date"),
    ],
)
def test_what_is_wrong_is_said_in_words(
    annotation: Any, text: str, message: str | None, expected: str | None
) -> None:
    (problem,) = check(annotation, text)
    assert message is None or problem.message == message
    assert expected is None or problem.expected == expected
    assert (problem.path, str(problem.mark)) == ("KEY", "cfg.yaml:1:6")


def test_found_is_the_source_with_its_quotes() -> None:
    assert [check(int, text)[0].found for text in ("'3'", "x", "[1]", "{a: 1}", "1_000")] == [
        '"3"',
        "x",
        "a list of 1",
        "a section",
        "1_000",
    ]
    assert check(int, "'3'")[0].hint == "quotes make it a string: leave them out"


def test_empty_is_the_default_and_null_where_it_is_a_value() -> None:
    assert check(str | None, "", default="linear") == "linear"
    assert check(str | None, "null", default="linear") is None
    assert check(str | None, "~", default="linear") is None
    assert check(int, "", default=3) == 3
    assert check(int, "null", default=3) == 3
    assert check(Any, "null", default=3) is None
    assert [problem.message for problem in check(int, "")] == ["required key is missing"]
    assert [problem.message for problem in check(list[int], "[1, null]")] == ["must be an integer"]


class Tree(Section):
    """The model of the configurations below."""

    count: PositiveInt = 1
    thing: Annotated[Section | None, NamedThing("things")] = None
    things: Annotated[list[Section], NamedThing("things")] = []
    inner: Inner = Inner()
    limit: int | None = None

    @field_validator("limit")
    @classmethod
    def _even(cls, limit: int | None) -> int | None:
        if limit is not None and limit % 2:
            raise ValueError("must be even")
        return limit

    @model_validator(mode="after")
    def _not_both(self) -> Tree:
        if self.count == 7 and self.limit is not None:
            raise ValueError("COUNT 7 and LIMIT do not go together")
        return self


def problems_of(text: str, model: type[BaseModel] = Tree) -> list[Problem]:
    node = parse_yaml(text, "cfg.yaml")
    assert isinstance(node, Mapping)
    problems: list[Problem] = []
    made = validate_node(node, model, path="TOP", resolve=resolve, problems=problems)
    assert (made is None) == bool(problems)
    return problems


def tree(text: str) -> Any:
    node = parse_yaml(text, "cfg.yaml")
    assert isinstance(node, Mapping)
    problems: list[Problem] = []
    made = validate_node(node, Tree, path="", resolve=resolve, problems=problems)
    assert problems == []
    return made


def test_all_problems_come_at_once_each_at_its_place() -> None:
    text = """\
COUNT: 0
COUTN: 1
THING: {SIZE: x}
THINGS:
  - {NAME: sized, SIZ: 1}
  - {NAME: nobody}
  - {NAME: broken}
  - {NAME: legacy, PRIORITY: high, ANY: 1}
  - 3
INNER: {DEPTH: 0, WIDTH: 1}
LIMIT: 3
"""
    lines = [f"{p.mark}: {p.path}: {p.message}" for p in problems_of(text)]
    assert sorted(lines) == sorted(
        [
            "cfg.yaml:1:8: TOP.COUNT: must be >= 1",
            "cfg.yaml:2:1: TOP.COUTN: unknown key",
            "cfg.yaml:3:8: TOP.THING.NAME: required key is missing",
            "cfg.yaml:5:19: TOP.THINGS[0].SIZ: unknown key",
            "cfg.yaml:5:5: TOP.THINGS[0].SIZE: required key is missing",
            "cfg.yaml:6:12: TOP.THINGS[1].NAME: unknown things nobody",
            "cfg.yaml:7:12: TOP.THINGS[2].NAME: broken cannot be imported: no module named x",
            "cfg.yaml:8:30: TOP.THINGS[3].PRIORITY: must be an integer",
            "cfg.yaml:9:5: TOP.THINGS[4]: must be a section",
            "cfg.yaml:10:16: TOP.INNER.DEPTH: must be >= 1",
            "cfg.yaml:10:19: TOP.INNER.WIDTH: unknown key",
            "cfg.yaml:11:8: TOP.LIMIT: must be even",
        ]
    )


def test_an_unknown_key_is_shown_with_the_nearest_one() -> None:
    (problem,) = problems_of("COUTN: 1\n")
    assert str(problem) == (
        "cfg.yaml:1:1: TOP.COUTN: unknown key\n"
        "    found:    1\n"
        "    expected: one of COUNT, THING, THINGS, INNER, LIMIT\n"
        "    hint:     did you mean COUNT?"
    )
    assert problems_of("count: 1\n")[0].hint == "did you mean COUNT?"  # keys are upper case


def test_a_validator_of_the_section_speaks_for_itself() -> None:
    (problem,) = problems_of("COUNT: 7\nLIMIT: 2\n")
    assert str(problem) == "cfg.yaml:1:1: TOP: COUNT 7 and LIMIT do not go together"
    # where a key is wrong already, the section's own validators would only guess
    assert [p.message for p in problems_of("COUNT: 7\nLIMIT: x\n")] == ["must be an integer"]


def test_a_validator_that_fails_is_a_located_problem() -> None:
    class Failing(Section):
        key: int = 0

        @field_validator("key")
        @classmethod
        def _fail(cls, key: int) -> int:
            raise KeyError("oops")

    (problem,) = problems_of("KEY: 1\n", Failing)
    assert str(problem) == "cfg.yaml:1:1: TOP: the section's validation failed: KeyError: 'oops'"


def test_named_sections_are_those_of_their_things() -> None:
    made = tree(
        "THING: {NAME: sized, SIZE: 3}\nTHINGS: [{NAME: other}, {NAME: legacy, X: , Y: {Z: [{W: 1}]}, P: 1e5}]\n"
    )
    assert (made.thing.SIZE, made.thing.RATE, made.THING["NAME"]) == (3, 0.5, "sized")
    legacy = made.things[1]
    assert (legacy.X, legacy.get("X", 7), legacy.have("X")) == (None, 7, False)
    assert (legacy.Y.Z[0].W, legacy.P, legacy.priority) == (1, 1e5, 0)
    assert tree("THING: null\nTHINGS:\nINNER:\n") == Tree()


def test_what_means_the_same_outlives_a_change_of_name(tmp_path: Path) -> None:
    from scepter_core.config import compose

    file = tmp_path / "cfg.yaml"
    file.write_text("THING: {NAME: sized, SIZE: 3, RATE: 2, PRIORITY: 7}\n")
    root = compose(file, ["THING.NAME=other"], now=datetime.datetime(2026, 1, 1))
    problems: list[Problem] = []
    made = validate_node(root, Tree, path="", resolve=resolve, problems=problems)
    assert problems == []
    assert (made.thing.PRIORITY, made.thing.SIZE, made.thing.DEPTH) == (7, 1, 1)  # PRIORITY is every thing's


def test_a_line_that_nobody_would_read_to_its_end_is_cut() -> None:
    line = "ENV: " + "- " * 3000
    with pytest.raises(ConfigError) as caught:
        parse_yaml(line, "cfg.yaml")
    assert f"    found:    {line[:1000]}… (6004 characters)" in str(caught.value).splitlines()
