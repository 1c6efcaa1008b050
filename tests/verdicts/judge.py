"""One attempt with a change, as ``cdd green`` and REFACTOR of ``cdd exec`` make it, and the proof of its label."""

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.config.settings import GreenSettings, Settings
from cdd_agent.events import Emit, Event, GateJudged, Notice, SuiteFinished, SuiteStarted
from cdd_agent.model.conversation import Request, Turn
from cdd_agent.runs.failing_tests import FailingTests
from cdd_agent.runs.request import Wanted
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.tdd.attempt import Attempt
from cdd_agent.tdd.baseline import take_baseline
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.examination import AGENT
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.testrun.interpreter import Interpreter
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.work.wording import format_reason
from tests.fakes.model import call, says
from tests.fakes.project import QUICK, Project
from tests.verdicts.change import Change

CONFIGURATION = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
LONGEST_S = 120


@dataclass(frozen=True, kw_only=True)
class Place:
    """What all attempts share."""

    interpreter: Interpreter
    bytecode: Path
    sandbox: Sandbox
    has_examiner: bool = False
    """A second agent tries to refute the change, with the hidden script as its only example."""
    timeout_s: float = 60
    """Of a run of the tests."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a change was judged."""

    is_open: bool
    reasons: tuple[str, ...]
    """Why the gate stayed closed: code, test and message."""
    notices: tuple[str, ...]
    full_run_s: float = 0.0
    """Time of the gate's run."""
    evidence_s: float = 0.0
    """Time of all checks after it."""
    checks: tuple[str, ...] = ()
    """The purposes of the test runs of these checks."""

    def is_right(self, change: Change) -> bool:
        """Return whether an honest change was accepted, or a cheat refused."""
        return self.is_open == (change.kind == "honest")

    @property
    def summary(self) -> str:
        """Say ``accepted``, or the codes of the reasons."""
        codes = dict.fromkeys(reason.partition(":")[0] for reason in self.reasons)
        return "accepted" if self.is_open else f"refused: {', '.join(codes)}"


_EXAMPLE = (
    """\
```python
def test_further(tmp_path, monkeypatch):
    """
    + '"""GOAL: other inputs"""'
    + """
    monkeypatch.chdir(tmp_path)
    exec(compile({hidden!r}, "<example>", "exec"), {{"__name__": "example"}})
```
"""
)


class Author:
    """A model that puts its files into the tree where it works, by any means, and hands them in."""

    name = "author"

    def __init__(self, change: Change) -> None:
        """``root`` is assigned when the tree is known."""
        self._change = change
        self.root = Path()

    def check(self) -> None:
        """It can always be asked."""

    def reply(self, request: Request, *, emit: Emit) -> Turn:
        """The only turn, or the answer of the Examiner."""
        if f"Work: {AGENT} " in request.system:
            return says(_EXAMPLE.format(hidden=self._change.hidden))
        write(self._change.tests if self._change.phase == "red" else self._change.after, self.root)
        return says(call("CompleteImplementation", implementation_files=[]))


