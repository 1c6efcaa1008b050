"""Java, Kotlin, Groovy and Scala: runs Maven and Gradle, and reads their JUnit files and the compilers' messages."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath

from cdd_agent.testrun.frameworks.framework import FinishedRun, ParsedResults, XmlCase, read_junit
from cdd_agent.testrun.frameworks.sources import Language, Meaning, Sources, classify, match_path, match_rule, read_text
from pytest_tdd_agent.report import Case, CollectError, Failure

REPORTS_CAP = 20_000

_SHARED = frozenset({"com", "org", "net", "io", "de", "dev", "java", "javax", "jakarta", "kotlin", "edu", "fr", "uk"})
"""First parts of package names that many projects share."""
is_test = match_path(r"(?:^|/)src/(?:\w*[tT]est\w*|it)/|(?:^|/)\w+(?:Tests?|IT|Spec)\.(?:java|kt|groovy|scala)$")
_PACKAGE = re.compile(r"(?:^|.*/)src/\w+/(?:java|kotlin|groovy|scala)/(?P<package>.+)\.\w+$")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")

_FRAME = re.compile(
    r"^\s+at (?:[\w.@-]*/)*(?P<owner>[\w.$]+)\.(?P<method>[\w$<>]+)\([^():]*:(?P<line>\d+)\)", re.MULTILINE
)
_RUNNERS = re.compile(
    r"(?:java|javax|jdk|sun|kotlin|groovy|scala|org\.(?:junit|hamcrest|assertj|opentest4j|gradle|apache\.maven|mockito"
    r"|codehaus|apiguardian|scalatest|spockframework)|junit|com\.sun|worker\.org\.gradle)\."
)
"""Beginning of class names of the platform, test runners and assertion libraries, which never cause a failure."""
_ERROR = re.compile(
    r"(?:^|^\[ERROR\] |^e: (?:file://)?|^:\w+)(?P<path>/[^\n:\[(]+?\.(?:java|kt))"
    r"(?::\[(?P<line>\d+),\d+\](?: error:)?|:(?P<line2>\d+): error:|:(?P<line3>\d+):\d+:?|: \((?P<line4>\d+), \d+\):) "
    r"(?P<text>(?P<message>[^\n]+)(?P<rest>(?:\n(?!\[|e: |/|\d+ errors?\b| FAILED)[^\n]*)*))",
    re.MULTILINE,
)
_CRASHED = re.compile(
    r"The forked VM terminated without properly saying goodbye|There was a timeout or other error in the fork"
)
"""Surefire's message that the process of the tests died."""
_CLASS_LEVEL = ("classMethod", "initializationError", "executionError")
"""Names of cases for the set-up or clean-up of a class."""
_NOTHING_SELECTED = "No tests found for given includes"
"""Gradle fails for every project that has none of the selected tests."""


def list_names(root: Path, sources: tuple[str, ...], *, tests: tuple[str, ...]) -> Iterator[str]:
    """Yield each class with and without its package.

    For Kotlin, whose functions need no class, also yield every word of the failing tests.
    """
    for source in sources:
        found = _PACKAGE.match(source)
        inside = found["package"] if found else source.rpartition(".")[0]
        yield from (inside.replace("/", "."), posixpath.basename(inside))
    is_kotlin = any(source.endswith(".kt") for source in sources)
    for test in tests:
        if is_kotlin and test.endswith(".kt"):
            yield from _IDENTIFIER.findall(read_text(root / test))


def build_maven_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for every module and full stack traces, and select classes unless ``files`` contain a folder."""
    settings = ("-fae", "-Dstyle.color=never", "-DtrimStackTrace=false")
    classes = ",".join(name.replace(".", "/") for name in _list_classes(files))
    chosen = ("-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false", f"-Dtest={classes}")
    return (*settings, *chosen) if classes else settings


def build_gradle_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Ask for every project without a daemon, and select classes unless ``files`` contain a folder."""
    filters = (part for name in _list_classes(files) for part in ("--tests", name))
    return (*filters, "--continue", "--no-daemon", "--console=plain")


def _list_classes(files: tuple[str, ...]) -> list[str]:
    """Return the classes of all files; empty if any of them is a folder."""
    classes = [find_class(file) for file in files]
    return [] if None in classes else [name for name in classes if name]


