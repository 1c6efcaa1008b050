"""Creates the suite of a project from the user's settings and the project's files.

It also reads the test command and the time limit from ``tdd.properties``, a file of similar programs.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cdd_agent.config.options import Choose
from cdd_agent.config.settings import Settings
from cdd_agent.config.trust import Offer, Trust
from cdd_agent.errors import DocumentError, Problem, UsageError
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.storage import private_folder, read_ordinary
from cdd_agent.testrun.frameworks.catalog import UNITTEST
from cdd_agent.testrun.frameworks.detect import ProjectFramework, detect, find_matches
from cdd_agent.testrun.frameworks.suite import CommandSuite
from cdd_agent.testrun.interpreter import PytestMissing, find_approved_python, find_interpreter
from cdd_agent.testrun.pytest_command import explain_ignored, parse_command
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import PYTEST, Suite

FILE = "tdd.properties"
_LINE = re.compile(r"^[ \t]*(test\.command|bash\.timeout)[ \t]*[=:][ \t]*(\S.*?)[ \t\r]*$", re.MULTILINE)


class Properties(NamedTuple):
    """The settings in ``tdd.properties`` that cdd uses: ``test.command`` and ``bash.timeout``."""

    command: str = ""
    timeout_s: float | None = None


def offer_properties(project: Path) -> Offer | None:
    """Return the effective lines of the file as an offer, or None if there are none."""
    try:
        text = read_ordinary(project / FILE, limit_bytes=16_000).decode("utf-8", "replace")
    except OSError:
        return None
    shown = tuple(f"{key}={value}" for key, value in dict(_LINE.findall(text)).items())
    return Offer(subject="test command", source=FILE, shown=shown, content="\n".join(shown).encode()) if shown else None


def read_properties(project: Path, *, allows: Callable[[Offer], bool]) -> Properties:
    """Return the file's settings if the user approves its effective lines.

    Raises ``DocumentError`` for a time limit that is not a number of seconds.
    """
    offer = offer_properties(project)
    if offer is None or not allows(offer):
        return Properties()
    found = dict(line.split("=", 1) for line in offer.shown)
    seconds = found.get("bash.timeout")
    if seconds is not None and not re.fullmatch(r"0*[1-9][0-9]{0,5}", seconds):
        problem = Problem(line=0, message=f"bash.timeout must be a positive number of seconds, not {seconds[:20]!r}")
        raise DocumentError(FILE, (problem,), hint="correct it, or set test_timeout_s in .cdd/config.yaml")
    return Properties(found.get("test.command", ""), float(seconds) if seconds else None)


IN_PYTHON_ONLY = (
    "cdd checks GREEN by its gate and by a second run in a clean copy. The checks with altered expectations, examples "
    "and mutants need pytest."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """The parts from which the suite of a project is made."""

    root: Path
    environment: Mapping[str, str]
    settings: Settings
    trust: Trust
    sandbox: Sandbox
    choose: Choose | None
    """Asks the user; None if nobody can be asked."""
    tell: Callable[[str], None]
    """Receives notices for the user."""


def make_suite(context: SuiteContext) -> Suite:
    """Return the project's tests, without running code of the repository."""
    settings = context.settings
    properties = read_properties(context.root, allows=context.trust.allows)
    command = settings.test_command or ("" if settings.framework else properties.command)
    found = _find(context, command=command)
    is_usual = settings.test_timeout_s == Settings().test_timeout_s
    timeout_s = (properties.timeout_s if is_usual else None) or settings.test_timeout_s
    if found.framework is None:
        try:
            return _make_pytest_suite(context, found, timeout_s=timeout_s)
        except PytestMissing:
            finding = None if settings.framework else UNITTEST.find(context.root)
            if finding is None:
                raise
            found = ProjectFramework(framework=UNITTEST, finding=finding)
    suite = _make_command_suite(context, found, timeout_s=timeout_s)
    if settings.test_reruns > Settings().test_reruns:
        context.tell(f"test_reruns is for pytest only: cdd does not rerun failing tests of {found.name}.")
    context.tell(f"Tests are run by `{suite.command}`, as {suite.finding.why}. {IN_PYTHON_ONLY}")
    return suite


def _find(context: SuiteContext, *, command: str) -> ProjectFramework:
    """Return the framework; a choice among several is saved as long as the same ones are found."""
    framework = context.settings.framework
    if command or framework:
        return detect(context.root, framework=framework, command=command)
    names = tuple(each.name for each in find_matches(context.root))
    kept = context.trust.find_choice("framework", names)
    if kept is not None and len(names) > 1:
        found = detect(context.root, choose=lambda _, __: names.index(kept))
        return replace(found, finding=replace(found.finding, why="you chose it for this project"))
    found = detect(context.root, choose=context.choose)
    if len(names) > 1 and context.trust.save_choice("framework", found.name, among=names):
        others = f"as long as the project has {' and '.join(names)}"
        changed_by = "framework: NAME in .cdd/config.yaml says otherwise"
        context.tell(f"{found.name} runs the tests here from now on, {others}; {changed_by}.")
    return found


def _make_pytest_suite(context: SuiteContext, found: ProjectFramework, *, timeout_s: float) -> PytestSuite:
    arguments = parse_command(context.root, found.finding.argv)
    root, environment, trust, sandbox = context.root, context.environment, context.trust, context.sandbox
    interpreter = find_interpreter(root, environment=environment, trust=trust, sandbox=sandbox, named=arguments.named)
    if arguments.ignored:
        context.tell(explain_ignored(found.finding.argv, arguments.ignored))
    narrowed = f"{PYTEST.discovery}; test_command narrows them to `{shlex.join(arguments.selects)}`"
    return PytestSuite(
        root=root,
        interpreter=interpreter,
        sandbox=sandbox,
        timeout_s=timeout_s,
        bytecode=private_folder(context.root) / "bytecode",
        flaky=context.settings.test_reruns,
        conventions=replace(PYTEST, discovery=narrowed) if arguments.selects else PYTEST,
        options=tuple(arguments.options),
        selects=tuple(arguments.selects),
        setup=context.settings.worktree_setup,
    )


def _make_command_suite(context: SuiteContext, found: ProjectFramework, *, timeout_s: float) -> CommandSuite:
    assert found.framework is not None
    finding = found.finding
    if found.framework is UNITTEST:
        python = find_approved_python(context.root, environment=context.environment, trust=context.trust)
        if python is None:
            raise UsageError("No Python was found to run the tests.", hint="set one: CDD_PYTHON=/usr/bin/python3")
        finding = replace(finding, argv=(str(python), *finding.argv[1:]))
    return CommandSuite(
        root=context.root,
        framework=found.framework,
        finding=finding,
        sandbox=context.sandbox,
        timeout_s=timeout_s,
        cache=private_folder(context.root) / "build" / found.framework.name,
        accepts_exit_status=context.settings.accept_unstructured,
        setup=context.settings.worktree_setup,
    )
