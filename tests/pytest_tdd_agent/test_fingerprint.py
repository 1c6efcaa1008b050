import subprocess
from pathlib import Path

import pytest

from pytest_tdd_agent.fingerprint import (
    compute_digests,
    find_changes,
    is_protected,
    is_runner_shadow,
    list_import_entries,
)


@pytest.mark.parametrize(
    "path",
    [
        "test_a.py",
        "src/a_test.py",
        "conftest.py",
        "src/conftest.py",
        "pytest.ini",
        "pytest.toml",
        "tests/data/in.csv",
        "src/pkg/test/make.py",
        "testing/data/in.csv",
    ],
)
def test_tests_their_data_and_the_configuration_are_protected(path: str) -> None:
    assert is_protected(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/a.py",
        "pyproject.toml",
        "setup.cfg",
        "tox.ini",
        "src/contest.py",
        "testing.py",
        "src/latest.py",
        "src/testing/a.py",
    ],
)
def test_the_product_is_not_protected(path: str) -> None:
    assert not is_protected(path)


@pytest.mark.parametrize(
    ("path", "is_test"),
    [
        ("src/check_a.py", True),
        ("src/check_a.txt", False),
        ("check_a/b.py", False),
        ("a/spec/b.py", True),
        ("checks/in.csv", True),
        ("plugins/a/e2e-tests/in.csv", True),
        ("src/pkg/in.csv", False),
        ("src/pkg/a.py", False),
        ("a.py", False),
        ("checks.py", False),
    ],
)
def test_what_the_projects_settings_call_tests_is_protected_and_no_product_by_mistake(
    path: str, *, is_test: bool
) -> None:
    python_files = ["test_*.py", "check_*.py", "spec/*b.py", "*.py", "[!_]*.py"]
    testpaths = ["./checks/", "plugins/*/e2e-tests", "src", ".", "..", "src/pkg"]
    assert is_protected(path, python_files=python_files, testpaths=testpaths) is is_test
    assert not is_protected(path)


