"""Inheritance, overrides and references: from files and a command line to one tree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from scepter_core.config import Mapping, Scalar, compose, to_python
from scepter_core.errors import ConfigError

NOW = datetime(2026, 1, 2, 3, 4, 5)
Compose = Callable[..., Any]
CFG = """\
A: 1
SOLVER:
  NAME: S
  WORK_DIR: runs
  HOOKS: [{NAME: LogHook, N: 1}, {NAME: CkptHook, N: 2}, {NAME: CkptHook, N: 3}]
  OPT: {NAME: AdamW, LR: 1e-3, BETAS: [0.9, 0.99]}
"""


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(**files: str) -> None:
    for name, text in files.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")


def tree(text: str, *overrides: str) -> Any:
    write(cfg=text)
    return to_python(compose("cfg.yaml", overrides, now=NOW))


def report(text: str, *overrides: str) -> str:
    write(cfg=text)
    with pytest.raises(ConfigError) as caught:
        compose("cfg.yaml", overrides, now=NOW)
    return str(caught.value)


class TestBase:
    def test_sections_merge_and_the_rest_replaces(self) -> None:
        write(base="A: {X: 1, Y: 2}\nL: [1, 2]\nGONE: 1\nKEPT: 5\n")
        assert tree("_BASE: base.yaml\nA: {Y: 3}\nL: [9]\nGONE: !delete\n") == {
            "A": {"X": 1, "Y": 3},
            "L": [9],
            "KEPT": 5,
        }

    def test_later_bases_win_and_paths_start_at_the_naming_file(self) -> None:
        Path("sub").mkdir()
        Path("sub/one.yaml").write_text("A: 1\nB: 1\nC: 1\n")
        Path("sub/two.yaml").write_text("_BASE: three.yaml\nB: 2\nD: 2\n")
        Path("sub/three.yaml").write_text("D: 3\nE: 3\n")
        assert tree("_BASE: [sub/one.yaml, sub/two.yaml]\nC: 0\n") == {"A": 1, "B": 2, "C": 0, "D": 2, "E": 3}

    def test_another_name_drops_the_keys_of_the_old_one(self) -> None:
        write(base="OPT: {NAME: AdamW, LR: 1, BETAS: [1]}\n")
        assert tree("_BASE: base.yaml\nOPT: {NAME: SGD, MOMENTUM: 2}\n") == {
            "OPT": {"NAME": "SGD", "MOMENTUM": 2}
        }
        assert tree("_BASE: base.yaml\nOPT: {NAME: AdamW, LR: 2}\n")["OPT"] == {
            "NAME": "AdamW",
            "LR": 2,
            "BETAS": [1],
        }
        assert tree("_BASE: base.yaml\nOPT: {LR: 2}\n")["OPT"] == {"NAME": "AdamW", "LR": 2, "BETAS": [1]}

    def test_keys_that_only_look_like_base_are_keys(self) -> None:
        write(base="BASE_MOMENTUM: 1\nDATABASE: 2\n")
        assert tree("_BASE: base.yaml\nA: 1\n") == {"BASE_MOMENTUM": 1, "DATABASE": 2, "A": 1}

    def test_cycles_and_missing_files_are_located(self, tmp_path: Path) -> None:
        write(base="_BASE: cfg.yaml\nA: 1\n")
        assert "base.yaml:1:8: _BASE: inherits from itself" in report("_BASE: base.yaml\n")
        assert "cfg.yaml:1:8: _BASE: inherits from itself" in report("_BASE: cfg.yaml\n")
        assert f"cfg.yaml:2:8: _BASE: no such file: {tmp_path}/none.yaml" in report(
            "A: 1\n_BASE: none.yaml\n"
        )
        assert "cfg.yaml:1:8: _BASE: must be a file name or a list of them" in report("_BASE: {A: 1}\n")

    def test_the_same_base_twice_is_no_cycle(self) -> None:
        write(root="A: 1\n", left="_BASE: root.yaml\nB: 1\n", right="_BASE: root.yaml\nC: 1\n")
        assert tree("_BASE: [left.yaml, right.yaml]\n") == {"A": 1, "B": 1, "C": 1}

    def test_environment_variables_in_base(self, monkeypatch: pytest.MonkeyPatch) -> None:
        write(base="A: 1\n")
        monkeypatch.setenv("WHICH", "base")
        assert tree("_BASE: ${env:WHICH}.yaml\n") == {"A": 1}


class TestOverrides:
    def test_values_are_yaml(self) -> None:
        changed = tree(CFG, "A=3", "SOLVER.OPT.LR=1e-4", "SOLVER.KEYS=[a, b]", "SOLVER.LAST=false", "SOLVER.ZERO=0",
                       "SOLVER.NONE=null", 'SOLVER.TEXT="3"', "SOLVER.EMPTY=", "SOLVER.URL=s3://b/x?a=b")  # fmt: skip
        solver = changed["SOLVER"]
        assert changed["A"] == 3
        assert solver["OPT"]["LR"] == 0.0001
        kept = [solver[key] for key in ("KEYS", "LAST", "ZERO", "NONE", "TEXT", "EMPTY", "URL")]
        assert kept == [["a", "b"], False, 0, None, "3", None, "s3://b/x?a=b"]

    def test_sections_on_the_way_are_made(self) -> None:
        assert tree("A: 1\nE:\n", "B.C.D=1", "E.F=2") == {"A": 1, "B": {"C": {"D": 1}}, "E": {"F": 2}}

    def test_entries_of_lists_by_place_and_by_name(self) -> None:
        hooks = tree(CFG, "SOLVER.HOOKS[LogHook].N=7", "SOLVER.HOOKS[2].N=8", "SOLVER.HOOKS[1].M=9")[
            "SOLVER"
        ]["HOOKS"]
        assert hooks == [
            {"NAME": "LogHook", "N": 7},
            {"NAME": "CkptHook", "N": 2, "M": 9},
            {"NAME": "CkptHook", "N": 8},
        ]

    def test_null_takes_an_entry_out_and_places_stay_those_of_the_file(self) -> None:
        hooks = tree(CFG, "SOLVER.HOOKS[0]=null", "SOLVER.HOOKS[2].N=8")["SOLVER"]["HOOKS"]
        assert hooks == [{"NAME": "CkptHook", "N": 2}, {"NAME": "CkptHook", "N": 8}]

    def test_a_changed_name_drops_the_old_keys_but_not_those_of_other_overrides(self) -> None:
        for order in (
            ("SOLVER.OPT.NAME=SGD", "SOLVER.OPT.MOMENTUM=2"),
            ("SOLVER.OPT.MOMENTUM=2", "SOLVER.OPT.NAME=SGD"),
        ):
            assert tree(CFG, *order)["SOLVER"]["OPT"] == {"NAME": "SGD", "MOMENTUM": 2}
        same = tree(CFG, "SOLVER.OPT.NAME=AdamW")["SOLVER"]["OPT"]
        assert same == {"NAME": "AdamW", "LR": 0.001, "BETAS": [0.9, 0.99]}

    def test_delete_removes(self) -> None:
        assert tree(CFG, "SOLVER=!delete") == {"A": 1}

    def test_the_last_one_wins(self) -> None:
        assert tree("A: 1\n", "A=2", "A=3") == {"A": 3}

    def test_everything_that_is_wrong_is_reported_by_the_overrides_own_text(self) -> None:
        text = report(
            CFG, "SOLVER.HOOKS[LgHook].N=1", "SOLVER.HOOKS[CkptHook].N=1", "SOLVER.HOOKS[3].N=1", "nothing", "=1",
            "SOLVER.NAME.X=1", "SOLVER.NONE[0].X=1", "A=[1", "SOLVER.HOOKS.N=1", "_BASE=x.yaml",
        )  # fmt: skip
        lines = [line for line in text.splitlines() if line.startswith("override")]
        assert lines == [
            'override "SOLVER.HOOKS[LgHook].N=1": SOLVER.HOOKS[LgHook].N: no entry is named LgHook; '
            "the names there are: LogHook, CkptHook",
            'override "SOLVER.HOOKS[CkptHook].N=1": SOLVER.HOOKS[CkptHook].N: 2 entries are named CkptHook',
            'override "SOLVER.HOOKS[3].N=1": SOLVER.HOOKS[3].N: the list has 3 entries, counted from 0',
            'override "nothing": not an override',
            'override "=1": not a path of keys',
            'override "SOLVER.NAME.X=1": SOLVER.NAME.X: SOLVER.NAME is a value, not a section',
            'override "SOLVER.NONE[0].X=1": SOLVER.NONE[0].X: SOLVER.NONE has no entries',
            "override \"A=[1\": A: not valid YAML: expected ',' or ']', but got '<stream end>' "
            "(while parsing a flow sequence)",
            'override "SOLVER.HOOKS.N=1": SOLVER.HOOKS.N: SOLVER.HOOKS is a list: say which entry, by [place] or [NAME]',
            'override "_BASE=x.yaml": _BASE: only a file can inherit',
        ]
        assert "did you mean LogHook?" in text
        assert "pick one by its place: [1], [2]" in text

    def test_an_alias_is_not_changed_with_its_anchor(self) -> None:
        assert tree("A: &a {X: 1}\nB: *a\n", "A.X=2") == {"A": {"X": 2}, "B": {"X": 1}}


class TestReferences:
    def test_environment_time_and_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WHO", "me")
        monkeypatch.setenv("COUNT", "12")
        text = """\
