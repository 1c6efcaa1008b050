import json
from pathlib import Path

import pytest

from cdd_agent.testrun.frameworks.catalog import JEST, MOCHA, NODE, VITEST
from cdd_agent.testrun.frameworks.framework import Framework, FrameworkMatch

ALL = (VITEST, JEST, MOCHA, NODE)


def project(folder: Path, **manifest: object) -> Path:
    (folder / "package.json").write_text(json.dumps(manifest))
    (folder / ".git").mkdir(exist_ok=True)
    return folder


def found(framework: Framework, folder: Path) -> FrameworkMatch:
    finding = framework.find(folder)
    assert finding is not None
    return finding


def installed(folder: Path, name: str, *, version: str = "1.0.0") -> str:
    program = folder / "node_modules" / ".bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.touch()
    package = folder / "node_modules" / name / "package.json"
    package.parent.mkdir(exist_ok=True)
    package.write_text(json.dumps({"name": name, "version": version}))
    return str(program)


def names(folder: Path) -> list[str]:
    return [framework.name for framework in ALL if framework.find(folder)]


def test_the_script_that_npm_init_writes_is_no_framework(tmp_path: Path) -> None:
    assert names(project(tmp_path, scripts={"test": 'echo "Error: no test specified" && exit 1'})) == []


@pytest.mark.parametrize("framework", [VITEST, JEST, MOCHA], ids=lambda it: it.name)
def test_a_dependency_is_a_framework_s(framework: Framework, *, tmp_path: Path) -> None:
    default = {"test": 'echo "Error: no test specified" && exit 1'}
    root = project(tmp_path, scripts=default, devDependencies={framework.name: "^1"})
    assert names(root) == [framework.name]
    assert found(framework, root).manifest == root / "package.json"


def test_a_dependency_that_no_script_calls_gives_way_to_one_that_is_called(tmp_path: Path) -> None:
    dependencies = {"jest": "^29", "vitest": "^3", "mocha": "^11"}
    assert names(project(tmp_path, scripts={"test": "vitest run"}, devDependencies=dependencies)) == ["vitest"]
    assert names(project(tmp_path, scripts={"test": "node --test"}, devDependencies=dependencies)) == ["node"]
    assert names(project(tmp_path, devDependencies=dependencies)) == ["vitest", "jest", "mocha"]


@pytest.mark.parametrize(
    ("scripts", "why"),
    [
        ({"test": "vitest run"}, "the script 'test' of package.json calls vitest"),
        (
            {"test": "tsc -p . && eslint . ; vitest run && echo done"},
            "the script 'test' of package.json calls vitest (without `tsc -p . && eslint .` before it; "
            "test_command: npm run test in .cdd/config.yaml runs all of the script)",
        ),
        (
            {"pretest:unit": "tsc", "test:unit": "vitest"},
            "the script 'test:unit' of package.json calls vitest (without `npm run pretest:unit` before it; "
            "test_command: npm run test:unit in .cdd/config.yaml runs all of the script)",
        ),
    ],
)
def test_what_a_script_does_before_is_told_as_it_is_not_run(
    tmp_path: Path, scripts: dict[str, str], *, why: str
) -> None:
    root = project(tmp_path, scripts=scripts)
    installed(root, "vitest")
    assert found(VITEST, root).why == why


def test_installing_a_tool_is_no_call_of_it(tmp_path: Path) -> None:
    assert names(project(tmp_path, scripts={"prepare": "npm install jest", "say": "echo mocha"})) == []


@pytest.mark.parametrize(
    ("file", "name"), [("vitest.config.ts", "vitest"), ("jest.config.cjs", "jest"), (".mocharc.yml", "mocha")]
)
def test_a_configuration_says_what_is_used(file: str, name: str, *, tmp_path: Path) -> None:
    root = project(tmp_path)
    (root / file).touch()
    assert names(root) == [name]


def test_a_key_of_the_manifest_does_too(tmp_path: Path) -> None:
    assert names(project(tmp_path, jest={})) == ["jest"]


