"""The looks, in the order in which one needs the other: nothing is asked or sent, and nothing unapproved runs.

One thing that was looked at, and the project it was looked at in.

The project's tests, collected and not run: that shows whether pytest starts with the project's configuration.

The sandbox: which rung is used, what the others lacked, and what it refused when it was tried.

Everything that a repository brings and that waits for the user's approval.

The plugin tried in a project's interpreter, on two tests of the program's own.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from cdd_agent.config import settings
from cdd_agent.config.settings import Settings, offered, private_folder
from cdd_agent.config.trust import Approvals, NotApproved, Offer
from cdd_agent.errors import CddError, EnvironmentMissing
from cdd_agent.git import commits
from cdd_agent.git.commits import require_identity
from cdd_agent.git.repository import Repository
from cdd_agent.model import recording
from cdd_agent.model.anthropic import Endpoint
from cdd_agent.model.conversation import Model
from cdd_agent.sandbox.backends import NOT_STOPPED
from cdd_agent.sandbox.choice import Proof, Trial, climb, prove
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.storage import scratch
from cdd_agent.testrun import interpreter
from cdd_agent.testrun.frameworks.project import offer_properties, read_properties
from cdd_agent.testrun.frameworks.pytest_command import parse_command
from cdd_agent.testrun.interpreter import NOTHING_MEANT, Meant
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import Suite
from pytest_tdd_agent.report import OUTCOMES, summary

State: TypeAlias = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one look came to."""

    name: str
    """``git``, ``interpreter``: one word."""
    state: State
    """``note``: nothing is missing, but somebody should know; ``missing``: runs will fail."""
    told: str
    fix: str = ""
    """What to type, or do, where it does not work."""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """The project and its parts, each made when it is asked for; asking raises ``CddError`` where it cannot be made.

    None of them may ask the user anything: what is not approved counts as missing.
    """

    root: Path
    environment: Mapping[str, str]
    approvals: Approvals
    sandbox: str
    """The level that is asked for, or ``auto``."""
    replay: Path | None
    record: Path | None
    settings: Callable[[], Settings]
    repository: Callable[[], Repository]
    suite: Callable[[], Suite]
    model: Callable[[], Model]


_COLLECTED = re.compile(
    r"(?P<count>\d+) tests? collected(?:.*? / (?P<errors>\d+) errors?)?|(?P<none>no tests collected)"
)
_ERRORS = re.compile(r"(\d+) errors? in ")


def _ran(suite: Suite) -> Check:
    """How many tests there are of a framework that has to run them to tell, and that its results can be read."""
    run = suite.run()
    if run.report is None:
        fix = f"see why: {suite.command}"
        return Check(name="tests", state="missing", told=run.problem or "nothing was run", fix=fix)
    if not run.report.structured:
        told = f"{suite.command} tells no results of single tests, only its exit status"
        fix = "let that count, accept_unstructured: true in .cdd/config.yaml, or name a framework that tells more"
        state: State = "ok" if suite.conventions.accepts_exit_status else "missing"
        return Check(name="tests", state=state, told=told, fix="" if state == "ok" else fix)
    if run.report.collect_errors:
        files = ", ".join(error.nodeid for error in run.report.collect_errors[:5])
        fix = f"see what is wrong: {suite.command}"
        return Check(name="tests", state="missing", told=f"{suite.command} cannot load {files}", fix=fix)
    count = ", ".join(f"{number} {word}" for word, number in summary(run.report).items() if number and word in OUTCOMES)
    told = f"{suite.command} runs {len(run.report.tests)}: {count}" if count else f"{suite.command} finds none yet"
    return Check(name="tests", state="ok" if count else "note", told=told, details=run.notices)


def collect(suite: Suite) -> Check:
    """How many tests there are, or why they cannot be collected; what cannot collect them runs them."""
    if not isinstance(suite, PytestSuite):
        return _ran(suite)
    run = suite.run(("--collect-only", "-q"))
    command = f"{_shown(suite.interpreter.path, suite.root)} -m pytest"
    found = _COLLECTED.search(run.output)
    errors = (found and found["errors"]) or (_ERRORS.search(run.output) or ("", ""))[1]
    if errors:
        count = "1 error" if errors == "1" else f"{errors} errors"
        fix = f"see what is wrong: {command} --collect-only -q"
        return Check(name="tests", state="missing", told=f"{command} cannot collect them: {count}", fix=fix)
    if found is None:
        told, _, advice = (run.problem or "pytest said nothing").partition("; ")
        fix = advice or f"see why: {command} --collect-only -q"
        return Check(name="tests", state="missing", told=told, fix=fix)
    if found["none"]:
        return Check(name="tests", state="note", told=f"{command} finds none yet", details=run.notices)
    return Check(name="tests", state="ok", told=f"{command} collects {found['count']}", details=run.notices)