A: ${env:WHO}-x
B: ${env:COUNT}
C: "${env:COUNT}"
D: ${env:NO_SUCH_VARIABLE,some thing}
E: ${env:NO_SUCH_VARIABLE,}
F: ${now:%Y%m%d-%H%M%S}
G: ${H.I}/sub
H: {I: "${J}", K: "${L[1].M}", N: "${L[two].M}"}
J: 5
L: [{NAME: one, M: 1.5}, {NAME: two, M: [1]}]
O: $${J} and $${env:WHO}
P: ${H}
Q: 1 $ {J} $J
"""
        assert tree(text) == {
            "A": "me-x", "B": 12, "C": "12", "D": "some thing", "E": None, "F": "20260102-030405", "G": "5/sub",
            "H": {"I": 5, "K": [1], "N": [1]}, "J": 5, "L": [{"NAME": "one", "M": 1.5}, {"NAME": "two", "M": [1]}],
            "O": "${J} and ${env:WHO}", "P": {"I": 5, "K": [1], "N": [1]}, "Q": "1 $ {J} $J",
        }  # fmt: skip

    def test_overrides_come_before_references(self) -> None:
        assert tree("A: 1\nB: ${A}\n", "A=2", "C=${B}x") == {"A": 2, "B": 2, "C": "2x"}

    def test_the_source_stays_known_for_writing_it_back(self) -> None:
        write(cfg="A: ${env:NO_SUCH_VARIABLE,x}/${now:%Y}\nB: ${now:%Y}\nC: ${A}\n")
        root = compose("cfg.yaml", now=NOW)
        raws = {key: entry.node.raw for key, entry in root.entries.items()}
        assert raws == {"A": "${env:NO_SUCH_VARIABLE,x}/2026", "B": None, "C": "${A}"}

    def test_what_a_variable_holds_is_no_reference(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TRICK", "${A}")
        assert tree("A: 1\nB: ${env:TRICK}\n") == {"A": 1, "B": "${A}"}

    def test_everything_that_is_wrong_is_located(self) -> None:
        text = report(
            "A: ${env:NO_SUCH_VARIABLE}\nB: ${SOLVER.WORK_DRI}\nC: ${C}\nD: ${E}\nE: x${D}\nF: ${\nG: ${}\n"
            "H: ${foo:x}\nI: a${SOLVER}\nJ: a${K}\nK:\nSOLVER: {WORK_DIR: x}\n"
        )
        lines = [line for line in text.splitlines() if line.startswith("cfg")]
        assert lines == [
            "cfg.yaml:1:4: A: the environment variable NO_SUCH_VARIABLE is not set",
            "cfg.yaml:2:4: B: SOLVER.WORK_DRI: no key WORK_DRI is set here",
            "cfg.yaml:3:4: C: a reference that leads back to itself: C → C",
            "cfg.yaml:5:4: E: a reference that leads back to itself: D → E → D",
            "cfg.yaml:6:4: F: a reference without its closing brace",
            "cfg.yaml:7:4: G: an empty reference",
            "cfg.yaml:8:4: H: unknown reference ${foo:…}: there are ${env:NAME}, ${now:FORMAT} and ${A.B}",
            "cfg.yaml:9:4: I: ${SOLVER} is not a single value, so it cannot be part of a text",
            "cfg.yaml:10:4: J: ${K} is empty",
        ]
        assert "did you mean WORK_DIR?" in text

    def test_references_that_explode_are_errors(self) -> None:
        lists = "\n".join(
            f"X{n}: ['${{X{n + 1}}}', '${{X{n + 1}}}', '${{X{n + 1}}}', '${{X{n + 1}}}']" for n in range(30)
        )
        assert "references that multiply" in report(lists + "\nX30: [1, 2]\n")
        texts = "\n".join(f"X{n}: ${{X{n + 1}}}${{X{n + 1}}}${{X{n + 1}}}${{X{n + 1}}}" for n in range(30))
        assert "references that multiply into more text" in report(texts + "\nX30: abcdefgh\n")
        chain = "\n".join(f"X{n}: ${{X{n + 1}}}" for n in range(100))
        assert "a chain of more than 50 references" in report(chain + "\nX100: 1\n")


def test_relative_paths_stay_as_they_were_given() -> None:
    Path("sub").mkdir()
    Path("sub/base.yaml").write_text("A: [1\n")
    write(cfg="_BASE: sub/base.yaml\n")
    with pytest.raises(ConfigError) as caught:
        compose("./cfg.yaml", now=NOW)
    assert str(caught.value).startswith("./sub/base.yaml:2:1: not valid YAML")


def test_marks_of_overrides_name_the_override() -> None:
    write(cfg="A: 1\n")
    root = compose("cfg.yaml", ["B.C=x"], now=NOW)
    section = root.get("B")
    assert isinstance(section, Mapping)
    node = section.get("C")
    assert isinstance(node, Scalar)
    assert str(node.mark) == 'override "B.C=x"'
