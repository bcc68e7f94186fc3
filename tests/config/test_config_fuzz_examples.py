"""The example configurations, changed at random by someone who types badly: a valid configuration or located problems.

The long form, hundreds of times as many inputs: `pytest tests/config --hypothesis-profile long`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scepter_core import ConfigError, load_config
from scepter_core.runconfig import RunConfig, dump_config

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
TIMES = max(settings().max_examples // 100, 1)  # of the profile: 1, and 100 in the long one

SCALARS = [
    "", "~", "null", "true", "yes", "0", "-1", "1e-3", "1e999", ".inf", ".nan", "0x1F", "0o17", "1_000", "1:30", "3.0",
    '"3"', "'x", '"\\x00"', '"\\ud800"', "é", "\U0001f600", "\u202e", "\u2028", "\ufeff", "\x85", "\x07", "\t", "x" * 5000,
    "9" * 5000, "[]", "{}", "[1, [2, {A: 3}]]", "{NAME: CheckpointHook}", "{NAME: }", "{NAME: Nothing, X: 1}", "!delete",
    "!!python/object/apply:os.abort []", "!!binary AAAA", "!!set {a}", "&a", "*a", "&a [*a]", "|", ">-", "? a", "- b",
    "${env:SCEPTER_NOT_SET}", "${env:SCEPTER_NOT_SET,3}", "${now:%Y}", "${now:%", "$${x}", "${", "${}", "${SOLVER}",
    "${SOLVER.WORK_DIR}", "${SOLVER.TRAIN_HOOKS}", "${SOLVER.MODEL.NAME}", "${ENV}", "${SOLVER.MAX_STEPS}", "${A.B[0]}",
    "a: b", "#", "@x", "`x", "%", ",", ":", "-", "--", "...", "---", "/dev/null", "../../x", "a\\b", "<<", "=",
]  # fmt: skip
KEYS = [
    "PLUGINS", "ENV", "SOLVER", "NAME", "name", "SEED", "WORK_DIR", "MAX_EPOCHS", "MAX_STEPS", "ACCU_STEP", "TRAIN_DATA",
    "BATCH_SIZE", "NUM_WORKERS", "MODEL", "OPTIMIZER", "LEARNING_RATE", "LEARNIN_RATE", "BETAS", "PARAM_GROUPS", "PATTERN",
    "LR_SCHEDULER", "T_MAX", "METRICS", "KEYS", "TRAIN_HOOKS", "EVAL_HOOKS", "INTERVAL", "SAVE_NAME_PREFIX", "META", "MODE",
    "_BASE", "<<", "é", "on", "1", "~", '""', "'A'", "A.B", "TRAIN_HOOKS[0]", "[a, b]", "{a: b}", "&k A", "*k", "!delete",
]  # fmt: skip
HOOKS = ["BackwardHook", "LogHook", "0", "-1", "99", "", "LrHook", "Nothing", "*"]


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> list[Path]:
    """The example configurations, in a folder that mutants of them can be written to."""
    folder = tmp_path_factory.mktemp("examples")
    paths = []
    for source in sorted(EXAMPLES.glob("*/*.yaml")):
        shutil.copytree(source.parent, folder / source.parent.name, ignore=shutil.ignore_patterns("__pycache__"))
        paths.append(folder / source.parent.name / source.name)
    assert len(paths) >= 2
    for path in paths:
        load_config(path)  # what they import takes its time once
    return paths


class Typist:
    """Makes one change after another to the lines of a text, as `draw` decides."""

    def __init__(self, draw, text: str) -> None:
        self.draw, self.lines = draw, text.splitlines()

    def mistype(self) -> None:
        at = self.draw(st.integers(0, len(self.lines) - 1))
        change = self.draw(st.sampled_from(sorted(name for name in vars(Typist) if name.startswith("to_"))))
        getattr(self, change)(at)
        self.lines = self.lines or [""]

    def to_another_value(self, at: int) -> None:
        head, colon, _ = self.lines[at].partition(":")
        self.lines[at] = f"{head}{colon or ':'} {self.draw(st.sampled_from(SCALARS))}"

    def to_another_value_within(self, at: int) -> None:
        parts = self.lines[at].split(", ")
        place = self.draw(st.integers(0, len(parts) - 1))
        head = parts[place].rpartition(": ")[0]
        parts[place] = f"{head}: {self.draw(st.sampled_from(SCALARS))}"
        self.lines[at] = ", ".join(parts) + self.draw(st.sampled_from(["", "}", "]", "}}"]))

    def to_another_key(self, at: int) -> None:
        line = self.lines[at]
        indent = line[: len(line) - len(line.lstrip(" -"))]
        self.lines[at] = f"{indent}{self.draw(st.sampled_from(KEYS))}:{line.partition(':')[2]}"

    def to_one_more(self, at: int) -> None:
        line = self.lines[at]
        indent = line[: len(line) - len(line.lstrip(" -"))]
        value = self.draw(st.sampled_from(SCALARS))
        self.lines.insert(at, f"{indent}{self.draw(st.sampled_from(KEYS))}: {value}")

    def to_another_indent(self, at: int) -> None:
        self.lines[at] = self.draw(st.sampled_from(["", " ", "    ", "\t", "- ", "  - "])) + self.lines[at].lstrip()

    def to_two(self, at: int) -> None:
        self.lines.insert(at, self.lines[at])

    def to_nothing(self, at: int) -> None:
        del self.lines[at]

    def to_the_end(self, at: int) -> None:
        self.lines.append(self.lines.pop(at))

    def to_a_broken_line(self, at: int) -> None:
        place = self.draw(st.integers(0, len(self.lines[at])))
        self.lines[at : at + 1] = [self.lines[at][:place], self.lines[at][place:]]

    def to_a_line_with_a_character(self, at: int) -> None:
        place = self.draw(st.integers(0, len(self.lines[at])))
        self.lines[at] = self.lines[at][:place] + self.draw(st.characters()) + self.lines[at][place:]

    def to_a_deep_one(self, at: int) -> None:
        depth = self.draw(st.sampled_from([3, 99, 101, 3000]))
        opening = self.draw(st.sampled_from(["[", "{A: ", "- ", "? "]))
        self.lines[at] = f"{self.lines[at].partition(':')[0]}: {opening * depth}"

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def answer(path: Path, overrides: list[str]) -> None:
    """Load it: a problem says where it is; a configuration is written so that it reads back the same."""
    try:
        config = load_config(path, overrides)
    except ConfigError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.message
            assert problem.mark is not None or problem.path, problem
            assert len(str(problem)) < 4000, "a message that someone can read"
    else:
        assert isinstance(config, RunConfig)
        written = dump_config(config)
        again = path.with_name("again.yaml")
        again.write_text(written, encoding="utf-8")
        assert dump_config(load_config(again)) == written


LONG = settings(deadline=10_000, suppress_health_check=list(HealthCheck))


@settings(LONG, max_examples=300 * TIMES)
@given(data=st.data())
def test_a_mistyped_example(examples, data) -> None:
    source = data.draw(st.sampled_from(examples))
    typist = Typist(data.draw, source.read_text(encoding="utf-8"))
    for _ in range(data.draw(st.integers(1, 4))):
        typist.mistype()
    path = source.with_name("mutant.yaml")
    path.write_bytes(typist.text.encode("utf-8", "surrogatepass"))
    answer(path, [])


PATHS = st.lists(
    st.one_of(
        st.sampled_from(KEYS),
        st.sampled_from(HOOKS).map(lambda name: f"TRAIN_HOOKS[{name}]"),
        st.text(st.characters(), max_size=3),
    ),
    max_size=4,
).map(".".join)
OVERRIDES = st.one_of(
    st.tuples(st.sampled_from(["SOLVER.", "SOLVER.TRAIN_HOOKS[LogHook].", "SOLVER.MODEL.", "ENV.", ""]), PATHS,
              st.sampled_from(["=", "=", "=", "", "==", " = "]), st.sampled_from(SCALARS)).map("".join),
    st.text(st.characters(), max_size=20),
)  # fmt: skip


@settings(LONG, max_examples=200 * TIMES)
@given(data=st.data())
def test_mistyped_overrides_of_an_example(examples, data) -> None:
    path = data.draw(st.sampled_from(examples))
    answer(path, data.draw(st.lists(OVERRIDES, min_size=1, max_size=4)))


REFERENCES = ["${A}", "${B}", "${C.D}", "${C}", "${L[0]}", "${L}", "x${A}y${B}", "${C[${A}]}", "1", "{D: ${A}}", "[${B}]"]


@settings(LONG, max_examples=150 * TIMES)
@given(values=st.lists(st.sampled_from(REFERENCES), min_size=4, max_size=4))
@example(values=["${B}", "${A}", "1", "1"])
@example(values=["${A}", "1", "1", "1"])
@example(values=["${C}", "1", "{D: ${A}}", "1"])
def test_references_in_circles_end(examples, values) -> None:
    path = examples[0].with_name("references.yaml")
    keys = dict(zip("ABCL", values, strict=True))
    lines = "".join(f"  {key}: {value}\n" for key, value in keys.items())
    lines = lines.replace("${", "${META.")
    path.write_text(f"{examples[0].read_text(encoding='utf-8')}META:\n{lines}", encoding="utf-8")
    answer(path, [])


BASES = ["one.yaml", "two.yaml", "three.yaml", "./one.yaml", "sub/../two.yaml", "none.yaml", ".", "", "[one.yaml, two.yaml]",
         "[]", "[[one.yaml]]", "{a: b}", "${env:SCEPTER_NOT_SET,one.yaml}", "${SOLVER.NAME}", "\\0", "/dev/null", "~"]  # fmt: skip


@settings(LONG, max_examples=100 * TIMES)
@given(bases=st.lists(st.sampled_from(BASES), min_size=3, max_size=3))
@example(bases=["two.yaml", "three.yaml", "one.yaml"])
@example(bases=["one.yaml", "", ""])
def test_files_that_inherit_in_circles_end(examples, bases) -> None:
    for name, base in zip(("one", "two", "three"), bases, strict=True):
        text = examples[0].read_text(encoding="utf-8") if name == "three" else ""
        examples[0].with_name(f"{name}.yaml").write_text(f"_BASE: {base}\n{text}META: {name}\n", encoding="utf-8")
    answer(examples[0].with_name("one.yaml"), [])