def _shown(path: Path, root: Path) -> str:
    """``path`` as one would type it in ``root``."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


_TO_CONFINE = "apt-get install bubblewrap, or pip install 'cdd-agent[sandbox]', or start docker or podman"


def confinement(asked: str) -> tuple[Check, Sandbox | None]:
    """The look at the sandbox, and the one that confines; None where nothing does.

    The four forbidden acts are tried anew, now, and not taken from an earlier trial.
    """
    trials: list[Trial] = []
    for trial in climb(asked) if asked != "none" else ():
        trials.append(trial)
        if trial.sandbox is not None:
            proofs = prove(trial.sandbox)
            if all(proof.refused for proof in proofs):
                told = f"{trial.level}; {len(proofs)} forbidden acts were tried in it, just now"
                limits = (
                    (f"{NOT_STOPPED}; what changes in .git is put back after a run",)
                    if trial.level == "landlock"
                    else ()
                )
                details = (*_acts(proofs), *limits, f"run by {trial.what}", *_lacking(trials[:-1]))
                return Check(name="sandbox", state="ok", told=told, details=details), trial.sandbox
    details = (*_acts(prove(PlainSandbox())), *_lacking(trials))
    told = "none: tests and commands run as you, with all your files and the network"
    if asked == "none":
        return Check(name="sandbox", state="note", told=f"{told}, as was asked for", details=details), None
    return Check(name="sandbox", state="missing", told=told, fix=_TO_CONFINE, details=details), None


def _acts(proofs: Iterable[Proof]) -> tuple[str, ...]:
    """What became of each act."""
    return tuple(
        f"{'refused' if proof.refused else 'NOT refused'}: {proof.act}{proof.told and f' ({proof.told})'}"
        for proof in proofs
    )


def _lacking(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Why each of the better rungs was not taken."""
    return tuple(f"{trial.level} was not taken: {trial.why_not}" for trial in trials if trial.why_not)


def offers(premises: Premises) -> tuple[Offer, ...]:
    """What is there now, in the order in which a run comes to it; nothing of it is run."""
    try:
        of_hooks = commits.offer(premises.repository())
    except EnvironmentMissing:  # without a work tree there are no commits
        of_hooks = None
    found = (
        settings.offered(premises.root),
        offer_properties(premises.root),
        interpreter.offered(premises.root, environment=premises.environment, meant=_meant(premises)),
        of_hooks,
    )
    return tuple(offer for offer in found if offer is not None)


def _meant(premises: Premises) -> Meant:
    """The environment that the test command names, as far as what says so is approved."""
    try:
        said = read_properties(premises.root, allows=lambda offer: premises.approvals.decision(offer) is True)
        command = premises.settings().test_command or said.command
        return parse_command(premises.root, shlex.split(command)).meant
    except (CddError, ValueError):  # what is wrong with them is told where they are used
        return NOTHING_MEANT


TIMEOUT_S = 60.0
TESTS = "def test_that_passes():\n    assert True\n\n\ndef test_that_fails():\n    assert False\n"
_EXPECTED = {"test_that_passes": "passed", "test_that_fails": "failed"}


def try_plugin(suite: Suite) -> str | None:
    """None if both tests are reported as what they are, or if no plugin is needed; else what was wrong."""
    if not isinstance(suite, PytestSuite):
        return None
    with scratch() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "test_trial.py").write_text(TESTS, encoding="ascii")
        run = replace(suite, root=root, timeout_s=TIMEOUT_S, bytecode=None, flaky=0).run()
    if run.report is None:
        return run.problem or "there was no report"
    told = {case.nodeid.rpartition("::")[2]: case.outcome for case in run.report.tests}
    return None if told == _EXPECTED else f"two tests, one that passes and one that fails, were reported as {told}"


def examine(premises: Premises) -> Iterator[Check]:
    """Every look, one after the other; what cannot be looked at for want of something else is a note."""
    for name, look in (("git", _git), ("folders", _folders), ("trust", _trust), ("settings", _settings)):
        yield _tried(name, lambda look=look: look(premises))  # type: ignore[misc]
    interpreter = _tried("interpreter", lambda: _interpreter(premises))
    yield interpreter
    checked, sandbox = confinement(premises.sandbox)
    yield checked
    for name, run in (("plugin", _plugin), ("tests", _tests)):
        if interpreter.state != "ok":
            yield Check(name=name, state="note", told="not tried: there is no interpreter to try them in")
        elif sandbox is None:
            told = "not tried: nothing would confine them"
            yield Check(name=name, state="note", told=told)
        else:
            yield _tried(name, lambda run=run: run(premises, sandbox))  # type: ignore[misc]
    yield _tried("model", lambda: _model(premises))
    yield _tried("recording", lambda: _recording(premises))


