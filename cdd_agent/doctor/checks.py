"""The looks, in the order in which one needs the other: nothing is asked or sent, and nothing unapproved runs."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict

from cdd_agent.doctor.check import Check, Premises
from cdd_agent.doctor.collection import collect
from cdd_agent.doctor.confinement import confinement
from cdd_agent.doctor.offers import offers
from cdd_agent.doctor.trial import try_plugin
from cdd_agent.errors import CddError
from cdd_agent.git.commits import require_identity
from cdd_agent.model import recorded
from cdd_agent.model.anthropic import Endpoint
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.settings import Settings, offered, private_folder
from cdd_agent.testrun.run import PytestSuite
from cdd_agent.trust import NotApproved


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
        turns = len(recorded.load(premises.replay))
        return Check(name="recording", state="ok", told=f"{premises.replay} holds {turns} turns to play back")
    if premises.record is not None:
        return Check(name="recording", state="ok", told=f"the model's turns go to {premises.record}")
    told = "none; --record FILE keeps the model's turns, --replay FILE plays them back"
    return Check(name="recording", state="ok", told=told)
