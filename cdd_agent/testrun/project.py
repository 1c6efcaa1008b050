"""Decides which folder is the project and which framework runs its tests, and makes its suite. Runs nothing.

The user's settings name the framework, or else the project's files do. A repository is one project from any of its
folders. A folder inside it is a separate project if it has a manifest, or a framework that no folder above it has;
Python files or tests alone are not enough.

Test command and time limit are also read from ``tdd.properties``, a file of similar programs.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from cdd_agent.config.options import Choose
from cdd_agent.config.settings import CONFIG_FILE, Settings, read_offer
from cdd_agent.config.trust import Offer, Trust
from cdd_agent.errors import DocumentError, EnvironmentMissing, Problem, UsageError
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.storage import private_folder, read_ordinary
from cdd_agent.testrun.frameworks.catalog import COMMAND, FRAMEWORKS, JAVASCRIPT, NODE, UNITTEST
from cdd_agent.testrun.frameworks.framework import Framework, FrameworkMatch
from cdd_agent.testrun.frameworks.sources import list_own_files
from cdd_agent.testrun.frameworks.suite import CommandSuite
from cdd_agent.testrun.interpreter import FOLDERS, PytestMissing, find_approved_python, find_interpreter
from cdd_agent.testrun.project_files import read_content
from cdd_agent.testrun.pytest_command import explain_ignored, parse_command, runs_pytest
from cdd_agent.testrun.pytest_run import CompiledSources, PytestSuite
from cdd_agent.testrun.suite import PYTEST, Suite
from cdd_agent.tickets.ticket import list_tickets
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

LOOKED_FOR = "a Python project (pyproject.toml, setup.py, pytest.ini, *.py ...)"
"""Description of a project that uses pytest."""

_DEEPEST = 3
_MOST_FOLDERS = 2_000
_PROJECT = (
    *("pyproject.toml", "setup.py", "setup.cfg", "tox.ini", "noxfile.py", "Pipfile", "requirements.txt"),
    *("uv.lock", "poetry.lock", "pdm.lock", "hatch.toml", "environment.yml", ".pdm-python"),
)
_CONFIGURED = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "conftest.py", "tests/conftest.py")
_MENTIONS = ("pyproject.toml", "setup.cfg", "tox.ini", "Pipfile", "requirements.txt", "requirements-dev.txt")
_TEST_FILES = ("test_*.py", "*_test.py", "tests/test_*.py", "tests/*/test_*.py", "test/test_*.py", "src/*/test_*.py")
_SOURCES = ("*.py", "src/*.py", "src/*/*.py", "tests/*.py")
_PACKAGE_MANAGERS = ("npm", "pnpm", "yarn", "bun")
_SHELL = re.compile(r"[;&|<>$`*?(){}\n]")
_TEST_FOLDERS = {"test", "tests", "testing", "testdata", "fixtures", "spec", "__tests__", "__fixtures__"}
"""Folders in which a package is test data of the package around it."""
_CONFIGURES = ("pytest.ini", "tox.ini", "setup.cfg", "requirements.txt")
_PACKAGES = ("setup.py", "Pipfile", "uv.lock", "poetry.lock", "pdm.lock")
_PACKAGE = re.compile(rb"^\[(?:project|build-system|tool\.(?:poetry|pytest)\b[\w.]*)\]", re.MULTILINE)
_NAMED = re.compile(rb"^(?:framework|test_command)\s*:", re.MULTILINE)
_BY_FRAMEWORK = {each.name: each for each in FRAMEWORKS}


class NoFramework(EnvironmentMissing):
    """No file in the project's folder shows how to run its tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFramework:
    """The framework that runs the tests; None is pytest."""

    framework: Framework | None
    finding: FrameworkMatch
    sign: Literal["clear", "python", "loose"] = "clear"
    """How the files show it: by the framework's own files, by Python sources, or by Python sources in subfolders."""

    @property
    def name(self) -> str:
        """The name in the setting ``framework``."""
        return PYTEST.framework if self.framework is None else self.framework.name


def detect(root: Path, *, framework: str = "", command: str = "", choose: Choose | None = None) -> ProjectFramework:
    """Return the framework of the project in ``root``; ``framework`` and ``command`` are the user's settings.

    Raises ``EnvironmentMissing`` if there is none, or if there are several and nobody can be asked.
    """
    if command:
        return _detect_by_command(root, command, framework=framework)
    if framework:
        return _detect_by_name(root, framework)
    found = find_matches(root)
    if not found:
        raise _explain_nothing(root)
    if len(found) == 1:
        return found[0]
    if choose is None:
        shown = "; ".join(f"{each.name} ({each.finding.why})" for each in found)
        names = " or ".join(f"framework: {each.name}" for each in found)
        raise EnvironmentMissing(
            f"{root} has several test frameworks, and nobody can be asked which one to use: {shown}.",
            hint=f"add one of these lines to .cdd/config.yaml: {names}",
        )
    answers = tuple(f"{each.name}: {each.finding.why}" for each in found)
    return found[choose("Several test frameworks are found here. Which one runs the tests?", answers)]


