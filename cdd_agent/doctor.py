"""Check everything a run needs, in the order of dependence: git, trust, settings, interpreter, sandbox, tests, model.

The checks ask the user nothing, send nothing, and run only approved programs. Tests are collected but not run, unless
the framework can only run them. The plugin is tried on two tests that ship with cdd.
"""

import contextlib
import errno
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdd_agent.agent.hooks import offer_hooks
from cdd_agent.config import settings
from cdd_agent.config.own_commands import list_own_commands
from cdd_agent.config.settings import Settings, read_offer
from cdd_agent.config.trust import NotApproved, Offer
from cdd_agent.errors import CddError, EnvironmentMissing, format_count
from cdd_agent.evidence.outside import warn_of_origins
from cdd_agent.git import commits
from cdd_agent.git.commits import require_identity
from cdd_agent.git.ignored import list_packages
from cdd_agent.hooks import describe_hooks
from cdd_agent.installation import suggest_addition
from cdd_agent.model import recording
from cdd_agent.model.anthropic import Endpoint
from cdd_agent.sandbox.backends import NOT_STOPPED, BubblewrapSandbox
from cdd_agent.sandbox.choice import LevelTrial, Proof, prove, resolve_level, suggest_bubblewrap, try_levels
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Sandbox
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.storage import find_full_disk, private_folder, scratch
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.serena import INSTALL
from cdd_agent.symbols.symbol import SymbolServerError
from cdd_agent.symbols.ty import VERSION
from cdd_agent.testrun import interpreter
from cdd_agent.testrun.interpreter import NO_ENVIRONMENT, NamedEnvironment
from cdd_agent.testrun.project import offer_properties, read_properties
from cdd_agent.testrun.pytest_command import parse_command
from cdd_agent.testrun.pytest_run import PytestSuite
from cdd_agent.testrun.suite import NoReport, Suite
from cdd_agent.work.records import list_old, list_set_aside
from pytest_tdd_agent.report import OUTCOMES, count_outcomes

if TYPE_CHECKING:
    from cdd_agent.compose import Composition

