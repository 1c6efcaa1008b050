"""What of a command that runs pytest counts when pytest is run by us, and what the user is told does not."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.testrun.interpreter import NamedEnvironment
from cdd_agent.testrun.project import detect
from cdd_agent.testrun.pytest_command import explain_ignored, parse_command
from tests.cdd_agent.testrun.test_project_detection import lay

FILES: Mapping[str, str] = {
    "tests/unit/test_a.py": "",
    "src/a.py": "",
    "pyproject.toml": (
        '[tool.hatch.envs.default.scripts]\ntest = "pytest -q {args:tests}"\n[tool.hatch.envs.ci.scripts]\n'
        'all = ["ruff check", "python -m pytest -m slow"]\n[tool.pdm.scripts]\ntest = {cmd = "pytest tests/unit"}\n'
    ),
    "Pipfile": '[scripts]\ncheck = "pytest -x tests"\n',
    "tox.ini": (
        "[testenv]\ncommands =\n  python -V\n  pytest -q {posargs:tests}\n[testenv:lint]\ncommands = ruff check\n"
        "[testenv:unit]\ncommands = py311: pytest --cov=src \\\n  tests/unit {posargs}\n"
    ),
    "noxfile.py": 'def tests(session):\n    session.run("pytest")\n',
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = lay(tmp_path / "project", FILES)
    for name in (".tox/py", ".tox/unit", ".nox/tests-3-11"):
        lay(root / name, {"pyvenv.cfg": "", "lib/python3.11/site-packages/pytest/__init__.py": ""})
    return root


@pytest.mark.parametrize(
    ("command", "options", "selects", "ignored"),
    [
        ("pytest", [], [], []),
        ("python -m pytest -x tests/unit", [], ["tests/unit"], ["-x"]),
        ("uv run pytest -q", ["-q"], [], []),
        ("uv run python -m pytest ./tests/", [], ["tests"], []),
        ("uv run --with respx pytest", [], [], ["uv run --with respx"]),
        ("poetry run pytest tests", [], ["tests"], []),
        ("pdm run pytest -m 'not slow' -k cart", [], ["-m", "not slow", "-k", "cart"], []),
        ("pipenv run pytest -mfast", [], ["-m", "fast"], []),
        ("pytest -qxv --tb short -n4 -raP", ["-q", "-v", "--tb=short", "-n", "4", "-r", "aP"], [], ["-x"]),
        ("pytest --ds shop.settings --runslow", ["--ds=shop.settings", "--runslow"], [], []),
        ("pytest --browser chrome --reuse-db tests", ["--browser=chrome", "--reuse-db"], ["tests"], []),
        ("pytest --cov src --ignore=tests/slow", ["--cov=src"], ["--ignore=tests/slow"], []),
        ("pytest -c other.ini -p no:cov --rootdir=/", [], [], ["-c other.ini", "-p no:cov", "--rootdir /"]),
        (
            "pytest --tdd-agent-report=x @args ../gone /etc",
            [],
            [],
            ["--tdd-agent-report x", "@args", "../gone", "/etc"],
        ),
        ("DEBUG=1 coverage run -m pytest tests", [], ["tests"], ["DEBUG=1", "coverage run"]),
        ("env DEBUG=1 pytest tests/unit/test_a.py::x", [], ["tests/unit/test_a.py::x"], ["DEBUG=1"]),
        ("hatch run test", ["-q"], ["tests"], []),
        ("hatch run test src", ["-q"], ["src"], []),
        ("hatch run ci:all tests", [], ["-m", "slow", "tests"], []),
        ("hatch run pytest tests", [], ["tests"], []),
        ("hatch test -c tests -- -k cart", [], ["tests", "-k", "cart"], ["-c"]),
        ("pdm run test", [], ["tests/unit"], []),
        ("pdm test -q", ["-q"], ["tests/unit"], []),
        ("pipenv run check", [], ["tests"], ["-x"]),
        ("tox -e py -- src", ["-q"], ["src"], []),
        ("tox run -e unit", ["--cov=src"], ["tests/unit"], []),
        ("uvx tox -epy", ["-q"], ["tests"], []),
        ("nox -s tests -- tests/unit", [], ["tests/unit"], ["session tests"]),
        ("make check", [], [], ["make check"]),
        ("cd src && pytest tests | tee log", [], ["tests"], ["cd src '&&'", "|", "tee", "log"]),
    ],
)
def test_paths_and_selections_narrow_all_tests_and_the_rest_is_kept_or_named(
    project: Path, command: str, *, options: list[str], selects: list[str], ignored: list[str]
) -> None:
    found = detect(project, framework="pytest", command=command)
    said = parse_command(project, found.finding.argv)
    assert (list(said.options), list(said.selects), list(said.ignored)) == (options, selects, ignored)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("tox -e py", "pytest"),
        ("tox -e lint", "command"),
        ("nox -s tests", "pytest"),
        ("hatch run test", "pytest"),
        ("hatch run lint", "command"),
        ("pdm test", "pytest"),
        ("pipenv run serve", "command"),
        ("tox -e gone", "pytest"),
    ],
)
def test_a_tool_that_runs_pytest_is_known_by_its_script(project: Path, command: str, *, name: str) -> None:
    assert detect(project, command=command).name == name


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("pytest", NamedEnvironment()),
        ("uv run pytest", NamedEnvironment()),
        ("poetry run pytest", NamedEnvironment(tool="poetry")),
        ("pipenv run check", NamedEnvironment(tool="pipenv")),
        ("hatch run test", NamedEnvironment(tool="hatch")),
        ("hatch -e ci run pytest", NamedEnvironment(tool="hatch", name="ci")),
        ("hatch run ci:all", NamedEnvironment(tool="hatch", name="ci")),
        ("hatch test", NamedEnvironment(tool="hatch", name="hatch-test")),
    ],
)
def test_the_tool_that_is_named_keeps_the_environment(project: Path, command: str, named: NamedEnvironment) -> None:
    assert parse_command(project, command.split()).named == named


@pytest.mark.parametrize(
    ("command", "python"),
    [
        (".ci/bin/python -m pytest", ".ci/bin/python"),
        (".ci/bin/pytest tests", ".ci/bin/python"),
        ("tox -e lint,py", ".tox/py/bin/python"),
        ("tox", ".tox/unit/bin/python"),
        ("nox -s tests-3.11", ".nox/tests-3-11/bin/python"),
        ("nox --session=tests", ".nox/tests-3-11/bin/python"),
    ],
)
def test_the_interpreter_that_is_named_is_taken(project: Path, command: str, *, python: str) -> None:
    assert parse_command(project, command.replace("lint,", "").split()).named == NamedEnvironment(
        python=project / python
    )


@pytest.mark.parametrize(
    ("command", "hint"),
    [("tox -e gone", "tox -e gone --notest"), ("nox -s gone -- tests", "nox -s gone --install-only")],
)
def test_an_environment_that_has_not_been_made_is_an_error_that_says_how(
    project: Path, command: str, *, hint: str
) -> None:
    with pytest.raises(EnvironmentMissing, match=r"environment gone, but .* has none with pytest") as missing:
        parse_command(project, command.split())
    assert missing.value.hint.endswith(hint)


def test_what_does_not_count_is_told_with_the_whole_command() -> None:
    text = explain_ignored(("pytest", "-x", "-k", "a b"), ("-x",))
    assert "these words of `pytest -x -k 'a b'` have no effect: `-x`." in text