def find_matches(root: Path) -> tuple[ProjectFramework, ...]:
    """Return the frameworks that the files in ``root`` show, without those that another one replaces."""
    others = [ProjectFramework(framework=each, finding=found) for each in FRAMEWORKS if (found := each.find(root))]
    replaced = {each.framework.replaces for each in others if each.framework}
    others = [each for each in others if each.name not in replaced]
    first = [each for each in others if each.framework and not each.framework.is_fallback]
    python = _find_pytest(root)
    # Python sources alone are enough only without another framework.
    if python is not None and (python.sign == "clear" or not first):
        return (python, *first)
    return tuple(first) or tuple(others[:1])


def _find_pytest(root: Path) -> ProjectFramework | None:
    environments = (root / name / "pyvenv.cfg" for name in FOLDERS)
    mentions = (root / name for name in _MENTIONS if re.search(rb"\bpytest\b", read_content(root / name)))
    signs: tuple[tuple[Literal["clear", "python", "loose"], str, Iterator[Path]], ...] = (
        ("clear", "there is {}", list_own_files(root, *_CONFIGURED, *_TEST_FILES)),
        ("clear", "{} names pytest", mentions),
        ("python", "there is {}", list_own_files(root, *_PROJECT)),
        ("python", "there is {}", filter(Path.is_file, environments)),
        ("python", "there is {}", list_own_files(root, *_SOURCES)),
        ("loose", "there is {}", list_own_files(root, "*/*.py")),
    )
    for sign, why, paths in signs:
        if (path := next(paths, None)) is not None:
            manifest = next(list_own_files(root, *_CONFIGURED, *_PROJECT), root)
            shown = why.format(path.relative_to(root).as_posix())
            finding = FrameworkMatch(manifest=manifest, argv=(PYTEST.framework,), why=shown)
            return ProjectFramework(framework=None, finding=finding, sign=sign)
    return None


def _get_framework(name: str) -> Framework | None:
    if name != PYTEST.framework and name not in _BY_FRAMEWORK:
        names = ", ".join((PYTEST.framework, *_BY_FRAMEWORK))
        raise UsageError(f"framework: {name} is not a framework that cdd knows.", hint=f"set one of {names}")
    return _BY_FRAMEWORK.get(name)


def _detect_by_name(root: Path, name: str) -> ProjectFramework:
    framework, why = _get_framework(name), "the settings say so"
    if framework is None:
        return ProjectFramework(
            framework=None, finding=FrameworkMatch(manifest=root, argv=(PYTEST.framework,), why=why)
        )
    finding = framework.find(root)
    if finding is None:
        raise EnvironmentMissing(
            f"The settings say framework: {name}, but {root} does not contain {framework.discovery}.",
            hint="correct framework in .cdd/config.yaml, or set test_command: COMMAND there",
        )
    return ProjectFramework(framework=framework, finding=replace(finding, why=f"{why}; {finding.why}"))


def _detect_by_command(root: Path, command: str, *, framework: str) -> ProjectFramework:
    needs_shell = _SHELL.search(command) is not None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"test_command cannot be read: {error}.", hint="quote it as in a shell") from error
    if not words:
        raise UsageError("test_command is empty.", hint="write the command that runs all tests")
    if framework:
        known = _get_framework(framework)
    elif needs_shell:
        known = COMMAND
    else:
        known = None if runs_pytest(root, words) else _match_words(root, words)
    argv = tuple(words)
    if known is UNITTEST:
        argv = argv[:1]  # the interpreter: cdd's own program runs the tests
    elif needs_shell and known is not None:
        argv = ("sh", "-c", f'{command} "$@"' if known is not COMMAND else command, "sh")
    elif words[0] == "npm" and known is not COMMAND and "--" not in words:
        argv = (*argv, "--")  # npm keeps options before this for itself
    finding = FrameworkMatch(manifest=root, argv=argv, why="test_command says so")
    return ProjectFramework(framework=known, finding=finding)


def _match_words(root: Path, words: list[str]) -> Framework:
    """Return the framework that a command names."""
    if "node" in map(os.path.basename, words) and "--test" in words:
        return NODE
    if named := next((each for each in FRAMEWORKS if any(re.fullmatch(each.word, word) for word in words)), None):
        return named
    # A package manager runs a script; if only one JavaScript framework is found, the script runs that one.
    found = [each for each in JAVASCRIPT if words[0] in _PACKAGE_MANAGERS and each.find(root)]
    return found[0] if len(found) == 1 else COMMAND


def _explain_nothing(root: Path) -> NoFramework:
    below = list(_find_below(root))
    if below:
        shown = ", ".join(f"{folder.relative_to(root)} ({found[0].name})" for folder, found in below[:8])
        first = shlex.quote(os.path.relpath(below[0][0]))
        return NoFramework(
            f"{root} itself has no test framework, but folders in it do: {shown}.",
            hint=f"go there, or name one: cdd --project {first}, or CDD_PROJECT_ROOT={first}",
        )
    discovery = "; ".join((LOOKED_FOR, *(f"{each.name}: {each.discovery}" for each in FRAMEWORKS)))
    return NoFramework(
        f"{root} has no test framework. cdd looked for {discovery}.",
        hint="set one up, or set test_command: COMMAND or framework: NAME in .cdd/config.yaml",
    )


