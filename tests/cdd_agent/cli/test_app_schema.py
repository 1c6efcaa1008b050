"""What ``cdd schema`` and ``cdd completion`` print."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_tdd_agent
from cdd_agent.cli.app import run
from tests.fakes.cases import soak_after
from tests.fakes.program import ROOT


def test_the_schema_is_that_of_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "report"]) == 0
    shipped = Path(pytest_tdd_agent.__file__).with_name("report.schema.json")
    assert capsys.readouterr().out == shipped.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "error: Which schema? None was named.\nhint: cdd schema report | green-artifact | graph\n"),
        (["plan"], "error: Unknown schema 'plan'.\nhint: cdd schema report | green-artifact | graph\n"),
        (["reprot"], "error: Unknown schema 'reprot'.\nhint: did you mean: cdd schema report\n"),
    ],
)
def test_another_name_is_refused_with_those_there_are(
    arguments: list[str], told: str, *, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schema", *arguments]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", told)


def test_it_loads_neither_pytest_nor_a_terminal() -> None:
    code = (
        "import sys\nfrom cdd_agent.cli.app import run\nrun(['schema', 'report'])\n"
        "print(*{'_pytest', 'rich', 'prompt_toolkit', 'anthropic'}.intersection(sys.modules), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["title"] == "Report of a test run"
    assert ended.stderr.split() == []


@soak_after(
    1,
    ("words", "completed"),
    [("comp", "completion"), ("exec minutes", "minutes-lost"), ("demo csv", "csv-export"), ("exec --retr", "--retry")],
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_of_bash_completes(words: str, completed: str, *, project: Path, tmp_path: Path) -> None:
    program = tmp_path / "cdd"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cdd_agent "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    typed = ["cdd", "--project", str(project), *words.split()]
    script = (
        f'eval "$({program} completion bash)"; COMP_WORDS=({shlex.join(typed)}); COMP_CWORD={len(typed) - 1}; '
        f"_cdd_completion {program}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == [completed], ended.stderr


def test_another_shell_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "zhs"]) == 2
    assert "hint: did you mean: cdd completion zsh" in capsys.readouterr().err