def _tried(name: str, look: Callable[[], Check]) -> Check:
    """What a look comes to; an error of it is what is missing."""
    try:
        return look()
    except NotApproved:
        return Check(name=name, state="note", told="not looked at, because of what is not approved yet")
    except CddError as error:
        return Check(name=name, state="missing", told=error.happened, fix=error.hint)


def _git(premises: Premises) -> Check:
    repository = premises.repository()
    require_identity(repository)
    version = repository.git("version").strip()
    branch = repository.branch() or "no branch"
    told = f"{version}; {repository.root} on {branch}"
    if begun := repository.unfinished():
        state, ends = begun
        return Check(name="git", state="missing", told=f"{told}, and {state} is in progress", fix=f"end it: {ends}")
    if count := len(repository.uncommitted()):
        some = "1 path is" if count == 1 else f"{count} paths are"
        told = f"{told}; {some} not committed, which cdd exec refuses without --allow-dirty"
        return Check(name="git", state="note", told=told)
    return Check(name="git", state="ok", told=told)


def _folders(premises: Premises) -> Check:
    private = private_folder(premises.root)
    kept = premises.approvals.path.parent
    for folder in (private, next(each for each in (kept, *kept.parents) if each.exists())):
        if not os.access(folder, os.W_OK | os.X_OK):
            fix = f"grant yourself access: chmod u+rwx {folder}"
            return Check(name="folders", state="missing", told=f"{folder} cannot be written", fix=fix)
    return Check(name="folders", state="ok", told=f"journals and reports in {private}, your approvals in {kept}")


def _trust(premises: Premises) -> Check:
    said = {True: "approved", False: "declined", None: "not decided"}
    decided = [(offer, premises.approvals.decision(offer)) for offer in offers(premises)]
    details = tuple(f"{offer.name}, {offer.source}: {said[answer]}" for offer, answer in decided)
    waiting = sum(answer is None for _, answer in decided)
    if waiting:
        told = f"{waiting} of {len(decided)} things that this repository brings wait for your decision"
        fix = f"look and decide: {premises.approvals.decided_by}"
        return Check(name="trust", state="missing", told=told, fix=fix, details=details)
    if not decided:
        return Check(name="trust", state="ok", told="this repository brings nothing that needs your approval")
    told = "you have decided about all that this repository brings"
    return Check(
        name="trust", state="ok" if all(answer for _, answer in decided) else "note", told=told, details=details
    )


def _settings(premises: Premises) -> Check:
    found = premises.settings()
    usual = asdict(Settings())
    changed = [f"{name} {value}" for name, value in asdict(found).items() if value != usual[name]]
    source = "" if offered(premises.root) is None else ".cdd/config.yaml is read; "
    told = source + (", ".join(changed) if changed else "the defaults")
    return Check(name="settings", state="ok", told=told)


def _interpreter(premises: Premises) -> Check:
    suite = premises.suite()
    if not isinstance(suite, PytestSuite):
        return Check(name="interpreter", state="ok", told=suite.conventions.looked_for)
    found = suite.interpreter
    told = f"Python {found.python} with pytest {found.pytest}: {found.path} ({found.origin})"
    return Check(name="interpreter", state="ok", told=told)


def _plugin(premises: Premises, sandbox: Sandbox) -> Check:
    suite = premises.suite().shut_in(sandbox)
    if not isinstance(suite, PytestSuite):
        told = f"not needed: the results of {suite.conventions.framework} are read as it writes them"
        return Check(name="plugin", state="ok", told=told)
    why_not = try_plugin(suite)
    if why_not is None:
        told = "a test that passes and one that fails are told apart in the project's interpreter"
        return Check(name="plugin", state="ok", told=told)
    return Check(name="plugin", state="missing", told=why_not, fix="make the interpreter's environment anew")


def _tests(premises: Premises, sandbox: Sandbox) -> Check:
    return collect(premises.suite().shut_in(sandbox))


def _model(premises: Premises) -> Check:
    model = premises.model()
    model.check()
    if premises.replay is not None:
        told = f"{model.name}, played back: no network, no key"
        return Check(name="model", state="ok", told=told)
    url = Endpoint.from_environment(premises.environment).url
    return Check(name="model", state="ok", told=f"{model.name} at {url}; there is a key, and nothing was sent")


def _recording(premises: Premises) -> Check:
    if premises.replay is not None:
        turns = len(recording.load(premises.replay))
        return Check(name="recording", state="ok", told=f"{premises.replay} holds {turns} turns to play back")
    if premises.record is not None:
        return Check(name="recording", state="ok", told=f"the model's turns go to {premises.record}")
    told = "none; --record FILE keeps the model's turns, --replay FILE plays them back"
    return Check(name="recording", state="ok", told=told)
