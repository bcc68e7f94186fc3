from __future__ import annotations

import math
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from scepter_core import ConfigError
from scepter_pylm import CHARACTERS, PythonSource, decode, encode, source_files
from scepter_pylm.bigram import bigram_bits


def test_text_and_back() -> None:
    assert decode(encode("def f():\n\treturn 'é'")) == "def f():\n    return '\N{REPLACEMENT CHARACTER}'"
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 97


def test_no_file_is_in_both_parts_and_none_is_left_out(library: Path) -> None:
    parts = [{path.name for path in source_files(part, str(library))} for part in ("train", "eval")]
    assert parts[0] | parts[1] == {f"m{number:02}.py" for number in range(60)}
    assert not parts[0] & parts[1]
    assert 0 < len(parts[1]) < 12
    here = [source_files(part) for part in ("train", "eval")]  # the library that runs this
    assert len(here[0]) > 10 * len(here[1]) > 0
    assert not set(here[0]) & set(here[1])
    assert not any(part.endswith("-packages") for path in here[0] for part in path.parts)


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


def test_workers_share_a_pass(library: Path) -> None:
    data = PythonSource("train", context=3, root=str(library))
    alone, shared = ([decode(batch["text"][0]) for batch in DataLoader(data, num_workers=workers)] for workers in (0, 2))
    assert sorted(shared) == sorted(alone)
    assert len(shared) == 2 * len(data.files)


def test_it_has_no_length(library: Path) -> None:
    with pytest.raises(TypeError):
        len(PythonSource(root=str(library)))  # type: ignore[arg-type]


def test_the_bigram_model_counts() -> None:
    # "abab" has ab, ba, ab: after "a", b twice of 2 + 97 (each count one more than it is); after "b", a once of 1 + 97.
    expected = -(math.log2(3 / 99) + math.log2(2 / 98) + math.log2(1 / 98)) / 3
    assert bigram_bits([encode("abab")], [encode("aba"), encode("bb")]) == pytest.approx(expected, abs=1e-12)


def test_the_bigram_model_does_not_count_across_windows() -> None:
    assert bigram_bits([encode("ab"), encode("ab")], [encode("ba")]) == pytest.approx(math.log2(97), abs=1e-12)


def test_every_tenth_window_is_of_all_files(library: Path) -> None:
    everything = [decode(sample["text"]) for sample in PythonSource("eval", context=3, root=str(library))]
    tenth = PythonSource("eval", context=3, every=3, root=str(library))
    passes = [[decode(sample["text"]) for sample in tenth] for _ in range(2)]
    assert passes == [everything[::3], everything[::3]]


def test_a_folder_without_python_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no .py files for SPLIT: train\n    found:    {tmp_path}\n"):
        PythonSource("train", root=str(tmp_path))
