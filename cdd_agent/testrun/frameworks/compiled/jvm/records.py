"""Tests in Java, Kotlin, Groovy or Scala: from a JUnit file and a stack trace to records."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent.testrun.frameworks.compiled.sources import Sources, capped, split_target
from cdd_agent.testrun.frameworks.junit_xml import JunitCase, read_junit
from pytest_tdd_agent.failure import FRAMES_CAP, MESSAGE_CAP
from pytest_tdd_agent.report import Case, CollectError, Failure, Frame

LANGUAGES = (".java", ".kt", ".groovy", ".scala")
REPORTS_CAP = 20_000

_TEST_FILES = re.compile(r"(?:^|/)src/(?:\w*[tT]est\w*|it)/|(?:^|/)\w+(?:Tests?|IT|Spec)\.(?:java|kt|groovy|scala)$")
_PACKAGE = re.compile(r"(?:^|.*/)src/\w+/(?:java|kotlin|groovy|scala)/(?P<package>.+)\.\w+$")
_METHOD = re.compile(r"[A-Za-z_$][\w$]*")
_FRAME = re.compile(
    r"^\s+at (?:[\w.@-]*/)*(?P<owner>[\w.$]+)\.(?P<method>[\w$<>]+)\([^():]*:(?P<line>\d+)\)", re.MULTILINE
)
_MACHINERY = re.compile(
    r"(?:java|javax|jdk|sun|kotlin|groovy|scala|org\.(?:junit|hamcrest|assertj|opentest4j|gradle|apache\.maven|mockito"
    r"|codehaus|apiguardian|scalatest|spockframework)|junit|com\.sun|worker\.org\.gradle)\."
)
"""Beginning of the names of classes that run tests or state what is expected: none of them is to blame."""
_ASSERTION = re.compile(
    r"Assertion(?:Failed)?Error$|ComparisonFailure$|MultipleFailuresError$|ConditionNotSatisfiedError$"
)
_BY_MESSAGE = (
    (
        r"Expected (?:test to throw|exception)|.*to be thrown, but nothing was thrown|.*Expecting code to raise",
        "did_not_raise",
    ),
    (r"Unexpected exception, expected<|.*[Uu]nexpected exception type thrown", "wrong_exception"),
    (r".*(?:test timed out after|execution (?:timed out|exceeded timeout))", "timeout"),
)
_BY_CLASS = (
    (r"NotImplementedError$|NotImplementedException$", "not_implemented"),
    (r"StackOverflowError$", "recursion"),
    (r"OutOfMemoryError$", "resource"),
    (r"TimeoutException$|TestTimedOutException$", "timeout"),
    (r"ClassNotFoundException$|NoClassDefFoundError$", "missing_module"),
    (r"NoSuchMethodError$|NoSuchMethodException$|NoSuchFieldError$|NoSuchFieldException$", "attribute_error"),
)
_TO_DO = re.compile(r"(?:not (?:yet )?implemented|unimplemented|todo)\b", re.IGNORECASE)


def is_test(path: str) -> bool:
    """Whether a file is one of the tests, or of what they read."""
    return _TEST_FILES.search(path) is not None


def sources_of(root: Path) -> Sources:
    """The source files of a project."""
    return Sources(root, suffixes=LANGUAGES, made=("target", "build", "out", "bin"))


class Classes:
    """Which file of the project each class is written in."""

    def __init__(self, sources: Sources) -> None:
        """Looks at names of files only."""
        self._known: dict[str, str] = {}
        for path in reversed(sources.files()):
            name = path.rpartition(".")[0]
            for at in (at for at, sign in enumerate(f"/{name}") if sign == "/"):
                self._known[name[at:].replace("/", ".")] = path

    def file_of(self, name: str) -> str | None:
        """The file of a class with its package, or of the one it is in; Kotlin's file classes too."""
        outer = name.partition("$")[0]
        return self._known.get(outer) or self._known.get(outer.removesuffix("Kt"))

    def has_package(self, package: str) -> bool:
        """Whether a package would be the project's: its first two parts, or all of it, are those of a file."""
        if package.partition(".")[0] in ("java", "javax", "kotlin", "scala", "groovy"):
            return False
        first = ".".join(package.split(".")[:2])
        tops = (first, package.partition(".")[0] if package.partition(".")[0] not in _SHARED else first)
        return any(f".{name}".find(f".{top}.") >= 0 for name in self._known for top in tops)


_SHARED = frozenset({"com", "org", "net", "io", "de", "dev", "java", "javax", "jakarta", "kotlin", "edu", "fr", "uk"})
"""First parts of packages that belong to nobody."""


def reports(root: Path, *, folders: tuple[str, ...]) -> tuple[Path, ...]:
    """The JUnit files in folders called so, wherever below ``root``; no link is followed."""
    found = (path for folder in folders for path in root.glob(f"**/{folder}/TEST-*.xml"))
    return tuple(sorted(path for _, path in zip(range(REPORTS_CAP), found, strict=False) if _is_plain(path, root)))


def _is_plain(path: Path, root: Path) -> bool:
    upwards = (path, *path.parents)
    return not any(each.is_symlink() for each in upwards[: len(path.relative_to(root).parts)]) and path.is_file()