State: TypeAlias = Literal["ok", "note", "missing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    name: str = ""
    """One word, such as ``git``."""
    state: State = "ok"
    """``note``: for information. ``missing``: runs will fail."""
    told: str
    fix: str = ""
    """The command to type, or the action to take."""
    details: tuple[str, ...] = ()


_LEAST_FREE_BYTES = 5_000_000
_DISK_FIXES = {
    errno.ENOSPC: "free space on that disk: df -h shows how much is left",
    errno.EROFS: "mount that disk for writing, or move the project",
    errno.E2BIG: "make your environment shorter: env | wc --bytes --max-line-length",
}
_COLLECTED = re.compile(
    r"(?P<count>\d+) tests? collected(?:.*? / (?P<errors>\d+) errors?)?|(?P<none>no tests collected)"
)
_ERRORS = re.compile(r"(\d+) errors? in ")


def _run_tests(suite: Suite) -> Check:
    run = suite.run()
    if run.report is None:
        fix = f"find the reason: {suite.command}"
        return Check(state="missing", told=run.problem or "no tests ran", fix=fix)
    if not run.report.structured:
        told = f"{suite.command} reports only an exit status, not single tests"
        fix = "accept the exit status (accept_unstructured: true in .cdd/config.yaml), or use another framework"
        state: State = "ok" if suite.conventions.accepts_exit_status else "missing"
        return Check(state=state, told=told, fix="" if state == "ok" else fix)
    if run.report.collect_errors:
        files = ", ".join(error.nodeid for error in run.report.collect_errors[:5])
        fix = f"find the error: {suite.command}"
        return Check(state="missing", told=f"{suite.command} cannot load {files}", fix=fix)
    counts = count_outcomes(run.report)
    count = ", ".join(f"{number} {word}" for word, number in counts.items() if number and word in OUTCOMES)
    told = f"{suite.command} runs {len(run.report.tests)}: {count}" if count else f"{suite.command} finds no tests yet"
    return Check(state="ok" if count else "note", told=told, details=run.notices)


def check_tests(suite: Suite) -> Check:
    """Count the tests by collecting them or, with frameworks other than pytest, by running them."""
    if not isinstance(suite, PytestSuite):
        return _run_tests(suite)
    run = suite.without_cache().run(("--collect-only", "-q"))
    path = suite.interpreter.path
    command = f"{path.relative_to(suite.root) if path.is_relative_to(suite.root) else path} -m pytest"
    found = _COLLECTED.search(run.output)
    errors = (found and found["errors"]) or (_ERRORS.search(run.output) or ("", ""))[1]
    if run.failed is not None and run.failed.cause == "not_installed":
        return Check(state="missing", told=run.failed.happened, fix=run.failed.advice)
    if errors:
        count = "1 error" if errors == "1" else f"{errors} errors"
        fix = f"find the error: {command} --collect-only -q"
        return Check(state="missing", told=f"{command} cannot collect the tests: {count}", fix=fix)
    if found is None:
        failed = run.failed or NoReport(happened="pytest printed nothing")
        fix = failed.advice or f"find the reason: {command} --collect-only -q"
        return Check(state="missing", told=failed.happened, fix=fix)
    if found["none"]:
        return Check(state="note", told=f"{command} finds no tests yet", details=run.notices)
    details = (*run.notices, *warn_of_origins(run.origins, suite.root))
    return Check(told=f"{command} collects {found['count']}", details=details)


def check_sandbox(asked: str, *, packages: tuple[Path, ...] = ()) -> tuple[Check, Sandbox | None]:
    """Try forbidden acts in the sandbox. Return the result and the sandbox, or None if none works.

    The result also says what programs may do in the project's ``packages``.
    """
    trials: list[LevelTrial] = []
    for trial in try_levels(asked) if asked != "none" else ():
        trials.append(trial)
        if trial.sandbox is not None:
            proofs = prove(trial.sandbox)
            if all(proof.refused for proof in proofs):
                told = f"{trial.level}; cdd just tried {len(proofs)} forbidden acts in it"
                limits = [NOT_STOPPED] if trial.level == "landlock" else []
                is_shown = trial.level in ISOLATING_LEVELS
                where = "at the project's path" if is_shown else "at their own path, with imports redirected"
                details = (
                    *_list_acts(proofs),
                    *limits,
                    f"run trees are {where}",
                    *(describe_packages(trial.sandbox, packages) if is_shown else ()),
                    f"run by {trial.candidate}",
                    *_list_unused(trials[:-1]),
                )
                return Check(told=told, details=details), trial.sandbox
    details = (*_list_acts(prove(PlainSandbox())), *_list_unused(trials))
    told = "none: tests and commands run as you, with all your files and the network"
    if asked == "none":
        return Check(state="note", told=f"{told}, as requested", details=details), None
    return Check(
        state="missing", told=told, fix=f"{suggest_bubblewrap()}, or start docker or podman", details=details
    ), None


def describe_packages(sandbox: Sandbox, packages: tuple[Path, ...]) -> Iterator[str]:
    """Yield what programs in a sandbox with a root folder of its own may do in ``packages``."""
    none = dict.fromkeys(packages, f"{sandbox.level} has no overlays")
    obstacles = sandbox.find_obstacles(packages) if isinstance(sandbox, BubblewrapSandbox) else none
    if len(obstacles) < len(packages):
        yield "installed packages: programs may change them in a run tree; the changes are dropped with each command"
    for why in dict.fromkeys(obstacles.values()):
        folders = [str(folder) for folder in obstacles if obstacles[folder] == why]
        names = "installed packages" if len(folders) == len(packages) else ", ".join(folders)
        yield f"{names}: read-only in a run tree ({why})"


def _list_acts(proofs: Iterable[Proof]) -> tuple[str, ...]:
    words = {True: "refused", False: "NOT refused"}
    return tuple(f"{words[p.refused]}: {p.act}{p.answer and f' ({p.answer})'}" for p in proofs)


def _list_unused(trials: Iterable[LevelTrial]) -> tuple[str, ...]:
    return tuple(f"{trial.level} cannot be used: {trial.reason}" for trial in trials if trial.reason)


def list_offers(project: "Composition") -> tuple[Offer, ...]:
    """List everything in the repository that needs approval, in the order of a run, without running it.

    That includes what matters only once the settings are approved, so that one round of answers is enough.
    """
    try:
        hooks = commits.offer_hooks(project.repository)
    except EnvironmentMissing:  # hooks run only when cdd commits, which needs a work tree
        hooks = None
    try:
        own_hooks = offer_hooks(_load_proposed_settings(project).hooks, project.root)
    except CddError:  # the settings are not valid, which another check reports
        own_hooks = None
    try:
        included = project.included.list_offers()
    except EnvironmentMissing:  # only a run in a repository has files that git ignores
        included = ()
    level = resolve_level(project.options.sandbox, environment=project.environment)
    brings = project.trust.brings if level != "none" else lambda _: True
    candidates = (
        settings.read_offer(project.root),
        offer_properties(project.root),
        interpreter.find_offer(
            project.root, environment=project.environment, named=_find_environment(project), brings=brings
        ),
        own_hooks,
        hooks,
        *included,
        *(command.offer for command in list_own_commands(project.root, environment=project.environment).values()),
    )
    return tuple(offer for offer in candidates if offer is not None)


def _load_proposed_settings(project: "Composition") -> settings.Settings:
    """Return the settings as they are if the user approves the repository's."""
    return settings.load(project.root, allows=lambda _: True, environment=project.environment)


def _find_environment(project: "Composition") -> NamedEnvironment:
    try:
        properties = read_properties(project.root, allows=lambda _: True)
        proposed = _load_proposed_settings(project).test_command
        command = proposed or project.settings.test_command or properties.command
        return parse_command(project.root, shlex.split(command)).named
    except (CddError, ValueError):  # the checks that use them report the error
        return NO_ENVIRONMENT


TIMEOUT_S = 60.0
TESTS = "def test_that_passes():\n    assert True\n\n\ndef test_that_fails():\n    assert False\n"
_EXPECTED = {"test_that_passes": "passed", "test_that_fails": "failed"}


def check_plugin(suite: Suite) -> Check:
    """Run two tests of cdd with the plugin."""
    if not isinstance(suite, PytestSuite):
        return Check(told=f"not needed: cdd reads the results of {suite.conventions.framework} directly")
    with scratch() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "test_trial.py").write_text(TESTS, encoding="ascii")
        run = replace(suite, root=root, timeout_s=TIMEOUT_S, bytecode=None, flaky=0).run()
    tests = run.report.tests if run.report is not None else ()
    reported = {case.nodeid.rpartition("::")[2]: case.outcome for case in tests}
    if reported == _EXPECTED:
        return Check(told="reports a passing and a failing test correctly in the project's interpreter")
    told = f"of two tests, one passes and one fails, but the report says {reported}"
    if run.report is None:
        told = run.problem or "the plugin wrote no report"
    return Check(state="missing", told=told, fix="create the interpreter's environment again")


