"""Which folder of a repository is the project of somebody who stands in it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.testrun.project import find_project, has_framework, map_projects
from tests.cdd_agent.testrun.test_project_detection import CARGO, PACKAGE, lay

NODE = PACKAGE % "node --test"
PYTHON = '[project]\nname = "a"\n'
SERVICES = {
    "README.md": "",
    "services/a/go.mod": "module a\n",
    "services/a/cmd/main.go": "",
    "services/b/conftest.py": "",
    "services/b/shop/cart.py": "",
    "services/b/tests/test_cart.py": "",
    "services/web/package.json": NODE,
    "services/web/src/a.js": "",
}
PLAIN = {
    "pyproject.toml": PYTHON,
    "src/shop/cart.py": "",
    "src/shop/tickets/__init__.py": "",
    "tests/conftest.py": "",
    "tests/unit/test_cart.py": "",
    "tests/app/package.json": NODE,
    "tests/app/pyproject.toml": PYTHON,
    "docs/requirements.txt": "pytest\n",
    "docs/Makefile": "test:\n\ttrue\n",
    "scripts/run.py": "",
    "node_modules/a/package.json": NODE,
}
BUILDS: Mapping[str, Mapping[str, str]] = {
    "cargo": {"Cargo.toml": "[workspace]\nmembers = ['a']\n", "a/Cargo.toml": CARGO},
    "maven": {"pom.xml": "<project><modules><module>a</module></modules></project>", "a/pom.xml": "<project/>"},
    "gradle": {"settings.gradle.kts": "", "a/build.gradle.kts": ""},
    "dotnet": {"all.sln": "", "a/a.csproj": '<Project Sdk="Microsoft.NET.Sdk"/>'},
}


@pytest.mark.parametrize(
    ("here", "project"),
    [
        ("services/a", "services/a"),
        ("services/a/cmd", "services/a"),
        ("services/b", "services/b"),
        ("services/b/shop", "services/b"),
        ("services/b/tests", "services/b"),
        ("services/web/src", "services/web"),
        ("services", "."),
        (".", "."),
    ],
)
def test_of_several_packages_the_nearest_upwards_is_the_project(tmp_path: Path, here: str, *, project: str) -> None:
    lay(tmp_path, SERVICES)
    assert find_project(tmp_path / here, top=tmp_path) == tmp_path / project


@pytest.mark.parametrize("here", sorted({str(Path(name).parent) for name in PLAIN}))
def test_a_repository_of_one_package_is_one_project_from_everywhere_in_it(tmp_path: Path, here: str) -> None:
    lay(tmp_path, PLAIN)
    assert find_project(tmp_path / here, top=tmp_path) == tmp_path


@pytest.mark.parametrize("files", [{"a/cart.py": ""}, {"tests/test_a.py": "", "a/cart.py": "", "a/b.py": ""}])
def test_loose_python_files_make_no_project_of_their_folder(tmp_path: Path, files: Mapping[str, str]) -> None:
    lay(tmp_path, files)
    assert find_project(tmp_path / "a", top=tmp_path) == tmp_path


def test_python_in_a_folder_beside_a_package_is_not_the_root_s(tmp_path: Path) -> None:
    lay(tmp_path, {"backend/app.py": "", "backend/test_app.py": "", "README.md": ""})
    assert has_framework(tmp_path)
    assert find_project(tmp_path / "backend", top=tmp_path) == tmp_path
    lay(tmp_path, {"frontend/package.json": NODE})
    assert not has_framework(tmp_path)
    for name in ("backend", "frontend"):
        assert find_project(tmp_path / name, top=tmp_path) == tmp_path / name


@pytest.mark.parametrize("build", BUILDS)
def test_a_member_of_a_build_belongs_to_what_begins_the_build(tmp_path: Path, build: str) -> None:
    lay(tmp_path, BUILDS[build])
    assert find_project(tmp_path / "a", top=tmp_path) == tmp_path
    alone = {name: text for name, text in BUILDS[build].items() if "/" in name}
    other = lay(tmp_path / "other", alone)
    assert find_project(other / "a", top=other) == other / "a"


def test_a_package_inside_another_one_is_its_own(tmp_path: Path) -> None:
    lay(tmp_path, {"pyproject.toml": PYTHON, "web/package.json": NODE, "plugin/pyproject.toml": PYTHON})
    for name in ("web", "plugin"):
        assert find_project(tmp_path / name, top=tmp_path) == tmp_path / name


def test_a_framework_that_no_folder_above_has_needs_no_manifest(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": NODE, "backend/requirements.txt": "pytest\n", "backend/shop/cart.py": ""})
    assert find_project(tmp_path / "backend" / "shop", top=tmp_path) == tmp_path / "backend"


def test_tickets_and_a_settings_file_make_a_project(tmp_path: Path) -> None:
    lay(tmp_path, {"pyproject.toml": PYTHON, "a/tickets/one/spec.yaml": "", "b/.cdd/config.yaml": "", "a/src/x": ""})
    assert find_project(tmp_path / "a" / "src", top=tmp_path) == tmp_path / "a"
    assert find_project(tmp_path / "b", top=tmp_path) == tmp_path / "b"


def test_tickets_above_are_meant_where_the_tests_are_found_beside_them(tmp_path: Path) -> None:
    lay(tmp_path, {"tickets/one/spec.yaml": "", "web/package.json": NODE})
    assert find_project(tmp_path / "web", top=tmp_path) == tmp_path / "web"
    lay(tmp_path, {"pyproject.toml": PYTHON})
    assert find_project(tmp_path / "web", top=tmp_path) == tmp_path


def test_files_are_told_apart_by_their_projects(tmp_path: Path) -> None:
    lay(tmp_path, SERVICES)
    named = ("services/a/main_test.go", "services/a/cmd", "services/b/tests/test_cart.py", "README.md")
    assert map_projects(tmp_path, named) == {
        tmp_path / "services/a": "services/a/main_test.go",
        tmp_path / "services/b": "services/b/tests/test_cart.py",
        tmp_path: "README.md",
    }


@pytest.mark.parametrize(
    ("files", "has"),
    [
        (SERVICES, False),
        (PLAIN, True),
        ({".cdd/config.yaml": "model: a\n"}, False),
        ({".cdd/config.yaml": "model: a\ntest_command: make check\n"}, True),
    ],
)
def test_a_root_has_tests_of_its_own_by_its_files_or_its_settings(
    tmp_path: Path, files: Mapping[str, str], *, has: bool
) -> None:
    assert has_framework(lay(tmp_path, files)) is has
