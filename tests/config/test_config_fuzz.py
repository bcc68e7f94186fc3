"""Whatever is thrown at the reader, it answers with a tree or with a ConfigError.

The long form: `pytest tests/config --hypothesis-profile long`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scepter_core.config import Mapping, Scalar, Sequence, compose, from_python, parse_yaml, to_python
from scepter_core.config.dump import scalar_text
from scepter_core.config.validate import validate
from scepter_core.errors import ConfigError
from scepter_core.runconfig import RunConfig
from scepter_core.sections import SolverConfig

TIMES = max(settings().max_examples // 100, 1)  # of the profile: 1, and 100 in the long one
NOW = datetime(2026, 1, 2, 3, 4, 5)

FRAGMENTS = [
    "a", "A", "SOLVER", "NAME", ":", ": ", "- ", "-", "\n", "  ", "\t", "{", "}", "[", "]", ",", "&x", "*x", "<<: ",
    "!delete", "!!int ", "!foo ", "|\n", ">\n", '"', "'", "#", "%", "---\n", "...\n", "? ", "\\", "\\U", "ffffffff",
    "\ufeff", "\x00", "\x85", "\u2028", "1e5", "0x", "~", "null", "é", "\U0001f600", "${", "}", "${a}", "${env:A,b}",
    "${now:%Y}", "$${", "_BASE", "=", "@", "`", "%YAML 1.1\n",
]  # fmt: skip
YAMLISH = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)
ANY_TEXT = st.text(st.characters(), max_size=60)

KEYS = [
    "A",
    "B",
    "LIST",
    "NAME",
    "C[0]",
    "LIST[0]",
    "LIST[One]",
    "LIST[Two]",
    "LIST[9]",
    "[0]",
    "..",
    "",
    "_BASE",
    "D.E",
]
VALUES = ["1", "null", "", "!delete", "{NAME: X, K: 1}", "[1, 2]", "${A}", "${B.C}", "${LIST}", "${LIST[0].K}", "$${",
          "${", "${env:NO_SUCH_VARIABLE}", "${now:%H}", "x${A}y", "{", "'", "&a [*a]", "${D}", "Two", "a: b"]  # fmt: skip
OVERRIDE = st.one_of(
    st.tuples(
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=3).map(".".join), st.sampled_from(VALUES)
    ).map("=".join),
    ANY_TEXT,
)


def outcome(action: Callable[[], object]) -> object:
    """What the action returns, or the ConfigError that it raises; any other error is a failure."""
    try:
        return action()
    except ConfigError as error:
        return error


@settings(max_examples=500 * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.one_of(YAMLISH, ANY_TEXT))
@example("[" * 5000)
@example("{a: " * 5000)
@example("- " * 5000)
@example("? " * 5000)
@example("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 300)))
@example("9" * 5000)
@example("0x" + "f" * 5000)
@example("!!float " + "9" * 900)
def test_any_text_is_a_tree_or_a_config_error(text: str) -> None:
    made = outcome(lambda: parse_yaml(text, "fuzz.yaml"))
    if isinstance(made, ConfigError):
        assert made.problems
        assert all(problem.mark is not None and problem.mark.file == "fuzz.yaml" for problem in made.problems)
    else:
        assert isinstance(made, Scalar | Mapping | Sequence)
        to_python(made)


@settings(max_examples=250 * TIMES, deadline=None, suppress_health_check=list(HealthCheck))
@given(overrides=st.lists(OVERRIDE, max_size=6))
@example(overrides=[".".join(["A"] * 5000) + "=1"])
@example(overrides=[f"X{n}=${{X{n + 1}}}" for n in range(300)])
@example(overrides=[f"X{n}={{Y: ${{X{n + 1}}}}}" for n in range(300)])
@example(overrides=[f"X{n}=[{', '.join([f'${{X{n + 1}}}'] * 9)}]" for n in range(20)])
@example(overrides=["X0=" + "a" * 1000, *(f"X{n + 1}=${{X{n}}}${{X{n}}}${{X{n}}}" for n in range(30))])
def test_any_overrides_give_a_tree_or_a_config_error(config_file: Path, overrides: list[str]) -> None:
    made = outcome(lambda: compose(config_file, overrides, now=NOW))
    if isinstance(made, ConfigError):
        assert made.problems
    else:
        assert isinstance(made, Mapping)
        to_python(made)


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "cfg.yaml"
    path.write_text(
        "A: 1\nB: {C: 2, NAME: X}\nLIST: [{NAME: One, K: 1}, {NAME: One}, {NAME: Two}]\nD: ${A}\nC: [1]\n"
    )
    return path


PYTHON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ENV", "SOLVER", "META", "NAME", "SEED", "PLUGINS", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150 * TIMES, deadline=None)
@given(PYTHON.filter(lambda value: isinstance(value, dict)))
def test_any_values_validate_or_are_problems(value: dict[str, object]) -> None:
    node = from_python(value)
    assert isinstance(node, Mapping)
    problems: list[object] = []
    made = validate(node, RunConfig, path="", resolve=lambda kind, name: SolverConfig, problems=problems)  # type: ignore[arg-type]
    assert (made is None) == bool(problems)


@settings(max_examples=500 * TIMES, deadline=None)
@given(st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), YAMLISH))
@example("on")
@example("2024-01-01")
@example("1:30")
@example("-")
@example("---")
@example("\x85")
@example("\u2028a")
@example("a\tb")
@example("=")
@example("<<")
@example("x #y")
@example("x: y")
@example("1_000")
def test_every_string_is_written_so_that_it_reads_back(text: str) -> None:
    written = scalar_text(text)
    tree = parse_yaml(f"KEY: {written}\nLIST:\n  - {written}\n", "dump.yaml")
    escaped = text.replace("${", "$${")
    assert to_python(tree) == {"KEY": escaped, "LIST": [escaped]}