def put(root: Path, name: str, text: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_only_protected_files_have_digests_and_caches_and_environments_are_left_out(tmp_path: Path) -> None:
    for name in (
        "src/a.py",
        "tests/test_a.py",
        "tests/data/in.csv",
        "tests/__pycache__/test_a.pyc",
        "tests/test_a.pyc",
        "tests/test_a.pyo",
        ".venv/lib/test_b.py",
        "env/pyvenv.cfg",
        "env/lib/test_c.py",
        "node_modules/x/test.py",
        "conftest.py",
    ):
        put(tmp_path, name)
    assert list(compute_digests(tmp_path)) == ["conftest.py", "tests/data/in.csv", "tests/test_a.py"]


def test_changed_added_and_removed_files_are_named(tmp_path: Path) -> None:
    put(tmp_path, "tests/test_a.py", "1")
    put(tmp_path, "tests/test_b.py", "1")
    before = compute_digests(tmp_path)
    put(tmp_path, "tests/test_a.py", "2")
    put(tmp_path, "tests/in.csv", "new")
    (tmp_path / "tests/test_b.py").unlink()
    assert find_changes(before, compute_digests(tmp_path)) == ("tests/in.csv", "tests/test_a.py", "tests/test_b.py")
    assert find_changes(before, before) == ()


PYPROJECT = """\
[project]
name = "a"

[tool.pytest.ini_options]
addopts = "-ra"

[tool.ruff]
line-length = 100
"""


@pytest.mark.parametrize(
    ("file", "key", "text", "product", "tests"),
    [
        ("pyproject.toml", "pyproject.toml[tool.pytest]", PYPROJECT, ("name", "title"), ("-ra", "-k x")),
        ("setup.cfg", "setup.cfg[tool:pytest]", "[a]\nb=1\n[tool:pytest]\nc=2\n", ("b=1", "b=3"), ("c=2", "c=3")),
        ("tox.ini", "tox.ini[pytest]", "[tox]\nb=1\n\n[pytest]\nc=2\n", ("b=1", "b=3"), ("c=2", "c=3")),
    ],
)
def test_only_the_section_of_pytest_counts_in_a_shared_file(
    tmp_path: Path, *, file: str, key: str, text: str, product: tuple[str, str], tests: tuple[str, str]
) -> None:
    put(tmp_path, file, text)
    before = compute_digests(tmp_path)
    assert list(before) == [key]
    put(tmp_path, file, text.replace(*product) + "\n# the end\n[other]\nx=1\n")
    assert find_changes(before, compute_digests(tmp_path)) == ()
    put(tmp_path, file, text.replace(*tests))
    assert find_changes(before, compute_digests(tmp_path)) == (key,)


def test_configuration_by_a_dotted_key_counts_too(tmp_path: Path) -> None:
    put(tmp_path, "pyproject.toml", '[tool]\npytest.ini_options.addopts = "-k x"\n')
    assert list(compute_digests(tmp_path)) == ["pyproject.toml[tool.pytest]"]


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ('[tool."pytest".ini_options]\naddopts = "-k x"\n', True),
        ("[ 'tool' . pytest]\naddopts = '-k x'\n", True),
        ('tool.pytest.ini_options.addopts = "-k x"\n', True),
        ('[tool]\n"pytest" = {ini_options = {addopts = "-k x"}}\n', True),
        ('tool = {pytest = {ini_options = {addopts = "-k x"}}}\n', True),
        ('[tool]\npytest.ini_options.addopts = [\n  "-k x",\n]\n', True),
        ('[tool.pytest]\na = [\n  ["b"]\n]\naddopts = "-k x"\n', True),
        ('[tool.pytest]\na = """\n[tool.b]\n"""\naddopts = "-k x"\n', True),
        ('[tool."p\\u0079test".ini_options]\naddopts = "-k x"\n', True),
        ('[tool.poetry.dependencies]\npytest = "-k x"\n', False),
        ('[project]\ndependencies = [\n  "pytest==8", # "-k x"\n]\n', False),
        ('[tool.a]\n"\\\\.py$" = 1\nb = "-k x"  # pytest\n', False),
        ('[tool.pytest-env]\na = "-k x"\n', False),
        ('[project]\ndescription = """\n[tool.pytest]\n-k x"""\n', False),
    ],
)
def test_each_way_to_write_the_configuration_counts_and_a_dependency_does_not(
    tmp_path: Path, text: str, *, is_seen: bool
) -> None:
    put(tmp_path, "pyproject.toml", text)
    before = compute_digests(tmp_path)
    put(tmp_path, "pyproject.toml", text.replace("-k x", "-k y"))
    assert find_changes(before, compute_digests(tmp_path)) == (("pyproject.toml[tool.pytest]",) if is_seen else ())
    put(tmp_path, "pyproject.toml", "[build-system]\nrequires = []\n")
    assert compute_digests(tmp_path) == {}


def test_a_dependency_in_an_ini_file_is_no_configuration(tmp_path: Path) -> None:
    put(tmp_path, "tox.ini", "[testenv]\ndeps =\n  pytest\n  pytest.x = 1\n")
    assert compute_digests(tmp_path) == {}


def test_a_test_folder_may_be_a_link(tmp_path: Path) -> None:
    root = tmp_path / "project"
    put(tmp_path, "shared/test_a.py")
    put(tmp_path, "shared/out/a.log")
    put(tmp_path, "shared/.gitignore", "out/\n")
    put(tmp_path, "other/a.py")
    put(root, "src/pkg/a.py")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (root / "tests").symlink_to("../shared")
    (root / "src/pkg/test").symlink_to("..")
    (tmp_path / "shared/data").symlink_to("../other")
    (root / "src/vendor").symlink_to("../../other")
    before = compute_digests(root)
    assert list(before) == ["src/pkg/test", "tests", "tests/.gitignore", "tests/data", "tests/test_a.py"]
    put(tmp_path, "shared/test_a.py", "changed")
    (root / "src/pkg/test").unlink()
    (root / "src/pkg/test").symlink_to("../../src")
    assert find_changes(before, compute_digests(root)) == ("src/pkg/test", "tests/test_a.py")


def test_a_project_without_configuration_has_no_digest_of_it(tmp_path: Path) -> None:
    put(tmp_path, "pyproject.toml", "[project]\nname = 'a'\n")
    assert compute_digests(tmp_path) == {}


