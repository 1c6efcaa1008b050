"""A whole step in projects that pytest does not test: found, really run, and no claim of the model's is believed."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cdd_agent.agent.limits.budget import Budget
from cdd_agent.compose import Composition
from cdd_agent.events import Event, Notice
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.repository import Repository
from cdd_agent.options import Options
from cdd_agent.tdd.cycle import Cycle
from cdd_agent.tdd.policy import Policy, WorkItem, phases_of
from cdd_agent.tdd.workbench import Workbench
from cdd_agent.work import state as states
from cdd_agent.work.state import RunState, StepExecution, StepKey
from cdd_agent.workflows.execution.brief import brief_for
from pytest_tdd_agent.codec import load
from tests.fakes.approval import users_folder


@dataclass(frozen=True, kw_only=True)
class Language:
    """The same small step in one language."""

    framework: str
    program: str
    files: Mapping[str, str]
    test: str
    test_text: str
    bent: str
    """The test as a model would have it that wants it to pass."""
    source: str
    wrong: str
    right: str
    tidy: str
    old: str
    """Node id of the test that passes before."""
    new: str


NODE = Language(
    framework="node",
    program="node",
    files={
        "package.json": '{"name": "sums", "type": "module", "scripts": {"test": "node --test"}}\n',
        "src/sum.js": "export const sum = (a, b) => a + b;\n",
        "test/sum.test.js": "import assert from 'node:assert';\nimport test from 'node:test';\n"
        "import { sum } from '../src/sum.js';\n\ntest('adds', () => assert.equal(sum(1, 2), 3));\n",
    },
    test="test/mul.test.js",
    test_text="import assert from 'node:assert';\nimport test from 'node:test';\n"
    "import { mul } from '../src/mul.js';\n\ntest('multiplies', () => assert.equal(mul(3, 4), 12));\n",
    bent="import test from 'node:test';\n\ntest('multiplies', () => {});\n",
    source="src/mul.js",
    wrong="export const mul = (a, b) => a + b;\n",
    right="export const mul = (a, b) => a * b;\n",
    tidy="export const mul = (left, right) => left * right;\n",
    old="test/sum.test.js::adds",
    new="test/mul.test.js::multiplies",
)
CARGO = Language(
    framework="cargo",
    program="cargo",
    files={
        "Cargo.toml": '[package]\nname = "two-sums"\nversion = "0.1.0"\nedition = "2021"\n',
        "Cargo.lock": '# made by cargo\nversion = 3\n\n[[package]]\nname = "two-sums"\nversion = "0.1.0"\n',
        ".gitignore": "target\n",
        "src/lib.rs": "pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
        "tests/sum.rs": "#[test]\nfn adds() {\n    assert_eq!(two_sums::sum(1, 2), 3);\n}\n",
    },
    test="tests/mul.rs",
    test_text="use two_sums::mul;\n\n#[test]\nfn multiplies() {\n    assert_eq!(mul(3, 4), 12);\n}\n",
    bent="#[test]\nfn multiplies() {}\n",
    source="src/lib.rs",
    wrong="pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n\npub fn mul(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
    right="pub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n\npub fn mul(a: i32, b: i32) -> i32 {\n    a * b\n}\n",
    tidy="pub fn mul(a: i32, b: i32) -> i32 {\n    a * b\n}\n\npub fn sum(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
    old="tests/sum.rs::adds",
    new="tests/mul.rs::multiplies",
)


def recorded(language: Language, folder: Path) -> Path:
    """What the model says, attempt by attempt."""
    done = {"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": []}}

    def writes(path: str, content: str) -> list[object]:
        read = {"type": "tool_use", "name": "Read", "input": {"file_path": path}}
        return [read, {"type": "tool_use", "name": "Write", "input": {"file_path": path, "content": content}}, done]

    bend = f"cat > {language.test} <<'END'\n{language.bent}END"
    turns = [
        ["The test is written.", done],
        writes(language.test, language.test_text),
        [{"type": "tool_use", "name": "Bash", "input": {"command": bend}}, done],
        writes(language.source, language.wrong),
        writes(language.source, language.right),
        writes(language.source, language.tidy),
    ]
    path = folder / "recording.yaml"
    path.write_text(json.dumps([{"when": ".", "content": turn} for turn in turns]))
    return path


@dataclass(frozen=True, kw_only=True)
class Played:
    """What came of a step."""

    repository: Repository
    step: StepExecution
    how: str
    seen: list[Event]

    def reasons(self, phase: str) -> list[str]:
        """The code of the first reason of each attempt at a phase; ``open`` if there is none."""
        attempts = [attempt for attempt in self.step.attempts if attempt.phase == phase]
        return [attempt.reasons[0].partition(":")[0] if attempt.reasons else "open" for attempt in attempts]


def play(language: Language, folder: Path) -> Played:
    """The step, from the project's files to its commits."""
    if shutil.which(language.program) is None:
        pytest.skip(f"{language.program} is not installed")
    project = folder / "project"
    project.mkdir()
    repository = Repository.create(project)
    repository.git("config", "user.name", "Ada")
    repository.git("config", "user.email", "ada@example.org")
    for name, content in language.files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(content)
    commit_paths(repository, "first", paths=language.files)
    seen: list[Event] = []
    options = Options(project=project, replay=recorded(language, folder), sandbox="none", attended=True)
    bench = bench_of(Composition(options, emit=seen.append, environment=users_folder(folder)))
    item = WorkItem(
        ticket="sums",
        number=1,
        title="Numbers are multiplied",
        goal="Multiply.",
        kind="feature",
        phases=phases_of("feature", refactor=True),
        tests=(language.test,),
        sources=(language.source,),
    )
    ending = Cycle(item, started(repository), bench=bench, save=lambda _: None).run()
    return Played(repository=repository, step=ending.state.execution(1), how=ending.how, seen=seen)