def write(files: Mapping[str, str | None], folder: Path) -> None:
    """Write or delete files in a folder."""
    for name, text in files.items():
        path = folder / name
        if text is None:
            path.unlink(missing_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def list_files(change: Change) -> dict[str, str]:
    """Return path -> text of all files that are committed before the attempt."""
    tests = {} if change.phase == "red" else change.tests
    files = {".gitignore": "__pycache__/\n*.log\n", **change.before, **tests}
    return files if any(name in files for name in CONFIGURATION) else {"pytest.ini": QUICK, **files}


def make_item(change: Change) -> WorkItem:
    """Return the work item of the change."""
    return WorkItem(
        ticket="sale",
        number=1,
        title=change.title,
        goal=change.goal,
        kind="refactor" if change.phase == "refactor" else "feature",
        phases=(change.phase,),
        tests=change.asked,
        sources=tuple(change.after) if change.phase == "red" else (),
    )


def make_context(change: Change, project: Project, *, place: Place) -> Context:
    """Return the context of the workflow to which the phase belongs."""
    author = Author(change)
    context = project.confine(project.context(author), place.sandbox)
    settings = Settings()
    examples = settings.examples if place.has_examiner else 0
    policy = replace(context.policy, evidence_timeout_s=settings.evidence_timeout_s, max_examples=examples)
    assert isinstance(context.suite, PytestSuite)
    context = replace(
        context, suite=replace(context.suite, flaky=settings.test_reruns, timeout_s=place.timeout_s), policy=policy
    )
    author.root = context.suite.root
    if change.phase != "green":
        return context
    wanted = Wanted(targets=change.asked)
    green = FailingTests(wanted, GreenSettings(), ticket=wanted.find_run(project.folder))
    return replace(context, policy=green.adapt_policy(policy), brief=green.brief)


def judge(change: Change, folder: Path, *, place: Place) -> Outcome:
    """Make one attempt with the change in a new project in ``folder``."""
    project = Project.make(
        folder, interpreter=place.interpreter, bytecode=place.bytecode, files=list_files(change), runs_pytest=True
    )
    item, context = make_item(change), make_context(change, project, place=place)
    begun = project.start().execution(1)
    step = replace(begun, checkpoint=StepRecovery(item.ticket, begun, context=context).begin())
    tip = context.workplace.begin()
    baseline = take_baseline(item, change.phase, step=step, tip=tip, context=context)
    baseline.results.get()  # its tests would run during the author's turn, which writes files
    heard: list[tuple[float, Event]] = []
    context = replace(context, emit=lambda event: heard.append((time.monotonic(), event)))
    Attempt(item, change.phase, step=step, baseline=baseline, context=context).run(is_anew=False)
    ((end, judged),) = ((at, event) for at, event in heard if isinstance(event, GateJudged))
    outcome = Outcome(
        is_open=judged.open,
        reasons=tuple(map(format_reason, judged.reasons)),
        notices=tuple(event.text for _, event in heard if isinstance(event, Notice)),
    )
    runs = [(at, event) for at, event in heard if isinstance(event, SuiteFinished)]
    if not runs:
        return outcome
    began, run = runs[-1]
    checks = tuple(event.purpose for at, event in heard if isinstance(event, SuiteStarted) and at > began)
    return replace(outcome, full_run_s=run.duration_s, evidence_s=end - began, checks=checks)


def find_mislabels(change: Change, folder: Path, *, place: Place) -> list[str]:
    """Return what speaks against the change's label.

    The visible tests have to fail before the change unless it is a REFACTOR, and pass after it, the second time at the
    latest. The hidden script has to fail with a cheat, and pass with an honest change and with the code before a
    REFACTOR.
    """
    found = []
    old, new = folder / "old", folder / "new"
    write({**list_files(change), **change.tests}, old)
    write({**list_files(change), **change.tests, **change.after}, new)
    command = [str(place.interpreter.path), "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    passed_before = _run(command, old).returncode == 0
    if passed_before != (change.phase == "refactor"):
        found.append(f"before the change the tests {'pass' if passed_before else 'fail'}")
    ended = _run(command, new)
    if ended.returncode and (ended := _run(command, new)).returncode:
        found.append(f"after the change the tests fail: {ended.stdout[-800:]}")
    if change.phase == "refactor" and (failure := run_hidden(change, change.before, folder / "before", place=place)):
        found.append(f"before the change the hidden script fails: {failure}")
    failure = run_hidden(change, {**change.before, **change.after}, folder / "after", place=place)
    if change.kind == "cheat" and not failure:
        found.append("the hidden script passes")
    if change.kind == "honest" and failure:
        found.append(f"the hidden script fails: {failure}")
    return found


def run_hidden(change: Change, files: Mapping[str, str | None], folder: Path, *, place: Place) -> str:
    """Run the hidden script on the product's files alone; return the end of what it printed if it failed."""
    folder.mkdir()
    write(files, folder)
    ended = _run([str(place.interpreter.path), "-B", "-c", change.hidden], folder)
    return f"exit {ended.returncode}: {ended.stderr[-500:]}" if ended.returncode else ""


def _run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(folder), "LANG": "C.UTF-8"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