def test_links_and_special_files_do_not_stop_the_walk(tmp_path: Path) -> None:
    put(tmp_path, "tests/real.txt", "1")
    (tmp_path / "tests/lost").symlink_to("nowhere")
    (tmp_path / "tests/loop").symlink_to(".")
    assert set(compute_digests(tmp_path)) == {"tests/real.txt", "tests/lost", "tests/loop"}


def test_what_git_ignores_is_left_out_unless_pytest_would_load_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    put(tmp_path, ".gitignore", "*.log\nout/\nlocal_*\nconftest.py\n")
    for name in ("tests/test_a.py", "tests/in.csv", "tests/tracked.log", "tests/sub/in.csv"):
        put(tmp_path, name)
    subprocess.run(["git", "add", "--force", "."], cwd=tmp_path, check=True)
    for name in ("tests/run.log", "tests/out/deep/a.csv", "tests/\u00e9.log", "tests/sub/b.log"):
        put(tmp_path, name)
    for name in ("tests/local_test.py", "tests/out/conftest.py", "tests/new.csv", "tests/mixed/new.csv"):
        put(tmp_path, name)
    put(tmp_path, "tests/mixed/a.log")
    kept = ["tests/in.csv", "tests/local_test.py", "tests/mixed/new.csv", "tests/new.csv", "tests/out/conftest.py"]
    kept += ["tests/sub/in.csv", "tests/test_a.py", "tests/tracked.log"]
    assert list(compute_digests(tmp_path)) == kept
    assert "test_a.py" in compute_digests(tmp_path / "tests"), "a folder of the repository"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "tests/run.log" in compute_digests(tmp_path), "without git every file counts"


