"""Files that a repository, another program or a test may have written: read, or refused with one error of ours.

The same readers are tried with 100,000 inputs each by ``python -m tests.soak``.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdd_agent.config import settings
from cdd_agent.config.trust import Approvals, Offer
from cdd_agent.errors import CddError, DocumentError, EnvironmentMissing, RecordingError
from cdd_agent.events import decode
from cdd_agent.model import recording
from cdd_agent.storage import read_holder
from cdd_agent.testrun.interpreter import ask_interpreter, find_candidates
from cdd_agent.tickets import plan_markdown, spec
from cdd_agent.work import journal
from cdd_agent.work.state_file import load_state
from pytest_tdd_agent import codec
from tests.fakes.approval import users_folder
from tests.fuzz import large
from tests.fuzz.trial import CORPUS, Broken, Target
from tests.soak.table import PARTS

READERS = (
    *("plan", "spec", "state", "recording", "tool_input", "report", "settings", "notes", "blocks", "graph"),
    "server_answers",
)
QUICK = 60
SEED = 20_260_131

EXAMPLE = Path(__file__).parents[2] / "tickets.example" / "csv-export" / "recording.yaml"

NESTED = '{"x":' + "[" * 100_000

DEEP = """
import sys
from cdd_agent.config import settings
from cdd_agent.errors import CddError
from cdd_agent.events import decode
from cdd_agent.model import recording
from cdd_agent.tickets import spec

for opening in ("[", "{a: ", "- ", "? ", "&a [", "{? "):
    for beginning in ("", "- content: "):
        document = beginning + opening * 30_000
        for read in (
            lambda: recording.parse_recording(document, source="run.yaml"),
            lambda: recording.parse_recording(document, source="run.json", is_json=True),
            lambda: spec.parse(document[:60_000], path="spec.yaml"),
            lambda: settings.parse_settings(document[:15_000].encode()),
        ):
            try:
                read()
            except CddError:
                continue
            sys.exit(f"{opening!r} was read")
print("refused")
"""


def target(name: str) -> Target[object]:
    found: Target[object] = importlib.import_module(f"tests.fuzz.parsers.{name}").TARGET
    return found


@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_its_own_error_or_none(name: str) -> None:
    figures = target(name).run(QUICK, SEED)

    assert figures.tried >= QUICK
    assert (figures.bad, figures.example) == (0, "")


@pytest.mark.parametrize("name", READERS)
def test_random_documents_reach_beyond_the_first_error(name: str) -> None:
    """Otherwise a reader that refuses everything would pass."""
    reader = target(name)
    fit = 0
    for index in range(75):
        try:
            reader.read(reader.input(SEED, index))
        except reader.allowed:
            continue
        fit += 1

    assert fit >= 10


def test_a_reader_with_a_foreign_exception_would_be_found() -> None:
    def read(number: int) -> None:
        if number == 3:
            raise KeyError("x")
        if number == 4:
            raise Broken("a law")

    figures = Target(make=lambda random: random.randint(0, 9), read=read, allowed=(DocumentError,)).run(200, 1)

    assert figures.bad > 10
    assert figures.example.startswith("seed 1, index ")


def test_every_reader_of_the_soak_is_tried_here_too() -> None:
    places = {part.place for part in PARTS if part.place.startswith("tests.fuzz.parsers")}

    assert places == {f"tests.fuzz.parsers.{name}:run" for name in READERS}
    assert {folder.name for folder in CORPUS.iterdir()} <= set(READERS)


def test_deep_nesting_never_reaches_a_loader_that_recurses() -> None:
    """In a process of its own: the fast YAML loader used to end it with a segmentation fault."""
    run = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False, timeout=120)

    assert (run.returncode, run.stdout, run.stderr) == (0, "refused\n", "")


@pytest.mark.slow
def test_an_input_of_a_megabyte_is_read_within_a_second_or_refused() -> None:
    figures = large.run(30, SEED)

    assert figures.tried == 30
    assert (figures.bad, figures.example) == (0, "")


@pytest.mark.parametrize("value", ["12:30:45", "no", "2026-01-31", "1.10", "0x1f", "~", ".inf", "=", "<<", "1_000"])
def test_a_value_of_a_spec_stays_the_text_it_is(value: str) -> None:
    read = spec.parse(f"technical_notes: {value}\nout_of_scope:\n  - {value}\ntitle: [{value}\n", path="spec.yaml")

    assert (read.technical_notes, read.out_of_scope) == (value, (value,))


def test_a_file_larger_than_its_kind_can_be_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(4 * 1024**3)

    for read in (plan_markdown.load, spec.load, recording.load_recording, load_state, codec.load):
        with pytest.raises((CddError, codec.ReportError), match=r"at most|more than|the limit is"):
            read(path)


def test_every_prefix_of_a_recording_is_read_or_refused() -> None:
    whole = recording.print_turns(recording.load_recording(EXAMPLE)[:6])
    fit = 0
    for length in range(0, len(whole), 7):
        try:
            recording.parse_recording(whole[:length], source="run.yaml")
            fit += 1
        except RecordingError:
            continue

    assert 0 < fit < len(whole) // 7


def test_every_prefix_of_a_settings_file_is_read_or_refused() -> None:
    whole = b"model: claude-opus-5-5\nmax_turns: 20\nrefactor: always\ntest_timeout_s: 12.5\n"
    fit = 0
    for length in range(len(whole)):
        try:
            settings.parse_settings(whole[:length])
            fit += 1
        except DocumentError:
            continue

    assert 0 < fit < len(whole)


def test_a_pyproject_names_no_environment(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("a = " + "[" * 5_000)
    assert list(find_candidates(tmp_path, {"PATH": ""})) == []


def test_the_answer_of_an_interpreter_is_asked_for_anew(tmp_path: Path) -> None:
    (tmp_path / ".cdd").mkdir()
    (tmp_path / ".cdd" / "interpreter.json").write_text(NESTED)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho '" + NESTED[:10_000] + "'\n")
    python.chmod(0o755)
    assert isinstance(ask_interpreter(tmp_path, python, environment=os.environ), str)


def test_an_event_is_none_of_this_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too deep"):
        decode(NESTED.encode())
    (tmp_path / "events.jsonl").write_text(NESTED + "\n")
    assert list(journal.read(tmp_path / "events.jsonl")) == []


def test_a_lock_names_no_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("[" * 9_999)
    assert read_holder(tmp_path / "lock") is None


def test_a_file_of_approvals_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    approvals = Approvals(project, environment=users_folder(tmp_path))
    offer = Offer(subject="settings", source=".cdd/config.yaml", shown=(), content=b"model: x\n")
    approvals.record(offer, approved=True)
    approvals.path.write_text(NESTED)
    with pytest.raises(EnvironmentMissing, match="is damaged"):
        approvals.find_decision(offer)
