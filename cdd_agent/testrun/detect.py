"""Which interpreter runs a project's tests: the first that the rules find, asked whether it can."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdd_agent.errors import EnvironmentMissing
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun import environments
from cdd_agent.testrun.environments import NOTHING_MEANT, Candidate, Meant
from cdd_agent.testrun.probe import Answer, Probe
from cdd_agent.testrun.reach import fit

OLDEST_PYTHON = (3, 8)
OLDEST_PYTEST = (7, 0)


class PytestMissing(EnvironmentMissing):
    """The project's interpreter has no pytest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can run the project's tests."""

    path: Path
    origin: str
    """The rule that found it."""
    python: str
    pytest: str
    reads: tuple[Path, ...] = ()
    """What it needs to be able to read, beyond the system's programs."""
    user_base: str = ""
    """Where the user's own packages are, if it uses them."""


def find_interpreter(
    project: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    require: Callable[[Candidate], None] = lambda _: None,
    sandbox: Sandbox | None = None,
    kept_in: Path | None = None,
    meant: Meant = NOTHING_MEANT,
) -> Interpreter:
    """The interpreter of ``project``, by the rules of ``environments`` in their order; ``CDD_PYTHON`` comes first,
    then what is ``meant`` by the command that the user runs tests with.

    The first that exists is the project's; if pytest is missing there, that is an ``EnvironmentMissing``, never a
    reason to judge the project with another environment's packages. Only where no rule finds one, it is the
    ``python`` that the user would get by typing so, and if that has no pytest, the interpreter that runs cdd.

    ``require`` is called with each candidate before that is run for the first time; it raises for one that must not be.
    One of the work tree is asked in ``sandbox``; the answer is remembered in ``kept_in``, a folder of the user's.
    """
    probe = Probe(project, environment, sandbox=sandbox, kept_in=kept_in)
    for candidate in environments.candidates(project, environment, meant=meant):
        require(candidate)
        answer = probe.ask(candidate.path)
        if candidate.is_guess and not _fits(answer):
            continue
        return _interpreter(candidate, answer)
    this = Candidate(rule="the interpreter that runs cdd", path=Path(sys.executable))
    return _interpreter(this, probe.ask(this.path))


def _fits(answer: Answer | str) -> bool:
    """Whether the versions are new enough for the plugin."""
    return not isinstance(answer, str) and all(
        tuple(int(number) for number in re.findall(r"\d+", version)[:2]) >= oldest
        for version, oldest in ((answer.python, OLDEST_PYTHON), (answer.pytest, OLDEST_PYTEST))
    )


def _interpreter(candidate: Candidate, answer: Answer | str) -> Interpreter:
    """The interpreter, or an error that says what was found, by which rule, and what to type."""
    named = f"the project's interpreter {candidate.path} ({candidate.rule})"
    otherwise = "set CDD_PYTHON to another interpreter"
    if isinstance(answer, str):
        if "No module named 'pytest'" in answer:
            raise PytestMissing(
                f"pytest cannot be imported by {named}.", hint=f"{_install(candidate.path)} pytest, or {otherwise}"
            )
        raise EnvironmentMissing(
            f"Pytest does not start in {named}: {answer}", hint=f"make that environment anew, or {otherwise}"
        )
    if not _fits(answer):
        raise EnvironmentMissing(
            f"{named[0].upper()}{named[1:]} is Python {answer.python} with pytest {answer.pytest}; "
            "tests are run with Python 3.8 and pytest 7.0, or newer.",
            hint=f"{_install(candidate.path)} 'pytest>=7', or {otherwise}",
        )
    return Interpreter(
        path=candidate.path,
        origin=candidate.rule,
        python=answer.python,
        pytest=answer.pytest,
        reads=fit(map(Path, answer.reads)),
        user_base=answer.user_base,
    )


def _install(python: Path) -> str:
    """The command that installs a package for ``python``; environments that uv makes have no pip."""
    told = python.parent.parent / "pyvenv.cfg"
    try:
        is_uvs = b"\nuv = " in read_ordinary(told, limit_bytes=environments.MAX_SIZE_BYTES, through_links=True)
    except OSError:
        is_uvs = False
    return f"uv pip install --python {python}" if is_uvs else f"{python} -m pip install"