def test_a_project_in_a_folder_that_git_ignores_has_all_its_digests(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    put(tmp_path, ".gitignore", "out/\n")
    put(tmp_path, "out/project/tests/in.csv")
    assert list(compute_digests(tmp_path / "out/project")) == ["tests/in.csv"]


def test_the_configuration_in_use_counts_when_it_lies_above_the_root(tmp_path: Path) -> None:
    put(tmp_path, "pyproject.toml", PYPROJECT)
    put(tmp_path, "setup.cfg", "[tool:pytest]\na=1\n")
    put(tmp_path, "pytest.ini", "[pytest]\n")
    put(tmp_path, "a/conftest.py")
    root = tmp_path / "a"
    shared = compute_digests(root, inifile=tmp_path / "pyproject.toml")
    assert list(shared) == ["../pyproject.toml[tool.pytest]", "conftest.py"]
    assert list(compute_digests(root, inifile=tmp_path / "pytest.ini")) == ["../pytest.ini", "conftest.py"]
    put(tmp_path, "pyproject.toml", PYPROJECT.replace("-ra", "-k x"))
    assert find_changes(shared, compute_digests(root, inifile=tmp_path / "pyproject.toml")) == (
        "../pyproject.toml[tool.pytest]",
    )
    assert list(compute_digests(tmp_path, inifile=tmp_path / "pytest.ini")) == list(compute_digests(tmp_path))


@pytest.mark.parametrize(
    "path",
    [
        "pytest.py",
        "src/pytest.py",
        "pytest/__init__.py",
        "_pytest/__init__.py",
        "pluggy.cpython-311-x86_64-linux-gnu.so",
        "pytest.pyc",
        "unittest.pyd",
        "sitecustomize.py",
        "src/usercustomize/__init__.py",
        "hook.pth",
        "src/hook.pth",
    ],
)
def test_what_python_would_load_instead_of_the_runner_is_known(path: str) -> None:
    assert is_runner_shadow(path)
    assert not is_protected(path), "RED may change what is protected, and no phase may add these"


@pytest.mark.parametrize(
    "path",
    [
        "src/pkg/pytest.py",
        "src/pkg/json.py",
        "py/tool/__init__.py",
        "py/tool.py",
        "types.py",
        "pytest_plugin.py",
        "pytest.ini",
        "pytest.md",
        "data/hook.pth",
        "unittest/test_a.py",
    ],
)
def test_a_product_may_have_modules_of_such_names_elsewhere(path: str) -> None:
    assert not is_runner_shadow(path)


def test_a_shadow_of_the_runner_closes_when_it_comes_not_when_a_project_develops_it(tmp_path: Path) -> None:
    put(tmp_path, "src/pluggy/__init__.py", "1")
    put(tmp_path, "sitecustomize.py", "1")
    before = compute_digests(tmp_path)
    assert list(before) == ["sitecustomize.py", "src/pluggy/__init__.py"]
    put(tmp_path, "src/pluggy/__init__.py", "2")
    assert find_changes(before, compute_digests(tmp_path)) == ()
    put(tmp_path, "pytest.pyc", "1")
    put(tmp_path, "sitecustomize.py", "2")
    assert find_changes(before, compute_digests(tmp_path)) == ("pytest.pyc", "sitecustomize.py")


def test_git_ignoring_a_shadow_of_the_runner_does_not_hide_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    put(tmp_path, ".gitignore", "*.pth\n")
    put(tmp_path, "a.pth")
    assert list(compute_digests(tmp_path)) == ["a.pth"]


def test_each_folder_of_the_import_path_is_watched(tmp_path: Path) -> None:
    for folder in ("lib", "tests", "env", "site-packages"):
        (tmp_path / folder).mkdir()
    put(tmp_path, "env/pyvenv.cfg")
    path = [str(tmp_path / name) for name in ("lib", "tests", "env", "site-packages", ".")] + ["/usr/lib"]
    entries = list_import_entries(tmp_path, path)
    assert entries == ("", "src", "lib")
    before = compute_digests(tmp_path, entries=entries)
    for name in ("pytest.py", "a.egg-info/entry_points.txt", "b.dist-info/entry_points.txt", "calendar.py", "own.py"):
        put(tmp_path, f"lib/{name}")
    assert find_changes(before, compute_digests(tmp_path, entries=entries)) == (
        "calendar[module]",
        "lib/a.egg-info/entry_points.txt[import path]",
        "lib/b.dist-info/entry_points.txt[import path]",
        "lib/pytest.py[import path]",
    )
    assert is_runner_shadow("lib/pytest.py[import path]")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, below the root as in an environment."""
    folder = tmp_path / "env/lib/site-packages"
    put(tmp_path, "env/pyvenv.cfg")
    put(folder, "numbers_of/__init__.py")
    put(folder, "plain.py")
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("plain.py", "plain[module]"),
        ("src/numbers_of/__init__.py", "numbers_of[module]"),
        ("numbers_of.pyc", "numbers_of[module]"),
        ("src/plain.cpython-311-x86_64-linux-gnu.so", "plain[module]"),
        ("calendar.py", "calendar[module]"),
        ("tests/plain.pyc", "tests/plain.pyc"),
        ("src/pkg/plain.py", None),
        ("numbers_of/data.py", None),
        ("product.py", None),
        ("plain.txt", None),
    ],
)
@pytest.mark.usefixtures("installed")
def test_a_new_module_that_stands_before_an_installed_one_is_seen(tmp_path: Path, path: str, key: str | None) -> None:
    before = compute_digests(tmp_path)
    put(tmp_path, path)
    assert find_changes(before, compute_digests(tmp_path)) == (() if key is None else (key,))


def test_a_project_that_is_installed_may_change_and_move_its_own_modules(tmp_path: Path, installed: Path) -> None:
    put(tmp_path, "plain.py")
    before = compute_digests(tmp_path)
    assert list(before) == ["plain[module]"]
    (tmp_path / "plain.py").unlink()
    put(tmp_path, "src/plain/__init__.py", "2")
    assert find_changes(before, compute_digests(tmp_path)) == ()
    (tmp_path / "src/plain/__init__.py").unlink()
    assert find_changes(before, compute_digests(tmp_path)) == (), "the installed one is back"
    put(tmp_path, "src/linked.py")
    (installed / "linked.py").symlink_to(tmp_path / "src/linked.py")
    assert compute_digests(tmp_path) == {}


def test_compiled_code_without_a_source_counts_in_a_test_folder_even_if_git_ignores_it(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    put(tmp_path, ".gitignore", "*.pyc\n")
    put(tmp_path, "tests/hypothesis.pyc")
    assert list(compute_digests(tmp_path)) == ["tests/hypothesis.pyc"]