_DEFINES, _USES = "def wanted(): pass\n", "from defines import wanted\nwanted()\n"


def check_symbols(project: "Composition", sandbox: Sandbox | None) -> Check:
    """Ask each engine for the uses of a function in two files of cdd."""
    answering, failing = list[str](), list[str]()
    if project.settings.symbols == "serena" and not project.settings.serena:
        failing.append(f"Serena: the setting serena names no program; {INSTALL}")
    with scratch() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        (root / "defines.py").write_text(_DEFINES, encoding="ascii")
        (root / "uses.py").write_text(_USES, encoding="ascii")
        index = Index(root)
        wanted = index.find_one("wanted")
        for server in project.make_symbol_servers(index, sandbox=sandbox or PlainSandbox()):
            try:
                found = server.find_references(wanted)
            except SymbolServerError as error:
                failing.append(f"{server.name}: {error.happened}")
            else:
                (answering if found else failing).append(server.name if found else f"{server.name}: it finds no use")
            finally:
                server.close()
    if answering:
        told = f"uses and renames: {', then '.join(answering)}, then the name scan"
        return Check(state="note" if failing else "ok", told=told, details=tuple(failing))
    told = "uses and renames: the name scan alone, which does not know types"
    fix = "" if project.settings.symbols == "index" else suggest_addition(f"ty=={VERSION}")
    return Check(state="note", told=told, fix=fix, details=tuple(failing))


def run_checks(project: "Composition") -> Iterator[Check]:
    """Run every check. A check whose requirements are missing results in a note."""
    level = resolve_level(project.options.sandbox, environment=project.environment)
    yield _run_check("git", lambda: _check_git(project))
    yield _run_check("folders", lambda: _check_folders(project))
    yield _run_check("trust", lambda: _check_trust(project))
    yield _run_check("settings", lambda: _check_settings(project))
    interpreter = _run_check("interpreter", lambda: _check_interpreter(project))
    yield interpreter
    checked, sandbox = check_sandbox(level, packages=_list_packages(project))
    yield replace(checked, name="sandbox")
    for name, run in (("plugin", check_plugin), ("tests", check_tests)):
        if interpreter.state != "ok":
            yield Check(name=name, state="note", told="not tried: this check needs an interpreter")
        elif sandbox is None:
            yield Check(name=name, state="note", told="not tried: this check needs a sandbox")
        else:
            yield _run_check(name, lambda run=run: run(project.suite.with_sandbox(sandbox)))  # type: ignore[misc]
    yield _run_check("symbols", lambda: check_symbols(project, sandbox))
    yield _run_check("model", lambda: _check_model(project))
    yield _run_check("recording", lambda: _check_recording(project))


def check_project(project: "Composition") -> Iterator[Check]:
    """Run the checks that describe the project: git, the interpreter, and how its tests are collected."""
    for check in run_checks(project):
        if check.name in {"git", "interpreter", "tests"}:
            yield check
        if check.name == "tests":
            return


def _list_packages(project: "Composition") -> tuple[Path, ...]:
    """Return the folders of installed packages, or the project's folder if it has none or is not usable yet."""
    with contextlib.suppress(CddError):
        return list_packages(project.repository) or (project.root,)
    return (project.root,)