def written_since(paths: Iterable[Path], results: Path) -> tuple[Path, ...]:
    """Those of ``paths`` that are no older than the run's folder for results: the others are of an earlier run."""
    try:
        began_ns = results.stat().st_mtime_ns - 50_000_000
    except OSError:
        began_ns = 0
    return tuple(path for path in paths if path.stat().st_mtime_ns >= began_ns)


def read_reports(
    paths: Iterable[Path], sources: Sources
) -> tuple[tuple[Case, ...], tuple[CollectError, ...], tuple[str, ...]]:
    """Tests, classes that could not be set up, and what cannot be read."""
    classes = Classes(sources)
    tests: list[Case] = []
    errors: list[CollectError] = []
    problems: list[str] = []
    for path in paths:
        cases, problem = read_junit(path)
        problems += [problem] if problem else []
        for case in cases:
            if _is_of_class(case):
                errors += _class_error(case, classes)
            else:
                tests.append(_case(case, classes))
    return tuple(tests), tuple(errors), tuple(problems)


def _is_of_class(case: JunitCase) -> bool:
    """Whether it is no test, but what was done before or after all tests of a class."""
    return case.name in ("", case.classname, "classMethod", "initializationError", "executionError")


def _class_error(case: JunitCase, classes: Classes) -> Iterator[CollectError]:
    if case.outcome in ("failed", "error"):
        file = classes.file_of(case.classname) or case.classname
        yield CollectError(nodeid=file, failure=why_failed(case, classes, phase="setup"))


def _case(case: JunitCase, classes: Classes) -> Case:
    file = classes.file_of(case.classname) or case.classname
    inner = case.classname.partition("$")[2].replace("$", ".")
    is_failed = case.outcome in ("failed", "error")
    name = case.name if case.name.endswith("]") else case.name.removesuffix("()")
    return Case(
        nodeid=f"{file}::{inner}.{name}" if inner else f"{file}::{name}",
        outcome="failed" if is_failed else case.outcome,
        file=file,
        line=0,
        duration_s=case.duration_s,
        reruns=case.reruns,
        failure=why_failed(case, classes) if is_failed else None,
    )


def why_failed(case: JunitCase, classes: Classes, *, phase: str = "call") -> Failure:
    """The failure of a test, from the class of what was thrown, its message and its stack trace."""
    thrown = case.type or case.text.partition(":")[0].strip()
    message = case.message.removeprefix(f"{thrown}: ") or case.text.strip().partition("\n")[0]
    kind = _kind(thrown, message)
    frames, is_foreign = _frames(case.text, classes)
    at = frames[-1] if frames else None
    origin = "test" if at is None or is_test(at.path) else "project"
    if is_foreign and kind not in ("assertion", "did_not_raise"):
        origin = "third_party"
    missing = message.strip().replace("/", ".") if kind in ("missing_module", "attribute_error") else None
    return Failure(
        phase=phase,
        kind=kind,
        origin=origin,
        exception=thrown.rpartition(".")[2],
        message=message[:MESSAGE_CAP],
        missing_name=missing,
        path=at.path if at else None,
        line=at.line if at else None,
        frames=frames,
        text=capped(case.text.strip("\n")),
        output=capped(case.output),
        missing_in_project=classes.has_package(missing) if missing and kind == "missing_module" else None,
    )


def _kind(thrown: str, message: str) -> str:
    for pattern, kind in _BY_MESSAGE:
        if re.match(pattern, message, re.DOTALL):
            return kind
    for pattern, kind in _BY_CLASS:
        if re.search(pattern, thrown):
            return kind
    if _ASSERTION.search(thrown):
        return "assertion"
    is_to_do = thrown.endswith("UnsupportedOperationException") and _TO_DO.match(message)
    return "not_implemented" if is_to_do else "exception"


def _frames(trace: str, classes: Classes) -> tuple[tuple[Frame, ...], bool]:
    """Own calls, the innermost last, and whether a library's were inside of those."""
    found: list[Frame] = []
    is_foreign = False
    for match in _FRAME.finditer(trace):
        path = classes.file_of(match["owner"])
        if path is not None:
            found.append(Frame(path=path, line=int(match["line"]), function=match["method"]))
        elif not _MACHINERY.match(match["owner"]):
            is_foreign = is_foreign or not found
    return tuple(reversed(found[:FRAMES_CAP])), is_foreign


def selected(target: str) -> tuple[str, str] | None:
    """Class with its package, and method (empty: all of them), that a target names; None for a folder."""
    file, name = split_target(target)
    if not file.endswith(LANGUAGES):
        return None
    found = _PACKAGE.match(file)
    path = found["package"] if found else file.rpartition("/")[2].rpartition(".")[0]
    inner, _, method = re.split(r"[\[({]", name, maxsplit=1)[0].strip().rpartition(".")
    parts = [*path.split("/"), *filter(None, inner.split("."))]
    if not all(map(_METHOD.fullmatch, parts)):
        return None
    owner = ".".join(path.split("/")) + "".join(f"${part}" for part in inner.split(".") if part)
    return owner, method if _METHOD.fullmatch(method) else ""