def find_class(file: str) -> str | None:
    """Return the class with its package that is named like a file; None for a folder."""
    found = _PACKAGE.match(file)
    parts = (found["package"] if found else file.rpartition("/")[2].rpartition(".")[0]).split("/")
    is_class = file.endswith(LANGUAGE.suffixes) and all(map(_IDENTIFIER.fullmatch, parts))
    return ".".join(parts) if is_class else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build tool: the location of its reports, and the reading of its failures."""

    folder: str
    """Pattern of the folders with JUnit files, below each module."""
    name: str
    program: str
    failed: re.Pattern[str]
    """Matches each ``reason`` why the tool failed in its output."""

    def list_reports(self, root: Path) -> tuple[Path, ...]:
        """List the JUnit files anywhere below ``root``, without following links."""
        found = islice(root.glob(f"**/{self.folder}/TEST-*.xml"), REPORTS_CAP)
        files, real = (path for path in found if path.is_file()), root.resolve()
        return tuple(sorted(path for path in files if path.resolve() == real / path.relative_to(root)))

    def read(self, run: FinishedRun) -> ParsedResults:
        """Read the results of all modules that ran, and the compile errors of the others."""
        sources, output = Sources(run.root, LANGUAGE), run.plain_output
        tests, problems = list[Case](), list[str]()
        errors = [*sources.read_errors(output)]
        for path in self.list_reports(run.root):
            cases, problem = read_junit(path)
            problems += [problem] if problem else []
            for case in cases:
                file = _find_file(case.classname, sources) or case.classname
                if case.name not in ("", case.classname, *_CLASS_LEVEL):
                    tests.append(_convert_case(case, file, sources=sources))
                elif case.outcome in ("failed", "error"):
                    errors.append(CollectError(file, describe_failure(case, sources, phase="setup")))
        problems += [crash[0]] if (crash := _CRASHED.search(output)) else []
        problem = "; ".join(problems) or None
        found = ParsedResults(tests=tuple(tests), collect_errors=tuple(errors), problem=problem)
        if tests and _NOTHING_SELECTED in output:
            return replace(found, explains_status=True)
        return run.conclude(found, self._explain(output))

    def _explain(self, output: str) -> str:
        reasons = "; ".join(match["reason"].replace("\n> ", " ") for match in self.failed.finditer(output))
        reason = reasons[:500].rstrip(".") or "it gives no reason"
        fetch = f". Tests run without network: run `{self.program} test` yourself once, so that it fetches its packages"
        return f"{self.name} failed outside of the tests: {reason}{fetch if 'offline mode' in output else ''}"


MAVEN_BUILD = Build(
    folder="target/surefire-reports",
    name="Maven",
    program="mvn",
    # Only the first of its errors is a reason.
    failed=re.compile(
        r"\A(?s:.*?)^\[ERROR\] (?!Tests run|Failures|Errors|  )(?P<reason>.+?)(?: -> \[Help 1\])?$", re.MULTILINE
    ),
)
GRADLE_BUILD = Build(
    folder="build/test-results/*",
    name="Gradle",
    program="gradle",
    failed=re.compile(r"^\* What went wrong:\n(?P<reason>.+(?:\n> .+)?)", re.MULTILINE),
)


def _find_file(name: str, sources: Sources) -> str | None:
    """Return the file of a class with its package, of the class around it, or of a Kotlin file class."""
    outer = name.partition("$")[0].replace(".", "/")
    return sources.find_stem(outer) or sources.find_stem(outer.removesuffix("Kt"))


def has_package(package: str, sources: Sources) -> bool:
    """Return whether a package would be the project's: a file's package starts with the same parts."""
    first, top = "/".join(package.split(".")[:2]), package.partition(".")[0]
    if top in ("java", "javax", "kotlin", "scala", "groovy"):
        return False
    tops = (first, first if top in _SHARED else top)
    return any(f"/{top}/" in f"/{path}" for path in sources.files() for top in tops)


def _convert_case(case: XmlCase, file: str, *, sources: Sources) -> Case:
    inner = case.classname.partition("$")[2].replace("$", ".")
    name = case.name if case.name.endswith("]") else case.name.removesuffix("()")
    nodeid = f"{file}::{inner}.{name}" if inner else f"{file}::{name}"
    failure = describe_failure(case, sources) if case.outcome in ("failed", "error") else None
    outcome = "failed" if failure else case.outcome
    return Case(nodeid, outcome, file, line=0, duration_s=case.duration_s, reruns=case.reruns, failure=failure)


def describe_failure(case: XmlCase, sources: Sources, *, phase: str = "call") -> Failure:
    """Return the failure of a test, from the exception's class, its message and its stack trace."""
    thrown = case.type or case.text.partition(":")[0].strip()
    message = case.message.removeprefix(f"{thrown}: ") or case.text.strip().partition("\n")[0]
    kind = classify("jvm.thrown", f"{thrown}: {message}").kind
    owners = ((_find_file(call["owner"], sources), call) for call in _FRAME.finditer(case.text))
    calls = (
        (path, int(call["line"]), call["method"])
        for path, call in owners
        if path is not None or not _RUNNERS.match(call["owner"])
    )
    missing = message.strip().replace("/", ".") if kind in ("missing_module", "attribute_error") else None
    exception = thrown.rpartition(".")[2]
    return replace(
        sources.describe_failure(kind, message, text=case.text, calls=calls, exception=exception, output=case.output),
        phase=phase,
        missing_name=missing,
        missing_in_project=has_package(missing, sources) if missing and kind == "missing_module" else None,
    )


def _explain(sources: Sources, match: re.Match[str]) -> Meaning:
    kind, parts = match_rule("jvm.compiler", match["message"] + match["rest"]) or ("collection_error", {})
    owner, name = parts.get("owner"), parts.get("name")
    if kind == "attribute_error" and PurePosixPath(match["path"]).stem in re.split(r"[.$]", owner or ""):
        kind, owner = "name_error", None  # the test class itself lacks the name
    missing = f"{owner}.{name}" if owner and name else name
    is_module = kind in ("missing_module", "import_error")
    return Meaning(kind, missing, has_package(missing, sources) if missing and is_module else None)


LANGUAGE = Language(
    suffixes=(".java", ".kt", ".groovy", ".scala"),
    built=("target", "build", "out", "bin"),
    is_test=is_test,
    error=_ERROR,
    explain=_explain,
)