def test_a_manifest_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    (tmp_path / "package.json").write_text("{")
    assert names(tmp_path) == []
    (tmp_path / "package.json").write_text('{"scripts": []}')
    assert names(tmp_path) == []
    (tmp_path / "package.json").unlink()
    (tmp_path / "package.json").symlink_to("/dev/zero")
    assert names(tmp_path) == []


def test_the_project_s_own_program_is_run(tmp_path: Path) -> None:
    root = project(tmp_path, scripts={"test": "vitest"})
    program = installed(root, "vitest")
    assert found(VITEST, root).argv == (program, "run")


def test_lines_are_asked_for_where_vitest_can_say_them(tmp_path: Path) -> None:
    root = project(tmp_path, scripts={"test": "vitest"})
    installed(root, "vitest", version="3.2.7")
    assert found(VITEST, root).argv[1:] == ("run", "--includeTaskLocation")


def test_a_program_installed_at_the_top_of_a_workspace_is_run(tmp_path: Path) -> None:
    project(tmp_path)
    program = installed(tmp_path, "jest")
    package = tmp_path / "packages" / "a"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"scripts": {"test": "jest"}}')
    assert found(JEST, package).argv == (program,)


@pytest.mark.parametrize(
    ("lock", "argv", "installs"),
    [
        ("pnpm-lock.yaml", ("pnpm", "exec", "jest"), "pnpm install"),
        ("yarn.lock", ("yarn", "exec", "jest"), "yarn install"),
        ("bun.lockb", ("bun", "x", "--no-install", "jest"), "bun install"),
        ("package-lock.json", ("npx", "--no-install", "jest"), "npm install"),
        ("README", ("npx", "--no-install", "jest"), "npm install"),
    ],
)
def test_what_is_not_installed_is_never_fetched_but_said(
    lock: str, argv: tuple[str, ...], *, installs: str, tmp_path: Path
) -> None:
    root = project(tmp_path, scripts={"test": "jest"})
    (root / lock).touch()
    finding = found(JEST, root)
    assert finding.argv == argv
    assert finding.why.endswith(f"it is not installed: run `{installs}` in {root}")


@pytest.mark.parametrize(
    ("script", "argv"),
    [
        ("jest", ("jest",)),
        ("tsc && jest --runInBand", ("jest", "--runInBand")),
        ("jest --watch --coverage --json --outputFile old.json --reporters default -t x", ("jest",)),
        ("jest -w 2", ("jest", "-w", "2")),
        ("cross-env TZ=UTC NODE_ENV=test jest", ("env", "TZ=UTC", "NODE_ENV=test", "jest")),
        ("npx jest --config 'my config.js'", ("jest", "--config", "my config.js")),
        (
            "node --experimental-vm-modules node_modules/jest/bin/jest.js --ci",
            ("env", "NODE_OPTIONS=--experimental-vm-modules", "jest", "--ci"),
        ),
    ],
)
def test_a_script_s_own_arguments_are_kept(script: str, argv: tuple[str, ...], *, tmp_path: Path) -> None:
    root = project(tmp_path, scripts={"test": script})
    program = installed(root, "jest")
    assert tuple("jest" if word == program else word for word in found(JEST, root).argv) == argv


def test_mocha_keeps_the_files_that_its_script_names(tmp_path: Path) -> None:
    root = project(tmp_path, scripts={"test": "nyc mocha -r ts-node/register 'test/**/*.ts' --reporter dot"})
    program = installed(root, "mocha")
    assert found(MOCHA, root).argv == (program, "-r", "ts-node/register", "test/**/*.ts")


def test_the_script_test_is_asked_before_others(tmp_path: Path) -> None:
    root = project(tmp_path, scripts={"a": "jest --a", "test:unit": "jest --unit", "test": "jest --first"})
    assert found(JEST, root).argv[-1] == "--first"
    assert found(JEST, root).why.startswith("the script 'test' of package.json calls jest")
