"""YAML text to trees: the scalars of YAML 1.2, and every fault of a file with its place."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from scepter_core.config import Mapping, Scalar, parse_yaml, read_yaml, to_python
from scepter_core.config.nodes import float_text
from scepter_core.errors import ConfigError


def load(text: str) -> Any:
    return to_python(parse_yaml(text, "cfg.yaml"))


def report(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "cfg.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1e-4", 0.0001), ("1E5", 1e5), (".5", 0.5), ("5.", 5.0), ("+1", 1), ("-7", -7), ("+.5e1", 5.0),
        ("010", 10), ("0o17", 15), ("0x1F", 31), (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf),
        ("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("Null", None), ("", None),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("tRUE", "tRUE"), ("nUll", "nUll"),
        ("1_000", "1_000"), ("1:30", "1:30"), ("2024-01-01", "2024-01-01"), ("0b11", "0b11"), ("0O17", "0O17"),
        ("-0x1F", "-0x1F"), ("1e", "1e"), (".", "."), ("e5", "e5"), ("None", "None"), ("inf", "inf"), ("1.2.3", "1.2.3"),
        ("'3'", "3"), ('"true"', "true"), ("!!str 3", "3"), ("! 3", "3"), ("!!float 3", 3.0), ("!!int 0x10", 16),
        ("re-id", "re-id"), ("de-noise", "de-noise"), ("10e-4", 0.001),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    loaded = load(f"KEY: {text}")["KEY"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_nan_and_numbers_too_long_to_convert() -> None:
    assert math.isnan(load("KEY: .nan")["KEY"])
    assert load("KEY: " + "9" * 5000)["KEY"] == "9" * 5000


def test_keys_are_the_text_that_was_written() -> None:
    assert load("on: 1\n2: b\n~: c\n1e5: d") == {"on": 1, "2": "b", "~": "c", "1e5": "d"}


def test_nodes_know_where_they_stand_and_what_was_written() -> None:
    root = parse_yaml("SOLVER:\n  A: 010\n  B: '3'\n  C:\n  D: null\n", "a/cfg.yaml")
    assert isinstance(root, Mapping)
    solver = root.get("SOLVER")
    assert isinstance(solver, Mapping)
    entry = solver.entries["A"]
    assert isinstance(entry.node, Scalar)
    assert (str(entry.key_mark), str(entry.node.mark)) == ("a/cfg.yaml:2:3", "a/cfg.yaml:2:6")
    nodes = {key: item.node for key, item in solver.entries.items()}
    seen = {k: (n.text, n.plain, n.value, n.is_empty) for k, n in nodes.items() if isinstance(n, Scalar)}
    assert seen == {
        "A": ("010", True, 10, False),
        "B": ("3", False, "3", False),
        "C": ("", True, None, True),
        "D": ("null", True, None, False),
    }


def test_a_key_twice_is_named_with_both_lines() -> None:
    text = report("SOLVER:\n  MAX_EPOCHS: 1\n  NAME: x\n  MAX_EPOCHS: 2\nHOOKS: [{A: 1, B: 2, A: 3}]\n")
    assert "cfg.yaml:4:3: the key MAX_EPOCHS stands here twice (lines 2 and 4)" in text
    assert "cfg.yaml:5:22: the key A stands here twice (lines 5 and 5)" in text  # both problems in one error


def test_merge_keys_work_and_own_keys_win() -> None:
    text = "A: &a {X: 1, Y: 2}\nB: &b {Y: 3, Z: 4}\nC: {<<: *a, Y: 9}\nD:\n  <<: [*a, *b]\n  W: 0\n"
    loaded = load(text)
    assert loaded["C"] == {"X": 1, "Y": 9}
    assert loaded["D"] == {"X": 1, "Y": 2, "Z": 4, "W": 0}
    assert "cfg.yaml:1:5: << merges a section or a list of sections" in report("<<: 3")
    assert "the key << stands here twice" in report("<<: {a: 1}\n<<: {b: 1}")


def test_aliases_are_copies() -> None:
    root = parse_yaml("A: &a {X: 1}\nB: *a\n", "cfg.yaml")
    assert isinstance(root, Mapping)
    assert to_python(root) == {"A": {"X": 1}, "B": {"X": 1}}
    assert root.get("A") is not root.get("B")


def test_aliases_that_explode_or_hold_themselves_are_errors() -> None:
    lines = ["L0: &l0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"L{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "aliases that multiply into more than a configuration can be" in report("\n".join(lines))
    assert report("A: &a [*a]") == "cfg.yaml:1:8: *a refers to itself"
    assert report("A: *b") == "cfg.yaml:1:4: *b has no anchor &b before it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A:\n\tB: 1", "cfg.yaml:2:1: a tab cannot indent YAML"),
        ("A: 1\n\tB: 2", "cfg.yaml:2:1: a tab cannot indent YAML"),
        ("A: 1\n---\nB: 2", "cfg.yaml:2:1: a second document starts here"),
        ("A: !!python/object:os.system x", "cfg.yaml:1:4: unknown tag !!python/object:os.system"),
        ("A: !!int x", "cfg.yaml:1:4: not a value of its tag !!int"),
        ("A: [1", "cfg.yaml:1:6: not valid YAML: expected ',' or ']'"),
        ("A: b: c", "cfg.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("A: \x01", "cfg.yaml:1:4: the character U+0001 may not stand in YAML"),
        ('A: "\\ud800"', "cfg.yaml:1:4: not a character"),
        ("? [a]\n: 1", "cfg.yaml:1:3: a key must be a word"),
        ("A:\n  - !delete", "cfg.yaml:2:5: !delete removes a key, not an entry of a list"),
        ("A: " + "[" * 120, "cfg.yaml:1:104: nested more than 100 levels deep"),
    ],
)
def test_faults_are_located(text: str, message: str) -> None:
    assert message in report(text)


def test_a_byte_order_mark_and_crlf_are_no_matter(tmp_path: Path) -> None:
    file = tmp_path / "cfg.yaml"
    file.write_bytes("\ufeff# 注释\r\nWORK_DIR: 输出/实验 1\r\nB: 2\r\n".encode())
    root = read_yaml(file)
    assert to_python(root) == {"WORK_DIR": "输出/实验 1", "B": 2}
    assert str(root.entries["WORK_DIR"].key_mark) == f"{file}:2:1"


def read_report(path: str | Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    return str(caught.value)


def test_files_that_are_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin.yaml").write_bytes(b"A: 1\nB: caf\xe9\n")
    Path("empty.yaml").write_text("# nothing but this\n")
    Path("list.yaml").write_text("- 1\n")
    Path("word.yaml").write_text("A:1\n")
    assert read_report("latin.yaml").startswith("latin.yaml:2:7: not UTF-8 text\n    found:    the byte 0xe9")
    assert read_report("empty.yaml").startswith("empty.yaml:1:1: the file is empty")
    assert read_report("list.yaml").startswith(
        "list.yaml:1:1: the file must hold keys and values\n    found:    a list"
    )
    assert read_report("word.yaml").startswith("word.yaml:1:1: the file must hold keys and values")
    assert (
        read_report("none.yaml") == f"none.yaml: no such file\n    hint:     the current folder is {tmp_path}"
    )
    assert read_report(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.001, "0.001"), (1e-5, "1.0e-05"), (1e16, "1.0e+16"), (3.0, "3.0"), (-math.inf, "-.inf")],
)
def test_floats_are_written_for_yaml_1_1_too(value: float, text: str) -> None:
    assert float_text(value) == text
    assert load(f"A: {text}")["A"] == value
