"""Requirements files, extras, names, entry points, folders and versions say the same."""

from __future__ import annotations

import ast
import importlib
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import scepter_core
from scepter_core.discovery import GROUPS

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
EXAMPLES = sorted(path.parent for path in ROOT.glob("docs/examples/*/pyproject.toml"))
VERSION = scepter_core.__version__
each_plugin = pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.name)
each_package = pytest.mark.parametrize("folder", [*PLUGINS, *EXAMPLES], ids=lambda folder: folder.name)


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def module_of(folder: Path) -> str:
    return project(folder)["project"]["name"].replace("-", "_")


def next_minor() -> str:
    major, minor, _ = VERSION.split(".")
    return f"{major}.{int(minor) + 1}"


def lines_of(file: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / file).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def requirements_of(folder: Path) -> dict[str, Requirement]:
    found = [Requirement(text) for text in project(folder)["project"]["dependencies"]]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def test_there_are_plugins():
    assert {"scepter-backward", "scepter-checkpoint", "scepter-log", "scepter-lr"} <= {
        path.name for path in PLUGINS
    }


@each_package
def test_folder_distribution_and_module_have_one_name(folder):
    settings = project(folder)
    module = module_of(folder)
    if folder in PLUGINS:
        assert settings["project"]["name"] == folder.name
    assert module.startswith("scepter_")
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"src/{module}"]
    assert [path.name for path in (folder / "src").iterdir() if path.name != "__pycache__"] == [module]
    assert (folder / "src" / module / "__init__.py").is_file()
    assert (folder / "src" / module / "py.typed").is_file()


@each_package
def test_entry_points_name_what_is_there_by_its_own_name(folder):
    entry_points = project(folder)["project"]["entry-points"]
    assert entry_points.keys() <= set(GROUPS.values())
    assert sum(map(len, entry_points.values())) > 0
    for group, names in entry_points.items():
        for name, value in names.items():
            module, _, attribute = value.partition(":")
            assert module == module_of(folder)
            thing = getattr(importlib.import_module(module), attribute)
            assert thing.__name__ == (f"{name.title()}Engine" if group == "scepter.engines" else name)
            assert attribute in importlib.import_module(module).__all__


def test_no_entry_point_is_claimed_twice():
    claims = Counter(
        (group, name)
        for folder in [*PLUGINS, *EXAMPLES]
        for group, names in project(folder)["project"]["entry-points"].items()
        for name in names
    )
    assert [claim for claim, number in claims.items() if number > 1] == []


@each_plugin
def test_plugin_has_the_version_of_the_core(folder):
    settings = project(folder)
    assert settings["project"]["dynamic"] == ["version"]
    path = (folder / settings["tool"]["hatch"]["version"]["path"]).resolve()
    assert path == ROOT / project(ROOT)["tool"]["hatch"]["version"]["path"]
    assert f'"{VERSION}"' in path.read_text(encoding="utf-8")


@each_package
def test_package_asks_for_this_minor_version_of_the_core(folder):
    needed = requirements_of(folder)["scepter-core"].specifier
    major, minor, _ = VERSION.split(".")
    assert {str(part) for part in needed} == {f">={major}.{minor}", f"<{next_minor()}"}
    assert needed.contains(VERSION)


@each_package
def test_package_describes_itself_as_the_core_does(folder):
    own, core = project(folder)["project"], project(ROOT)["project"]
    assert own["requires-python"] == core["requires-python"]
    assert own["license"] == core["license"]
    assert own["description"].endswith(".")
    readme = folder / own["readme"]
    assert readme.read_text(encoding="utf-8").startswith(f"# {own['name']}\n")
    assert "pytest" in {Requirement(text).name for text in own["optional-dependencies"]["test"]}


@each_package
def test_package_asks_for_no_other_plugin(folder):
    others = {path.name for path in PLUGINS} - {folder.name}
    assert requirements_of(folder).keys() & others == set()


@each_package
def test_shared_dependencies_ask_for_the_same(folder):
    core = requirements_of(ROOT)
    for name, requirement in requirements_of(folder).items():
        if name in core:
            assert requirement.specifier == core[name].specifier, name


@each_package
def test_package_brings_tests(folder):
    tests = sorted((folder / "tests").glob("test_*.py"))
    assert tests
    short = module_of(folder).removeprefix("scepter_")
    assert all(path.name.startswith(f"test_{short}") for path in tests)


def test_the_extra_all_names_every_plugin_and_its_version():
    requirements = [Requirement(text) for text in project(ROOT)["project"]["optional-dependencies"]["all"]]
    assert [requirement.name for requirement in requirements] == [path.name for path in PLUGINS]
    for requirement in requirements:
        assert requirement.specifier.contains(VERSION), requirement
        assert not requirement.specifier.contains(f"{next_minor()}.0"), requirement


