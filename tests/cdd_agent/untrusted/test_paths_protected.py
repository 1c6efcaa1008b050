from pathlib import Path

import pytest

from cdd_agent.untrusted import paths
from cdd_agent.untrusted.paths import (
    ENVIRONMENT_FOLDERS,
    ENVIRONMENT_MARKS,
    GIT_FILES,
    PRIVATE_FOLDERS,
    STATE_FILE,
    explain_build,
    explain_protection,
    find_dotted_part,
    find_private_part,
    find_protected_paths,
    is_cached,
)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (".git/config", ".git"),
        ("sub/.GIT/hooks/x", ".GIT"),
        (".cdd", ".cdd"),
        ("a/GIT~1/config", "GIT~1"),
        (".gitignore", None),
        ("src/git/x.py", None),
    ],
)
def test_the_private_folders_are_known_in_any_spelling(path: str, part: str | None) -> None:
    assert find_private_part(path) == part


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("tickets/one/execution-state.json", "state of a ticket"),
        ("tickets/one/Execution-State.json.bak", "state of a ticket"),
        (".cdd/config.yaml", "git or cdd"),
        ("sub/.CDD/commands/review.md", "git or cdd"),
        ("src/evil.pth", "every Python"),
        ("sitecustomize.py", "every Python"),
        ("src/usercustomize/__init__.py", "every Python"),
        ("sitecustomize.cpython-311-x86_64-linux-gnu.so", "every Python"),
        (".venv/lib/python3.11/site-packages/pytest/__init__.py", "interpreter"),
        ("tests/pyvenv.cfg", "interpreter"),
        ("src/__pycache__/sale.cpython-311.pyc", "compiled code"),
        (".pixi/envs/default/lib/python3.11/site-packages/_pytest/runner.py", "interpreter"),
        (".Conda/bin/python", "interpreter"),
        ("__pypackages__/3.11/lib/pytest/__init__.py", "interpreter"),
        (".hatch/tests/bin/python", "interpreter"),
        ("tools/conda-meta/history", "interpreter"),
        (".gitattributes", "git or cdd"),
        ("sub/.GitModules", "git or cdd"),
        (".hg/hgrc", "git or cdd"),
    ],
)
def test_what_no_agent_writes_is_told_with_the_reason(path: str, why: str) -> None:
    reason = explain_protection(path)
    assert reason is not None
    assert why in reason


@pytest.mark.parametrize(
    "path",
    [
        "CLAUDE.md",
        "AGENTS.md",
        ".gitignore",
        ".github/CODEOWNERS",
        ".github/dependabot.yml",
        "src/workflows/ci.py",
        "conftest.py",
        "pyproject.toml",
        "src/venv_tools.py",
        "src/sites.py",
        ".gitea/issue_template.md",
        ".config/app.toml",
        "config/mise.toml.md",
        "src/lefthook.py",
        "src/env/settings.py",
        "code-workspace",
        "hooks/pre.py",
    ],
)
def test_the_files_of_the_project_may_be_written(path: str) -> None:
    assert explain_protection(path) is None


def test_the_reference_names_every_protected_name() -> None:
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    names = {*PRIVATE_FOLDERS, *GIT_FILES, *ENVIRONMENT_FOLDERS, *ENVIRONMENT_MARKS}
    assert not [name for name in sorted(names) if f"`{name}`" not in reference]


def test_no_protected_name_counts_as_usual() -> None:
    names = (*GIT_FILES, *ENVIRONMENT_MARKS)
    more = (STATE_FILE, "sitecustomize.py", "usercustomize.py", "local.pth", "git~1")
    assert not list(filter(paths._USUAL.fullmatch, (*names, *more)))


def test_a_folder_that_cannot_be_looked_into_is_passed_over(tmp_path: Path) -> None:
    assert find_protected_paths(tmp_path / "gone") == ()


@pytest.mark.parametrize(
    ("path", "is_built"),
    [
        ("sale.egg-info/entry_points.txt", True),
        ("lib/sale-1.0.dist-info/METADATA", True),
        ("build/lib/sale.py", True),
        (".eggs/a.egg/a.py", True),
        ("src/sale/_fast.cpython-311-x86_64-linux-gnu.so", True),
        ("build/rules.py", False),
        ("src/sale/eggs.py", False),
        ("docs/so/index.md", False),
    ],
)
def test_what_a_build_makes_is_known_at_any_depth(path: str, *, is_built: bool) -> None:
    assert (explain_build(path) is not None) == is_built


@pytest.mark.parametrize(
    ("path", "is_in_cache"),
    [
        ("a/.pytest_cache/v/x", True),
        ("a/__pycache__/b.pyc", True),
        ("b.pyc", True),
        (".hypothesis/examples/1", True),
        ("src/hypothesis/a.py", False),
        (".pytest_cache", False),
    ],
)
def test_what_test_tools_leave_is_known(path: str, *, is_in_cache: bool) -> None:
    assert is_cached(path) == is_in_cache


@pytest.mark.parametrize(
    ("path", "part"),
    [
        (".envrc", ".envrc"),
        ("src/.VSCode/x.json", ".VSCode"),
        ("\u200b.envrc", "\u200b.envrc"),
        (".coveragerc", ".coveragerc"),
        ("src/a.py", None),
        ("./a", None),
        (".coverage", None),
        (".pytest_cache/a", None),
        (".gradle/x", None),
    ],
)
def test_a_name_that_begins_with_a_dot_is_one_of_settings_unless_it_is_a_cache(path: str, part: str | None) -> None:
    assert find_dotted_part(path) == part


def test_names_with_dots_are_found_at_any_depth(tmp_path: Path) -> None:
    for name in (".envrc", "src/.vscode/a.json", "src/a.py", ".gradle/x", ".coverage", "src/.nvimrc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_protected_paths(tmp_path, with_dots=True)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == [".envrc", "src/.nvimrc", "src/.vscode"]
    assert find_protected_paths(tmp_path) == ()