def _run_check(name: str, check: Callable[[], Check]) -> Check:
    try:
        return replace(check(), name=name)
    except NotApproved:
        return Check(name=name, state="note", told="not checked: something it needs is not approved yet")
    except CddError as error:
        return Check(name=name, state="missing", told=error.happened, fix=error.hint)
    except OSError as error:
        told = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        folder = shlex.quote(os.path.dirname(str(error.filename or "")) or ".")
        look = f"check its owner and its disk: ls -ld {folder}; df -h {folder}"
        return Check(name=name, state="missing", told=told, fix=_DISK_FIXES.get(error.errno or 0, look))


def _check_git(project: "Composition") -> Check:
    repository = project.repository
    require_identity(repository)
    version = repository.git("version").strip()
    branch = repository.read_branch() or "no branch"
    told = f"{version}; {repository.root} on {branch}"
    if begun := repository.find_unfinished():
        state, ends = begun
        return Check(state="missing", told=f"{told}, and {state} is in progress", fix=f"finish or abort it: {ends}")
    if count := len(commits.list_own_uncommitted(repository, project=project.root)):
        told = f"{told}; {format_count(count, 'uncommitted path')}, so cdd exec needs --allow-dirty"
        return Check(state="note", told=told)
    return Check(told=told)


def _check_folders(project: "Composition") -> Check:
    own, private = private_folder(project.root), project.records.folder
    private.mkdir(parents=True, exist_ok=True)
    approvals = project.trust.approvals.path.parent
    for folder in (own, private, next(each for each in (approvals, *approvals.parents) if each.exists())):
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))
        if full := find_full_disk(folder):
            return Check(state="missing", told=full.happened, fix=full.hint)
        if shutil.disk_usage(folder).free < _LEAST_FREE_BYTES:
            raise OSError(errno.ENOSPC, "Less than 5 MB are free", str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            fix = f"grant yourself access: chmod u+rwx {folder}"
            return Check(state="missing", told=f"cdd cannot write to {folder}", fix=fix)
    told = f"journals and reports in {private}, your approvals in {approvals}"
    unread = [*list_set_aside(project.records.top), *([project.root / ".cdd"] if list_old(project.root) else [])]
    if unread:
        told += f"; not read are records in {', '.join(map(str, unread))}: cdd trust --records"
        return Check(state="note", told=told)
    return Check(told=told)


def _check_trust(project: "Composition") -> Check:
    words = {True: "approved", False: "declined", None: "not decided"}
    decided = [(offer, project.trust.approvals.find_decision(offer)) for offer in list_offers(project)]
    details = tuple(f"{offer.name}, {offer.source}: {words[answer]}" for offer, answer in decided)
    waiting = sum(answer is None for _, answer in decided)
    if waiting:
        told = f"{waiting} of {len(decided)} things in this repository need your decision"
        fix = f"decide: {project.trust.approvals.decided_by}"
        return Check(state="missing", told=told, fix=fix, details=details)
    if not decided:
        return Check(told="nothing in this repository needs your approval")
    told = "you have decided about everything in this repository"
    state: State = "ok" if all(answer for _, answer in decided) else "note"
    return Check(state=state, told=told, details=details)


def _check_settings(project: "Composition") -> Check:
    defaults = asdict(Settings())
    values = asdict(project.settings)
    changed = [f"{name} {value}" for name, value in values.items() if value != defaults[name] and name != "hooks"]
    changed += [f"hook {line}" for line in describe_hooks(values["hooks"])]
    source = "" if read_offer(project.root) is None else ".cdd/config.yaml is read; "
    return Check(told=source + (", ".join(changed) or "the defaults"))


def _check_interpreter(project: "Composition") -> Check:
    suite = project.suite
    if not isinstance(suite, PytestSuite):
        return Check(told=suite.conventions.discovery)
    found = suite.interpreter
    return Check(told=f"Python {found.python} with pytest {found.pytest}: {found.path} ({found.origin})")


def _check_model(project: "Composition") -> Check:
    model = project.model
    model.check()
    if project.options.find_recording(project.environment) is not None:
        return Check(told=f"{model.name}, played back: no network, no key")
    url = Endpoint.from_environment(project.environment).url
    return Check(told=f"{model.name} at {url}; a key is set, nothing was sent")


def _check_recording(project: "Composition") -> Check:
    replay = project.options.find_recording(project.environment)
    if replay is not None:
        turns = len(recording.load_recording(replay))
        return Check(told=f"{replay} holds {turns} turns to play back")
    if project.options.record is not None:
        return Check(told=f"the model's turns go to {project.options.record}")
    return Check(told="none; --record FILE saves the model's turns, --replay FILE plays them back")
