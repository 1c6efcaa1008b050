"""What each way to begin loads: start-up stays cheap by what it leaves out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent import __version__
from cdd_agent.config.settings import read_offer
from cdd_agent.config.trust import Approvals
from tests.bench.terminal import draw
from tests.fakes.cases import soak_after
from tests.fakes.demo import RECORDING, SLUG
from tests.fakes.program import ROOT, environment

TERMINAL = {"rich", "prompt_toolkit", "pygments", "markdown_it"}
CLIENT = {"anthropic", "httpx", "httpx2", "pydantic"}
PARSERS = {"yaml", "tree_sitter", "tree_sitter_bash", "tomllib"}
PROGRAM = (sys.executable, "-X", "importtime", "-m", "cdd_agent")
_IMPORTED = re.compile(r"^import time:[ \d]+\|[ \d]+\| +([\w.]+)$", re.MULTILINE)


def loaded(told: str) -> set[str]:
    """The modules, and the packages at the top, that were imported."""
    modules = set(_IMPORTED.findall(told))
    return modules | {module.partition(".")[0] for module in modules}


def loaded_by(*argv: str, home: Path) -> set[str]:
    done = subprocess.run(argv, cwd=ROOT, env=environment(home), capture_output=True, text=True, check=True)
    return loaded(done.stderr)


@pytest.mark.parametrize("argument", ["--version", "--help", "-h"])
def test_version_and_help_load_nothing_but_what_runs_a_module(argument: str, tmp_path: Path) -> None:
    any_module = loaded_by(sys.executable, "-X", "importtime", "-c", "import runpy", home=tmp_path)
    own = loaded_by(*PROGRAM, argument, home=tmp_path) - any_module
    assert own == {"cdd_agent"}


def test_the_version_is_the_package_s(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cdd_agent", "--version"]
    done = subprocess.run(argv, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout == f"cdd {__version__}\n"


@soak_after(1, "command", ["spec", "plan", "exec", "status", "new", "doctor", "demo", "trust", "schema"])
def test_help_of_a_command_loads_neither_terminal_nor_adapters(command: str, tmp_path: Path) -> None:
    own = loaded_by(*PROGRAM, command, "--help", home=tmp_path)
    assert "click" in own
    assert own.isdisjoint(TERMINAL | CLIENT | PARSERS | {"msgspec", "cdd_agent.compose"})


@pytest.mark.slow
def test_status_loads_neither_agents_nor_prompt(finished: Path, tmp_path: Path) -> None:
    own = loaded_by(*PROGRAM, "--project", str(finished), "status", home=tmp_path)
    assert "rich" in own
    assert own.isdisjoint(CLIENT | {"prompt_toolkit", "pygments", "tree_sitter", "cdd_agent.compose"})


@pytest.mark.slow
def test_a_replay_loads_neither_client_nor_prompt(finished: Path, tmp_path: Path) -> None:
    given = "--project", str(finished), "--replay", str(RECORDING)
    own = loaded_by(*PROGRAM, *given, "plan", SLUG, home=tmp_path) | loaded_by(
        *PROGRAM, *given, "exec", SLUG, home=tmp_path
    )
    assert "cdd_agent.model.recording" in own
    assert own.isdisjoint(CLIENT | {"prompt_toolkit"})


@soak_after(1, "config", ["", "max_turns: 30\n"])
def test_the_prompt_stands_before_anything_is_loaded_that_only_an_answer_needs(
    config: str, finished: Path, tmp_path: Path
) -> None:
    if config:
        (finished / ".cdd" / "config.yaml").write_text(config, encoding="utf-8")
        offer = read_offer(finished)
        assert offer
        Approvals(finished).record(offer, approved=True)
    told = tmp_path / "told"
    variables = environment(tmp_path, TERM="xterm-256color", XDG_STATE_HOME=os.environ["XDG_STATE_HOME"])
    variables.pop("COLUMNS")
    shell = ["/bin/sh", "-c", f'exec "$0" "$@" 2>"{told}"', *PROGRAM]
    draw(shell, finished, environment=variables, ready=("^cdd> ", "Ctrl-D leaves"))
    own = loaded(told.read_text(encoding="utf-8"))
    assert "prompt_toolkit" in own
    assert own.isdisjoint(CLIENT | (PARSERS - {"yaml"}) | (TERMINAL - {"prompt_toolkit"}))
    assert own.isdisjoint({"cdd_agent.compose", "cdd_agent.events", "cdd_agent.repl.session", "cdd_agent.workflows"})
    assert ("yaml" in own) == bool(config)


def test_entries_of_pythonpath_in_the_project_lead_to_no_module_of_cdd(finished: Path, tmp_path: Path) -> None:
    """A model can land a module there with the name of one that cdd imports later."""
    (finished / "src").mkdir()
    for name in ("msgspec", "click", "rich"):
        (finished / "src" / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    variables = environment(tmp_path, PYTHONPATH=f"src{os.pathsep}{finished / 'src'}{os.pathsep}{ROOT}")
    argv = [sys.executable, "-m", "cdd_agent", "status"]
    done = subprocess.run(argv, cwd=finished, env=variables, capture_output=True, text=True, check=True)
    assert SLUG in done.stdout
    assert not (tmp_path / "ran").exists()
