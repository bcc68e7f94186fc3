"""Installed plugins: found by their metadata, loaded by name, and refused with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scepter_core import __version__ as VERSION
from scepter_core import discovery, load_config
from scepter_core.errors import ConfigError
from scepter_core.registry import DATASETS, HOOKS, UnknownName, origin

GOOD = """
from scepter_core import Hook

class GoodHook(Hook):
    pass
"""


def install(
    site: Path,
    name: str,
    entry_points: str,
    modules: dict[str, str] | None = None,
    requires: str = "",
    version: str = "1.0",
) -> Path:
    """Lay a distribution down as pip does: its modules, and a dist-info folder."""
    site.mkdir(exist_ok=True)
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {text}" for text in requires.splitlines()]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "entry_points.txt").write_text(entry_points)
    (info / "RECORD").write_text("")
    for module, text in (modules or {}).items():
        (site / f"{module}.py").write_text(text)
    return site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty folder of installed things, seen by this process and without a trace after the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    discovery.reset()
    yield folder
    for name in set(sys.modules) - before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    discovery.reset()


def refusal(name: str, kind=HOOKS) -> UnknownName:
    with pytest.raises(UnknownName) as caught:
        kind.lookup(name)
    return caught.value


def test_a_plugin_is_listed_without_being_imported_and_loaded_by_name(site: Path):
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    assert "GoodHook" in HOOKS.names()
    assert "acme_good" not in sys.modules
    assert discovery.find("hooks", "GoodHook") == [
        discovery.Plugin("hooks", "GoodHook", "acme_good:GoodHook", "acme-good", "1.0", None)
    ]
    loaded = HOOKS.get("GoodHook")
    assert (loaded.__module__, loaded.__qualname__) == ("acme_good", "GoodHook")
    assert origin(loaded) == "acme-good 1.0"
    hook = HOOKS.build({"NAME": "GoodHook", "PRIORITY": 7})
    assert type(hook) is loaded
    assert (hook.priority, origin(hook)) == (7, "acme-good 1.0")


def test_all_kinds_have_a_group(site: Path):
    install(
        site, "acme-all", "\n".join(f"[scepter.{kind}]\nThing = acme_all:Thing" for kind in discovery.KINDS)
    )
    found = [plugin.kind for plugin in discovery.plugins() if plugin.distribution == "acme-all"]
    assert found == sorted(discovery.KINDS)


def test_a_broken_plugin_is_refused_with_its_cause_and_harms_no_other(site: Path):
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    entry = "[scepter.hooks]\nBadHook = acme_bad:BadHook\nGoneHook = acme_gone:GoneHook\nNoHook = acme_good:NoHook\n"
    install(site, "acme-bad", entry, {"acme_bad": "import a_module_nobody_has\n"})
    assert HOOKS.get("GoodHook").__name__ == "GoodHook"
    error = refusal("BadHook")
    assert error.message == (
        "BadHook of acme-bad 1.0 cannot be imported: ModuleNotFoundError: No module named 'a_module_nobody_has'"
    )
    assert error.hint == "reinstall or repair acme-bad"
    assert isinstance(error.__cause__, ModuleNotFoundError)
    assert "No module named 'acme_gone'" in refusal("GoneHook").message
    assert "has no attribute 'NoHook'" in refusal("NoHook").message
    assert {"BadHook", "GoneHook", "NoHook"} <= set(HOOKS.names())


def test_from_python_the_refusal_is_a_config_error_with_the_cause(site: Path):
    install(site, "acme-bad", "[scepter.hooks]\nBadHook = acme_bad:BadHook\n", {"acme_bad": "1 / 0"})
    with pytest.raises(ConfigError, match="ZeroDivisionError: division by zero") as caught:
        HOOKS.build({"NAME": "BadHook"})
    assert caught.value.problems[0].hint == "reinstall or repair acme-bad"
    with pytest.raises(ConfigError) as caught:
        HOOKS.get("BadHook")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_plugin_that_exits_when_imported_does_not_end_the_program(site: Path):
    install(
        site,
        "acme-exit",
        "[scepter.hooks]\nExit = acme_exit:Exit\n",
        {"acme_exit": "raise SystemExit('bye')"},
    )
    assert refusal("Exit").message == "Exit of acme-exit 1.0 cannot be imported: SystemExit: bye"


def test_a_name_of_two_distributions_is_refused_where_it_is_used(site: Path):
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    install(
        site,
        "other-good",
        "[scepter.hooks]\nGoodHook = other_good:GoodHook\n",
        {"other_good": GOOD},
        version="2.0",
    )
    error = refusal("GoodHook")
    assert error.message == "the hook GoodHook is claimed by acme-good 1.0 and other-good 2.0"
    assert error.hint == "uninstall or --disable-plugin one of them"
    discovery.disable(["Other_Good"])
    assert HOOKS.get("GoodHook").__module__ == "acme_good"


def test_one_name_in_two_groups_is_no_conflict(site: Path):
    install(site, "acme-good", "[scepter.hooks]\nTwin = acme_good:GoodHook\n", {"acme_good": GOOD})
    install(site, "other", "[scepter.datasets]\nTwin = other:Twin\n", {"other": "class Twin: ..."})
    assert HOOKS.get("Twin").__module__ == "acme_good"
    assert DATASETS.get("Twin").__module__ == "other"


def test_the_same_distribution_twice_counts_once_and_the_first_on_the_path_is_it(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    entry = "[scepter.hooks]\nGoodHook = acme_good:GoodHook\nOldHook = acme_good:OldHook\n"
    older = install(tmp_path / "older", "Acme_Good", entry, version="0.9")
    monkeypatch.setattr(sys, "path", [*sys.path, str(older)])
    discovery.reset()
    assert [plugin.version for plugin in discovery.find("hooks", "GoodHook")] == ["1.0"]
    assert discovery.find("hooks", "OldHook") == []


def test_an_incompatible_plugin_is_refused_before_it_is_imported(site: Path):
    entry = "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n"
    install(site, "acme-good", entry, {"acme_good": GOOD}, requires="scepter-core>=99")
    error = refusal("GoodHook")
    assert error.message == "GoodHook of acme-good 1.0 needs scepter-core>=99; this is 0.1.0"
    assert error.hint == "install versions of acme-good and scepter-core that fit"
    assert "acme_good" not in sys.modules
    assert [plugin.compatible for plugin in discovery.find("hooks", "GoodHook")] == [False]


@pytest.mark.parametrize(
    ("requires", "specifier", "fits"),
    [
        ("", None, True),
        ("torch>=99", None, True),
        ("scepter-core", None, True),
        ("Scepter_Core >=0.1,<0.2", "<0.2,>=0.1", True),
        ("scepter-core>=0.1\nscepter-core<0.1", ">=0.1,<0.1", False),
        ("scepter-core>=99; extra == 'dev'", None, True),
        ("scepter-core>=99; python_version < '3'", None, True),
        ("scepter-core>=99; python_version > '3'", ">=99", False),
        ("scepter-core[all]==0.1.*", "==0.1.*", True),
        ("not a requirement !!", None, True),
    ],
)
def test_what_a_plugin_asks_of_the_core(site: Path, requires: str, specifier: str | None, fits: bool):
    install(
        site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD}, requires
    )
    [plugin] = discovery.find("hooks", "GoodHook")
    assert (plugin.requires_core, plugin.compatible) == (specifier, fits)


def test_a_development_version_of_the_core_counts_as_its_base_version(monkeypatch: pytest.MonkeyPatch):
    plugin = discovery.Plugin("hooks", "X", "x:X", "x", "1.0", ">=0.2,<0.3")
    for version, fits in {
        "0.2.0.dev3": True,
        "0.2.1rc1+local": True,
        "0.3.0.dev1": False,
        "0.1.9": False,
    }.items():
        monkeypatch.setattr("scepter_core.discovery.installed.__version__", version)
        assert plugin.compatible is fits, version


def test_a_thing_of_the_wrong_base_is_refused(site: Path):
    text = "class NoHook: ...\nfrom scepter_core import Hook\nclass Odd(Hook):\n    def __init__(self, width=3): ...\nnumber = 3\n"
    entry = "[scepter.hooks]\nNoHook = acme_odd:NoHook\nOdd = acme_odd:Odd\n[scepter.datasets]\nNumber = acme_odd:number\n"
    install(site, "acme-odd", entry, {"acme_odd": text})
    assert refusal("NoHook").message == (
        "NoHook of acme-odd 1.0 cannot be used: a hook has to derive from scepter_core.Hook"
    )
    assert refusal("Odd").message == (
        "Odd of acme-odd 1.0 cannot be used: a hook's __init__ takes (self, cfg, logger=None)"
    )
    assert (
        refusal("Number", DATASETS).message == "Number of acme-odd 1.0 cannot be used: 3 is nothing to call"
    )


def test_disabling_takes_plugins_out_by_name_or_distribution(site: Path):
    entry = "[scepter.hooks]\nGoodHook = acme_good:GoodHook\nTwin = acme_good:GoodHook\n"
    install(site, "acme-good", entry, {"acme_good": GOOD})
    discovery.disable(["Twin"])
    assert "Twin" not in HOOKS.names()
    assert HOOKS.get("GoodHook").__name__ == "GoodHook"
    assert refusal("Twin").message == "the hook Twin is disabled"
    discovery.disable(["acme_GOOD"])
    assert discovery.find("hooks", "GoodHook") == []
    with pytest.raises(
        ConfigError, match=r"no plugin or distribution 'acme-god' to disable; did you mean acme-good\?"
    ):
        discovery.disable(["acme-god"])
    discovery.reset()
    assert {"GoodHook", "Twin"} <= set(HOOKS.names())


def test_metadata_is_read_once_a_process(site: Path):
    assert discovery.find("hooks", "GoodHook") == []
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    assert discovery.find("hooks", "GoodHook") == []
    discovery.reset()
    assert len(discovery.find("hooks", "GoodHook")) == 1


def test_metadata_that_cannot_be_read_hides_no_plugin(site: Path):
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    install(site, "acme-torn", "[scepter.hooks]\nno equals sign\n")
    (site / "acme_empty-1.0.dist-info").mkdir()
    half = site / "acme_half-1.0.dist-info"
    half.mkdir()
    (half / "entry_points.txt").write_text("[scepter.hooks]\nHalf = half:Half\n")
    assert "GoodHook" in HOOKS.names()
    assert "Half" not in HOOKS.names()


def test_a_process_of_its_own_sees_the_plugin(site: Path):
    install(site, "acme-good", "[scepter.hooks]\nGoodHook = acme_good:GoodHook\n", {"acme_good": GOOD})
    code = (
        "from scepter_core import HOOKS; hook = HOOKS.build({'NAME': 'GoodHook'}); print(HOOKS.origin(hook))"
    )
    env = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("acme-good 1.0\n", "")


@pytest.mark.parametrize(
    ("requires", "text", "message"),
    [
        (
            "",
            "1 / 0",
            "lightning of acme-engine 1.0 cannot be imported: ZeroDivisionError: division by zero; "
            "reinstall or repair acme-engine",
        ),
        (
            "scepter-core>=9,<10",
            "1 / 0",
            f"lightning of acme-engine 1.0 needs scepter-core<10,>=9; this is {VERSION}; "
            "install versions of acme-engine and scepter-core that fit",
        ),
        (
            "",
            "class Engine: ...",
            "lightning of acme-engine 1.0 cannot be used: an engine has to derive from scepter_core.Engine",
        ),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused_at_its_key(site: Path, requires: str, text: str, message: str):
    entry = "[scepter.engines]\nlightning = acme_engine:Engine\n"
    install(site, "acme-engine", entry, {"acme_engine": text}, requires)
    discovery.disable(["scepter-lightning"])
    with pytest.raises(ConfigError) as caught:
        load_config({"ENV": {"USE_PL": True}, "SOLVER": {"NAME": "TrainValSolver", "WORK_DIR": "x"}})
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [("ENV.USE_PL", message)]