def bench_of(composition: Composition) -> Workbench:
    policy = Policy(max_attempts=3, budget=Budget(max_turns=4), evidence_timeout_s=120)
    return replace(composition.bench("sums", brief=brief_for("tools"), policy=policy), permission=None)


def started(repository: Repository) -> RunState:
    key = StepKey(number=1, title="Numbers are multiplied", text_sha256="0")
    at = "2026-01-31T12:00:00Z"
    state = RunState(
        ticket_slug="sums",
        started_at=at,
        branch=repository.branch(),
        step_executions=states.pending_steps([key]),
    )
    return states.start_step(state, key, now=at, base_commit=repository.head())


@pytest.mark.parametrize(
    "language", [pytest.param(NODE, id="node"), pytest.param(CARGO, id="cargo", marks=pytest.mark.slow)]
)
def test_a_step_lands_after_a_false_claim_and_a_tampered_test_were_refused(language: Language, tmp_path: Path) -> None:
    played = play(language, tmp_path)
    assert played.reasons("red") == ["no_change", "open"]
    assert played.reasons("green") == ["protected_changed", "target_failed", "open"]
    assert played.reasons("refactor") == ["open"]
    assert played.how == "done"
    found = [attempt.finding for attempt in played.step.attempts if attempt.phase == "red"]
    assert found[-1] == "VALID_MISSING_SYMBOL"
    log = played.repository.git("log", "--reverse", "--format=%s").splitlines()
    assert [line.partition(":")[0] for line in log] == ["first", "test", "feat", "refactor"]
    root = played.repository.root
    assert (root / language.test).read_text() == language.test_text
    assert (root / language.source).read_text() == language.tidy
    assert played.repository.git("status", "--porcelain") == ""
    last = played.step.attempts[-1].report
    assert last is not None
    report = load(root / last)
    assert (report.framework, report.structured) == (language.framework, True)
    assert {case.nodeid: case.outcome for case in report.tests} == {language.old: "passed", language.new: "passed"}
    told = [event.text for event in played.seen if isinstance(event, Notice)]
    assert sum("pytest only" in text for text in told) == 1, told
    assert any(text.startswith("Checked in a clean copy") for text in told), told
