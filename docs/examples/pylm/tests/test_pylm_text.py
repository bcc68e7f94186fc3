from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from scepter_pylm import CHARACTERS, PythonSource, decode, encode, source_files
from scepter_pylm.bigram import bigram_bits


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Sixty files of seven characters each, and some that are no part of it."""
    for number in range(60):
        (tmp_path / f"m{number:02}.py").write_text(f"x = {number:02}\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages/other.py").write_text("y")
    (tmp_path / "notes.txt").write_text("z")
    return tmp_path


def test_text_and_back() -> None:
    assert decode(encode("def f():\n\treturn 'é'")) == "def f():\n    return '\N{REPLACEMENT CHARACTER}'"
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 97


def test_no_file_is_in_both_parts_and_none_is_left_out(library: Path) -> None:
    parts = [{path.name for path in source_files(part, str(library))} for part in ("train", "eval")]
    assert parts[0] | parts[1] == {f"m{number:02}.py" for number in range(60)}
    assert not parts[0] & parts[1]
    assert 0 < len(parts[1]) < 12
    here = [set(source_files(part)) for part in ("train", "eval")]  # the library that runs this
    assert len(here[0]) > 10 * len(here[1]) > 0


def test_a_pass_gives_every_window_once_in_an_order_of_its_own(library: Path) -> None:
    data = PythonSource("train", context=3, root=str(library))
    passes = [[decode(sample["text"]) for sample in data] for _ in range(2)]
    expected = sorted(text for path in data.files for text in (path.read_text()[:4], path.read_text()[3:7]))
    assert sorted(passes[0]) == sorted(passes[1]) == expected
    assert passes[0] != passes[1]


def test_it_goes_on_from_its_state(library: Path) -> None:
    data = PythonSource("train", context=3, root=str(library))
    stream = iter(data)
    before = [decode(next(stream)["text"]) for _ in range(7)]
    state = data.state_dict()
    rest = [decode(sample["text"]) for sample in stream]
    again = PythonSource("train", context=3, root=str(library))
    again.load_state_dict(state)
    assert [decode(sample["text"]) for sample in again] == rest
    assert len(before) + len(rest) == 2 * len(data.files)


def test_the_bigram_model_counts() -> None:
    # After "a": b twice of 2 + 97 pseudo-counts; after "b": a once of 1 + 97.
    expected = -(math.log2(3 / 99) + math.log2(2 / 98)) / 2
    assert bigram_bits([encode("abab")], [encode("aba")]) == pytest.approx(expected, abs=1e-12)


def test_every_tenth_window_is_of_all_files(library: Path) -> None:
    everything = [decode(sample["text"]) for sample in PythonSource("eval", context=3, root=str(library))]
    tenth = PythonSource("eval", context=3, every=3, root=str(library))
    passes = [[decode(sample["text"]) for sample in tenth] for _ in range(2)]
    assert passes == [everything[::3], everything[::3]]
