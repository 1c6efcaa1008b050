"""The interpreter of a project as far as the user lets it run: one that the repository brings waits for approval."""

import os
from collections.abc import Mapping
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.testrun.detect import Interpreter, find_interpreter
from cdd_agent.testrun.environments import NOTHING_MEANT, Candidate, Meant, candidates
from cdd_agent.trust import Offer, Trust, interpreter_offer, top_of


def approved_interpreter(
    project: Path,
    *,
    environment: Mapping[str, str],
    trust: Trust,
    sandbox: Sandbox | None = None,
    meant: Meant = NOTHING_MEANT,
) -> Interpreter:
    """What runs the project's tests; no program in the work tree is run to find it before that is approved.

    Raises ``EnvironmentMissing`` for an interpreter that the user declined: another one would judge the tests with
    other packages, so it has to be named. Raises ``NotApproved`` where nobody can be asked.
    """

    return find_interpreter(
        project,
        environment=_users_own(project, environment),
        require=lambda candidate: _require(project, candidate, trust=trust),
        sandbox=sandbox,
        kept_in=trust.approvals.folder,
        meant=meant,
    )


def _require(project: Path, candidate: Candidate, *, trust: Trust) -> None:
    if not trust.allows(_offer(project, candidate)):
        raise EnvironmentMissing(
            f"The project's interpreter {candidate.path} is declined, and tests need one.",
            hint="name another one, CDD_PYTHON=/usr/bin/python3 for example, or decide anew: "
            f"{trust.approvals.decided_by}",
        )


def approved_python(project: Path, *, environment: Mapping[str, str], trust: Trust) -> Path | None:
    """The first interpreter that the rules come to, approved, whether or not it has pytest; None if there is none."""
    first = next(candidates(project, _users_own(project, environment)), None)
    if first is None:
        return None
    _require(project, first, trust=trust)
    return first.path


def offered(project: Path, *, environment: Mapping[str, str], meant: Meant = NOTHING_MEANT) -> Offer | None:
    """The interpreter that the project brings, if the rules come to one first; it is not run."""
    first = next(candidates(project, _users_own(project, environment), meant=meant), None)
    return None if first is None else _offer(project, first)


def _offer(project: Path, candidate: Candidate) -> Offer | None:
    """What is to be approved of a candidate; nothing of one that the user names for this very program."""
    if candidate.rule == "CDD_PYTHON":
        return None
    return interpreter_offer(project, candidate.path, is_named_by_project=candidate.is_named_by_project)


def _users_own(project: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """``environment`` with a ``PATH`` that names no folder of the work tree: programs there are the repository's."""
    if "PATH" not in environment:
        return environment
    top = top_of(project)
    own = [entry for entry in environment["PATH"].split(os.pathsep) if not _is_inside(project / entry, top)]
    return {**environment, "PATH": os.pathsep.join(own)}


def _is_inside(folder: Path, top: Path) -> bool:
    return folder.resolve().is_relative_to(top)
