"""What ``cdd schema`` prints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_tdd_agent
from cdd_agent.cli.app import run


def test_the_schema_is_that_of_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "report"]) == 0
    shipped = Path(pytest_tdd_agent.__file__).with_name("report.schema.json")
    assert capsys.readouterr().out == shipped.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "error: Which schema? None was named.\nhint: cdd schema report | green-artifact\n"),
        (["plan"], "error: Unknown schema 'plan'.\nhint: cdd schema report | green-artifact\n"),
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
