"""A whole step in projects that pytest does not test: found, really run, and no claim of the model's is believed."""

import os
from pathlib import Path

import pytest

from cdd_agent.events import Notice
from tests.stories.frameworks.compiled import CARGO, MAVEN
from tests.stories.frameworks.javascript import JEST, MOCHA, NODE, VITEST
from tests.stories.frameworks.language import Language
from tests.stories.frameworks.step import play, written


@pytest.fixture
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for all workers of a session."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def project(language: Language, *, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The language's project, with what was fetched for it."""
    root = written(language, tmp_path / "project")
    ready = language.ready(root, shared=shared)
    if ready.problem is not None:
        pytest.skip(ready.problem)
    for name, value in ready.variables.items():
        monkeypatch.setenv(name, value)
    return root


@pytest.mark.parametrize(
    ("language", "sandbox"),
    [pytest.param(NODE, "none", id="node-unguarded")]
    + [
        pytest.param(each, "auto", id=each.framework, marks=pytest.mark.slow)
        for each in (NODE, VITEST, JEST, MOCHA, CARGO, MAVEN)
    ],
)
def test_a_step_lands_after_a_false_claim_and_a_tampered_test_were_refused(
    language: Language, project: Path, *, sandbox: str
) -> None:
    played = play(language, project, sandbox=sandbox)
    assert played.reasons("red") == ["no_change", "open"]
    tampered = "protected_changed" if played.last.sandbox == "none" else "no_change"  # the command could not write
    assert played.reasons("green") == [tampered, "target_failed", "open"]
    assert played.reasons("refactor") == ["open"]
    assert played.how == "done"
    found = [attempt.finding for attempt in played.step.attempts if attempt.phase == "red"]
    assert found[-1] == "VALID_MISSING_SYMBOL"
    log = played.repository.git("log", ("--reverse", "--format=%s")).splitlines()
    assert [line.partition(":")[0] for line in log] == ["first", "test", "feat", "refactor"]
    root = played.repository.root
    assert (root / language.test).read_text() == language.test_text
    assert (root / language.source).read_text() == language.tidy
    assert played.repository.git("status", ("--porcelain",)) == ""
    report = played.last
    assert (report.framework, report.structured) == (language.framework, True)
    assert {case.nodeid: case.outcome for case in report.tests} == {language.old: "passed", language.new: "passed"}
    told = [event.text for event in played.seen if isinstance(event, Notice)]
    assert sum("mutants need pytest" in text for text in told) == 1, told
    assert any(text.startswith("Checked in a clean copy") for text in told), told