def _find_below(root: Path) -> Iterator[tuple[Path, tuple[ProjectFramework, ...]]]:
    """Yield the folders nearest below ``root`` that have a framework."""
    level, seen = [root], 0
    loose: list[tuple[Path, tuple[ProjectFramework, ...]]] = []
    for _ in range(_DEEPEST):
        level = [each for folder in level for each in _subfolders(folder)]
        seen += len(level)
        if seen > _MOST_FOLDERS:
            break
        hits = [(folder, found) for folder in level if (found := find_matches(folder))]
        if firm := [(folder, found) for folder, found in hits if found[0].sign != "loose"]:
            yield from firm
            return
        loose = loose or hits
    yield from loose


def _subfolders(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    yield from (folder / name for name in names if not name.startswith(".") and name not in IGNORED_FOLDERS)


def find_project(here: Path, *, top: Path) -> Path:
    """Return the project for ``here``, a folder at or below ``top``.

    It is the nearest folder upwards with tickets, settings or its own framework, or else ``top``. A package inside a
    project that has tickets and a framework belongs to that project.
    """
    upwards = tuple(_iterate_upwards(here, top))
    for number, folder in enumerate(upwards):
        if folder == top or (folder / CONFIG_FILE).is_file() or list_tickets(folder):
            return folder
        if _is_package(folder, top=top):
            around = (each for each in upwards[number + 1 :] if list_tickets(each) and find_matches(each))
            return next(around, folder)
    return top


def map_projects(root: Path, files: Iterable[str]) -> dict[Path, str]:
    """Map each project at or below ``root`` to the first of ``files`` in it; ``files`` are relative to ``root``."""
    found: dict[Path, str] = {}
    for file in files:
        path = root / file
        found.setdefault(find_project(path if path.is_dir() else path.parent, top=root), file)
    return found


def has_framework(root: Path) -> bool:
    """Return whether ``root`` has a framework, or settings (approved or not) that name one."""
    try:
        offer = read_offer(root)
    except DocumentError:
        return True
    return (offer is not None and _NAMED.search(offer.content) is not None) or bool(_list_own(root, is_top=True))


def _iterate_upwards(here: Path, top: Path) -> Iterator[Path]:
    start = here if here.is_relative_to(top) else top
    yield from (folder for folder in (start, *start.parents) if folder.is_relative_to(top) and folder.is_dir())


def _is_package(folder: Path, *, top: Path) -> bool:
    """Return whether a folder below ``top`` is a separate project."""
    parts = folder.relative_to(top).parts
    if any(part.startswith(".") or part in IGNORED_FOLDERS | _TEST_FOLDERS for part in parts):
        return False
    above = tuple(_iterate_upwards(folder.parent, top))
    found = _list_own(folder)
    builds = [each.framework.begins_build for each in found if each.framework and not each.framework.is_fallback]
    # A build that begins above also runs the folder's tests.
    if any(begins_build(folder) or not any(map(begins_build, above)) for begins_build in builds):
        return True
    python = next((each for each in found if each.framework is None), None)
    if python is not None and _is_python_package(folder):
        return True
    around = {each.name for folder in above for each in _list_own(folder, is_top=folder == top)}
    if python is not None:
        return PYTEST.framework not in around and python.sign == "clear"
    return bool(found) and not around


def _list_own(folder: Path, *, is_top: bool = False) -> tuple[ProjectFramework, ...]:
    """Return a folder's frameworks, without a pytest that only Python files in subfolders show.

    At the top of a repository such a pytest counts, unless subfolders are packages.
    """
    found = find_matches(folder)
    below = (each for each in _subfolders(folder) if each.name not in _TEST_FOLDERS)
    is_loose = any(each.sign == "loose" for each in found)
    return () if is_loose and (not is_top or any(map(_has_manifest, below))) else found


def _has_manifest(folder: Path) -> bool:
    found = find_matches(folder)
    configures = any((folder / name).is_file() for name in _CONFIGURES) or _is_python_package(folder)
    return any(configures if each.framework is None else not each.framework.is_fallback for each in found)


def _is_python_package(folder: Path) -> bool:
    has_lock = any((folder / name).is_file() for name in _PACKAGES)
    return has_lock or _PACKAGE.search(read_content(folder / "pyproject.toml")) is not None


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
    interpreter = find_interpreter(
        root, environment=environment, trust=trust, sandbox=sandbox, named=arguments.named, choose=context.choose
    )
    if arguments.ignored:
        context.tell(explain_ignored(found.finding.argv, arguments.ignored))
    narrowed = f"{PYTEST.discovery}; test_command narrows them to `{shlex.join(arguments.selects)}`"
    return PytestSuite(
        root=root,
        interpreter=interpreter,
        sandbox=sandbox,
        timeout_s=timeout_s,
        bytecode=private_folder(context.root) / "bytecode",
        compiled=CompiledSources(),
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
        python = find_approved_python(
            context.root,
            environment=context.environment,
            trust=context.trust,
            sandbox=context.sandbox,
            choose=context.choose,
        )
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