def test_requirements_install_the_core_the_standard_plugins_and_the_example():
    editable = {line.removeprefix("-e ") for line in lines_of("requirements.txt") if line.startswith("-e ")}
    standard = ("backward", "checkpoint", "log", "lr")
    assert editable == {".", *(f"./plugins/scepter-{name}" for name in standard), "./docs/examples/digits"}
    assert all((ROOT / path / "pyproject.toml").is_file() for path in editable)


def test_development_requirements_install_every_plugin_and_example():
    files = ["requirements.txt", "requirements-dev.txt"]
    assert "-r requirements.txt" in lines_of("requirements-dev.txt")
    editable = {
        line.removeprefix("-e ") for file in files for line in lines_of(file) if line.startswith("-e ")
    }
    packages = {str(path.relative_to(ROOT)) for path in [*PLUGINS, *EXAMPLES]}
    assert {str(Path(path)) for path in editable} == {".", *packages}


def test_development_requirements_hold_what_the_tests_import():
    words = [line for line in lines_of("requirements-dev.txt") if not line.startswith("-")]
    named = {canonicalize_name(Requirement(line).name) for line in words} | requirements_of(ROOT).keys()
    known = {"yaml": "pyyaml", "importlinter": "import-linter", "sklearn": "scikit-learn", "PIL": "pillow"}
    own = {"scepter_core", "tests", *(module_of(folder) for folder in [*PLUGINS, *EXAMPLES])}
    brought = {name for folder in [*PLUGINS, *EXAMPLES] for name in requirements_of(folder)}
    missing = set()
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("plugins/*/tests/*.py")]:
        missing |= {
            name
            for name in imports_of(path)
            if name not in sys.stdlib_module_names
            and name not in own
            and not (path.parent / f"{name}.py").exists()
            and canonicalize_name(known.get(name, name)) not in named | brought
        }
    assert missing == set()


def test_constraints_are_of_packages_that_the_core_asks_for_and_agree():
    core = requirements_of(ROOT)
    assert "-c constraints.txt" in lines_of("requirements.txt")
    for line in lines_of("constraints.txt"):
        constraint = Requirement(line)
        (pin,) = constraint.specifier
        assert pin.operator == "=="
        assert core[canonicalize_name(constraint.name)].specifier.contains(pin.version)


def test_test_files_have_unique_names():
    names = Counter(
        path.name
        for pattern in ("tests/**/test_*.py", "plugins/*/tests/**/test_*.py", "docs/**/test_*.py")
        for path in ROOT.glob(pattern)
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_coverage_and_import_walls_know_every_plugin():
    modules = {module_of(folder) for folder in PLUGINS}
    tools = project(ROOT)["tool"]
    assert set(tools["coverage"]["run"]["source_pkgs"]) == {"scepter_core", *modules}
    assert set(tools["importlinter"]["root_packages"]) == {"scepter_core", *modules}
    for contract in tools["importlinter"]["contracts"]:
        for key in ("modules", "source_modules", "forbidden_modules"):
            listed = {
                name for name in contract.get(key, []) if name.startswith("scepter_") and "core" not in name
            }
            assert listed in (set(), modules), contract["name"]


@each_plugin
def test_plugin_and_its_tests_use_public_names_of_the_core_only(folder):
    offences = []
    for path in [*folder.glob("src/**/*.py"), *folder.glob("tests/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                offences += [
                    f"{path.name}: {name.name}"
                    for name in node.names
                    if name.name.startswith("scepter_core.")
                ]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("scepter_core."):
                offences.append(f"{path.name}: {node.module}")
            elif isinstance(node, ast.ImportFrom) and node.module == "scepter_core":
                offences += [
                    f"{path.name}: {name.name}"
                    for name in node.names
                    if name.name not in scepter_core.__all__
                ]
        others = {module_of(other) for other in PLUGINS if other != folder}
        offences += [f"{path.name}: {name}" for name in imports_of(path) & others]
    assert offences == []


def imports_of(path: Path) -> set[str]:
    """The top-level modules that a file imports when it runs."""
    found = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
        for_types_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        nodes += [] if for_types_only else list(ast.iter_child_nodes(node))
    return found


def test_readmes_name_the_packages_to_install():
    """A plugin's README says which hook it brings, in its first lines."""
    for folder in PLUGINS:
        text = (folder / "README.md").read_text(encoding="utf-8")
        for names in project(folder)["project"]["entry-points"].values():
            for name in names:
                assert re.search(rf"`{name}`", text.split("\n## ")[0]), f"{folder.name} does not name {name}"
