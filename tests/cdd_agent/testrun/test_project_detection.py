"""Which framework is found, by what the user says and by what a project's files say."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.testrun.frameworks.catalog import FRAMEWORKS
from cdd_agent.testrun.project import detect, find_matches

PACKAGE = '{"scripts": {"test": "%s"}}'
CARGO = '[package]\nname = "a"\nversion = "0.1.0"\n'


def lay(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"package.json": PACKAGE % "node --test"}, ["node"]),
        ({"package.json": PACKAGE % "vitest run"}, ["vitest"]),
        ({"package.json": PACKAGE % "jest"}, ["jest"]),
        ({"package.json": PACKAGE % "mocha"}, ["mocha"]),
        ({"package.json": PACKAGE % 'echo \\"Error: no test specified\\" && exit 1'}, []),
        ({"go.mod": "module a\n"}, ["go"]),
        ({"pom.xml": "<project/>"}, ["maven"]),
        ({"build.gradle": ""}, ["gradle"]),
        ({"pyproject.toml": ""}, ["pytest"]),
        ({"one.py": ""}, ["pytest"]),
        ({"pyproject.toml": "", "package.json": PACKAGE % "node --test"}, ["node"]),
        ({"tests/test_a.py": "", "package.json": PACKAGE % "node --test"}, ["pytest", "node"]),
        ({"Makefile": "test:\n\ttrue\n"}, ["make"]),
        ({"Makefile": "test:\n\ttrue\n", "go.mod": "module a\n"}, ["go"]),
        ({"Makefile": "test:\n\tpytest\n", "one.py": ""}, ["pytest"]),
        ({"README": ""}, []),
    ],
)
def test_the_files_of_a_project_say_what_runs_its_tests(
    tmp_path: Path, files: Mapping[str, str], names: list[str]
) -> None:
    assert [found.name for found in find_matches(lay(tmp_path, files))] == names


def test_where_nothing_is_found_the_error_lists_all_that_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing) as missing:
        detect(tmp_path)
    for framework in FRAMEWORKS:
        assert f"{framework.name}: {framework.discovery}" in missing.value.happened
    assert "test_command" in missing.value.hint


def test_a_project_below_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay(tmp_path, {"services/a/go.mod": "module a\n", "services/b/pom.xml": "<project/>"})
    monkeypatch.chdir(tmp_path / "services")
    with pytest.raises(EnvironmentMissing) as missing:
        detect(tmp_path)
    assert "services/a (go), services/b (maven)" in missing.value.happened
    assert "cdd --project a," in missing.value.hint, "as it is typed where the user is"


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"services/b/pyproject.toml": "", "services/b/cart.py": ""}, "services/b (pytest)"),
        ({"a/b/c.py": ""}, "a/b (pytest)"),
        ({"a/b/c/d/e.py": ""}, "a/b/c (pytest)"),
    ],
)
def test_a_folder_above_the_project_below_is_not_taken_for_it(
    tmp_path: Path, files: Mapping[str, str], named: str
) -> None:
    with pytest.raises(EnvironmentMissing) as missing:
        detect(lay(tmp_path, files))
    assert missing.value.happened.endswith(f"but folders in it do: {named}.")


def test_of_several_a_person_chooses(tmp_path: Path) -> None:
    lay(tmp_path, {"go.mod": "module a\n", "pom.xml": "<project/>"})
    asked: list[tuple[str, ...]] = []

    def choose(question: str, choices: tuple[str, ...]) -> int:
        asked.append(choices)
        return 1

    assert detect(tmp_path, choose=choose).name == "maven"
    assert asked == [("go: there is a go.mod", "maven: there is a pom.xml")]


def test_of_several_the_error_says_what_to_write_where_nobody_is_there(tmp_path: Path) -> None:
    lay(tmp_path, {"go.mod": "module a\n", "pom.xml": "<project/>"})
    with pytest.raises(EnvironmentMissing) as missing:
        detect(tmp_path)
    assert "framework: go or framework: maven" in missing.value.hint
    assert detect(tmp_path, framework="maven").name == "maven"


def test_a_framework_that_is_named_has_to_be_there_and_known(tmp_path: Path) -> None:
    assert detect(tmp_path, framework="pytest").framework is None
    with pytest.raises(EnvironmentMissing, match="framework: go"):
        detect(tmp_path, framework="go")
    with pytest.raises(UsageError, match="rspec"):
        detect(tmp_path, framework="rspec")


@pytest.mark.parametrize(
    ("command", "name", "argv"),
    [
        ("uv run pytest", "pytest", ("uv", "run", "pytest")),
        ("npx vitest run --config a.ts", "vitest", ("npx", "vitest", "run", "--config", "a.ts")),
        ("cargo nextest run", "nextest", ("cargo", "nextest", "run")),
        ("cargo test --all", "cargo", ("cargo", "test", "--all")),
        ("./mvnw -B verify", "maven", ("./mvnw", "-B", "verify")),
        ("node --test lib", "node", ("node", "--test", "lib")),
        ("make check", "command", ("make", "check")),
        ("cargo test | tee log", "command", ("sh", "-c", "cargo test | tee log", "sh")),
        ("python3 -m unittest", "unittest", ("python3",)),
    ],
)
def test_a_command_of_the_user_s_comes_first_and_its_words_say_what_reads_its_results(
    tmp_path: Path, command: str, *, name: str, argv: tuple[str, ...]
) -> None:
    lay(tmp_path, {"go.mod": "module a\n"})
    found = detect(tmp_path, command=command)
    assert (found.name, found.finding.argv) == (name, argv)


def test_a_script_of_npm_s_is_read_by_the_framework_that_is_found(tmp_path: Path) -> None:
    lay(tmp_path, {"package.json": PACKAGE % "jest"})
    found = detect(tmp_path, command="npm test")
    assert (found.name, found.finding.argv) == ("jest", ("npm", "test", "--"))


def test_a_named_framework_reads_what_a_shell_s_command_runs(tmp_path: Path) -> None:
    found = detect(tmp_path, command="cd web && npx jest", framework="jest")
    assert (found.name, found.finding.argv[:2]) == ("jest", ("sh", "-c"))
    assert found.finding.argv[2].endswith('"$@"')


def test_a_command_that_is_no_command_is_refused(tmp_path: Path) -> None:
    for command in ("  ", "jest 'a"):
        with pytest.raises(UsageError):
            detect(tmp_path, command=command)
