from pathlib import Path

import pytest

from cdd_agent.agent.tools import Tool, make_bash_tool
from cdd_agent.config.trust import Approvals
from cdd_agent.sandbox.port import Access
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.shell.permission import Permission
from tests.fakes.cases import soak_after


def bash(folder: Path) -> Tool:
    return make_bash_tool(PlainSandbox(), folder, access=Access(read_write=(folder,)))


def test_a_command_runs_in_the_project_and_shows_its_output(tmp_path: Path) -> None:
    output = bash(tmp_path).run({"command": "echo hello | tr a-z A-Z; pwd"})
    assert output.text == f"exit status 0\nHELLO\n{tmp_path}"
    assert not output.is_error


def test_a_failing_command_shows_its_status_and_its_error_output(tmp_path: Path) -> None:
    output = bash(tmp_path).run({"command": "echo wrong >&2; exit 3"})
    assert output.text == "exit status 3: wrong\nwrong"


def test_a_command_that_takes_too_long_is_ended_and_its_output_kept(tmp_path: Path) -> None:
    output = bash(tmp_path).run({"command": "echo begun; sleep 60", "timeout_s": 1})
    assert output.is_error
    assert "the time limit was reached\nbegun" in output.text


def test_a_command_that_names_no_time_limit_has_that_of_the_project(tmp_path: Path) -> None:
    tool = make_bash_tool(PlainSandbox(), tmp_path, access=Access(read_write=(tmp_path,)), timeout_s=0.2)
    assert "the time limit was reached" in tool.run({"command": "sleep 60"}).text


def test_long_output_is_cut_in_the_middle(tmp_path: Path) -> None:
    output = bash(tmp_path).run({"command": "echo first; seq 100000; echo last"})
    assert len(output.text) < 31_000
    assert "bytes dropped" in output.text
    assert output.text.startswith("exit status 0\nfirst")
    assert output.text.endswith("last")


def test_a_command_does_not_see_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary-key")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    output = bash(tmp_path).run({"command": "env"})
    assert "canary-key" not in output.text
    assert "PYTEST_ADDOPTS" not in output.text
    assert "PATH=" in output.text


def test_a_command_that_no_program_can_be_given_is_an_answer(tmp_path: Path) -> None:
    tool = bash(tmp_path)
    assert "NUL" in tool.run({"command": "echo \0"}).text
    assert tool.run({"command": ""}).is_error
    assert tool.run({"command": "true", "timeout_s": 601}).is_error
    assert tool.subject({"command": "make test"}) == "make test"


def test_what_is_refused_is_not_run_and_the_model_is_told_why(tmp_path: Path) -> None:
    nobody = Permission(
        root=tmp_path,
        approvals=Approvals(tmp_path, environment={"XDG_STATE_HOME": "/nowhere"}),
        ask=None,
        report=lambda text: None,
    )
    tool = make_bash_tool(PlainSandbox(), tmp_path, access=Access(read_write=(tmp_path,)), permission=nobody)
    (tmp_path / "a.py").write_text("x = 1\n")
    refused = tool.run({"command": "touch begun; npm test"})
    assert refused.is_error
    assert refused.text.startswith("Refused; no part of the command ran: `npm test`: npm is not known to be harmless")
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]
    assert tool.run({"command": "echo hello"}).text == "exit status 0\nhello"


KEY = f"ghp_{'Kk1' * 12}"


@soak_after(3, "before", range(150, 200, 6))
def test_a_key_is_masked_before_the_last_line_of_a_command_is_cut(before: int, tmp_path: Path) -> None:
    text = bash(tmp_path).run({"command": f"echo '{'-' * before} {KEY}'; exit 1"}).text
    assert "Kk1" not in text
    assert text.startswith(f"exit status 1: {'-' * before}")


@soak_after(1, "total", [30_100, 46_300, 60_000])
def test_a_key_is_masked_wherever_the_output_is_cut(total: int, tmp_path: Path) -> None:
    """Also a long one, in lines, at any place near one of the cuts."""
    pem = "-----BEGIN PRIVATE KEY-----\n" + f"{'Kk1/' * 16}\n" * 48 + "-----END PRIVATE KEY-----\n"
    for at in range(12_000, total - 5_000, 1_500):
        (tmp_path / "out").write_text(
            ("." * 49 + "\n") * (at // 50) + pem + f"x {KEY}\n" + ("." * 49 + "\n") * (total // 50)
        )
        text = bash(tmp_path).run({"command": f"head -c {total} out"}).text
        assert "Kk1" not in text
        assert len(text) < 30_200


def test_a_command_that_is_too_long_is_told_so_and_not_to_install_bash(tmp_path: Path) -> None:
    output = bash(tmp_path).run({"command": f"echo {'x' * 200_000}"})
    assert output.is_error
    assert "Argument list too long: argument 2 has 200,005 bytes" in output.text
    assert "write the text into files with Write" in output.text
    assert "install" not in output.text


def test_a_folder_that_is_gone_is_not_a_missing_bash(tmp_path: Path) -> None:
    (root := tmp_path / "project").mkdir()
    tool = bash(root)
    root.rmdir()
    text = tool.run({"command": "true"}).text
    assert f"ls -ld {root}" in text
    assert "install" not in text
