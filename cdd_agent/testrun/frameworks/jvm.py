"""Tests in Java, Kotlin, Groovy or Scala: from a JUnit file and a stack trace to records.

What the compilers of Java and Kotlin say, as Maven and Gradle pass it on.

``mvn test``, read from what Surefire leaves in each module.

``gradle test``, read from what its test tasks leave in each project.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.junit_xml import JunitCase, read_junit
from cdd_agent.testrun.frameworks.sources import Sources, capped, only, plain, split_target
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


_ERROR = re.compile(
    r"(?:^|^\[ERROR\] |^e: (?:file://)?|^:\w+)(?P<path>/[^\n:\[(]+?\.(?:java|kt))"
    r"(?::\[(?P<a>\d+),\d+\](?: error:)?|:(?P<b>\d+): error:|:(?P<c>\d+):\d+:?|: \((?P<d>\d+), \d+\):) "
    r"(?P<message>[^\n]+)(?P<rest>(?:\n(?!\[|e: |/|\d+ errors?\b| FAILED)[^\n]*)*)",
    re.MULTILINE,
)
_SYMBOL = re.compile(r"^\s*symbol:\s+(?P<what>\w+|@interface) (?P<name>[\w$]+)", re.MULTILINE)
_LOCATION = re.compile(r"^\s*location:\s+(?P<what>\w+) (?P<name>[\w.$]+)(?: of type (?P<type>[\w.$]+))?", re.MULTILINE)
_NO_PACKAGE = re.compile(r"package ([\w.]+) does not exist")
_NOT_APPLICABLE = re.compile(
    r"(?:method|constructor) (?P<name>\w+) in (?:class|interface|record|enum) (?P<owner>[\w.$]+)(?:<.*?>)? "
    r"cannot be applied|no suitable (?:method|constructor) found for (?P<other>\w+)"
)
_KOTLIN_UNRESOLVED = re.compile(r"[Uu]nresolved reference(?: '|: )(?P<name>\w+)")
_KOTLIN_CALL = re.compile(
    r"(?:No value passed for parameter|Too many arguments for|Cannot find a parameter with this name)"
)
_SYNTAX = re.compile(
    r".*(?:expected$|expected \w*|illegal start of|reached end of file|not a statement|unclosed|orphaned|malformed)"
    r"|Syntax error|Expecting "
)
_STRUCTURAL = frozenset({"missing_module", "import_error", "attribute_error", "name_error", "signature_mismatch"})


def compile_errors(output: str, sources: Sources) -> tuple[CollectError, ...]:
    """One for each file with errors: the first that is no missing name, as that one is not expected, else the first."""
    found: dict[str, list[Failure]] = {}
    for path, failure in _failures(output, sources):
        found.setdefault(path, []).append(failure)
    return tuple(
        CollectError(
            nodeid=path, failure=next((each for each in failures if each.kind not in _STRUCTURAL), failures[0])
        )
        for path, failures in found.items()
    )


def _failures(output: str, sources: Sources) -> Iterator[tuple[str, Failure]]:
    classes = Classes(sources)
    seen = set()
    for match in _ERROR.finditer(output):
        told, line = match["path"], int(match["a"] or match["b"] or match["c"] or match["d"])
        if (told, line, match["message"]) in seen:  # Maven says everything twice
            continue
        seen.add((told, line, match["message"]))
        path = sources.own(told)
        kind, name = _missing(match["message"], match["rest"], file=told)
        is_own = classes.has_package(name) if name and kind in ("missing_module", "import_error") else None
        yield (
            path or told,
            Failure(
                phase="collect",
                kind=kind,
                origin="third_party" if path is None else "test" if is_test(path) else "project",
                exception="",
                message=match["message"][:MESSAGE_CAP],
                missing_name=name,
                path=path,
                line=line if path else None,
                text=capped(f"{match['message']}{match['rest']}".rstrip()),
                missing_in_project=is_own,
            ),
        )


def _missing(message: str, rest: str, *, file: str) -> tuple[str, str | None]:
    """The kind of an error, and the name that is not there."""
    if found := _NO_PACKAGE.match(message):
        return "missing_module", found[1]
    if message.startswith("cannot find symbol"):
        return _symbol(rest, file)
    if found := _NOT_APPLICABLE.match(message):
        owner = found["owner"]
        return "signature_mismatch", f"{owner}.{found['name']}" if owner else found["other"]
    if found := _KOTLIN_UNRESOLVED.match(message):
        return "name_error", found["name"]
    if _KOTLIN_CALL.match(message):
        return "signature_mismatch", None
    return ("syntax_error" if _SYNTAX.match(message) else "collection_error"), None


def _symbol(rest: str, file: str) -> tuple[str, str | None]:
    symbol, location = _SYMBOL.search(rest), _LOCATION.search(rest)
    if symbol is None:
        return "name_error", None
    owner = "" if location is None else location["type"] or location["name"]
    here = file.rpartition("/")[2].rpartition(".")[0]
    if location is not None and location["what"] == "package":
        return "import_error", f"{owner}.{symbol['name']}"
    if not owner or here in re.split(r"[.$]", owner):
        return "name_error", symbol["name"]
    return "attribute_error", f"{owner}.{symbol['name']}"


MANIFEST = "pom.xml"

_FAILED = re.compile(r"^\[ERROR\] (?!Tests run|Failures|Errors|  )(?P<said>.+)$", re.MULTILINE)
_MAVEN_UNFETCHED = "in offline mode"
_MAVEN_FETCH = "Tests are run without network: run `mvn test` yourself once, so that what it needs is fetched"
_CRASHED = re.compile(
    r"The forked VM terminated without properly saying goodbye|There was a timeout or other error in the fork"
)


def find_maven(folder: Path) -> Finding | None:
    """A project; its own ``mvnw`` comes before what is installed."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    program = "./mvnw" if (folder / "mvnw").is_file() else "mvn"
    own = ", and it brings its own Maven" if program == "./mvnw" else ""
    return Finding(manifest=manifest, argv=(program, "-B", "test"), why=f"there is a {MANIFEST}{own}")


def arguments_maven(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Every module, whole stack traces, and the classes and methods of ``targets`` if none of them is a folder."""
    settings = ("-fae", "-Dstyle.color=never", "-DtrimStackTrace=false")
    chosen = [selected(target) for target in targets]
    if not chosen or None in chosen:
        return settings
    parts = (each for each in chosen if each is not None)
    tests = ",".join(only(f"{owner.replace('.', '/')}{method and f'#{method}'}" for owner, method in parts))
    return (*settings, "-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false", f"-Dtest={tests}")


def stale_maven(root: Path) -> tuple[Path, ...]:
    """What Surefire has left: it stays where it is when the next run does not compile."""
    return reports(root, folders=("target/surefire-reports",))


def read_maven(ended: Ended) -> Results:
    """The results of all modules that ran, and what did not compile in the others."""
    sources = sources_of(ended.root)
    output = plain(ended.output)
    written = written_since(stale_maven(ended.root), ended.results)
    tests, unready, problems = read_reports(written, sources)
    errors = (*compile_errors(output, sources), *unready)
    if found := _CRASHED.search(output):
        problems = (*problems, found[0])
    failed = any(case.failure for case in tests)
    if ended.exit_status and not (failed or errors or problems):
        said = _FAILED.search(output)
        why = said["said"][:500] if said else "it does not say why"
        fetch = f". {_MAVEN_FETCH}" if _MAVEN_UNFETCHED in why else ""
        problems = (f"Maven failed outside of the tests: {why.removesuffix(' -> [Help 1]').rstrip('.')}{fetch}",)
    return Results(tests=tests, collect_errors=errors, problem="; ".join(problems) or None)


MAVEN = Framework(
    name="maven",
    looked_for=MANIFEST,
    find=find_maven,
    arguments=arguments_maven,
    read=read_maven,
    is_test=is_test,
    stale=stale_maven,
)


MANIFESTS = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")

_WRONG = re.compile(r"^\* What went wrong:\n(?P<said>.+(?:\n> .+)?)", re.MULTILINE)
_GRADLE_UNFETCHED = "offline mode"
_GRADLE_FETCH = "Tests are run without network: run `gradle test` yourself once, so that what it needs is fetched"
_ONLY_SELECTION = re.compile(r"No tests found for given includes")


def find_gradle(folder: Path) -> Finding | None:
    """A build; its own ``gradlew`` comes before what is installed."""
    manifest = next((folder / name for name in MANIFESTS if (folder / name).is_file()), None)
    if manifest is None:
        return None
    program = "./gradlew" if (folder / "gradlew").is_file() else "gradle"
    own = ", and it brings its own Gradle" if program == "./gradlew" else ""
    return Finding(manifest=manifest, argv=(program, "test"), why=f"there is a {manifest.name}{own}")


def arguments_gradle(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """The classes and methods of ``targets`` if none of them is a folder; every project; no process that stays."""
    chosen = [selected(target) for target in targets]
    names = () if None in chosen else only(f"{each[0]}{each[1] and f'.{each[1]}'}" for each in chosen if each)
    filters = tuple(part for name in names for part in ("--tests", name))
    return (*filters, "--continue", "--no-daemon", "--console=plain")


def stale_gradle(root: Path) -> tuple[Path, ...]:
    """What test tasks have left: it stays when the next run does not compile, and without it the tests run again."""
    return reports(root, folders=("build/test-results/*",))


def read_gradle(ended: Ended) -> Results:
    """The results of all projects that ran, and what did not compile in the others."""
    sources = sources_of(ended.root)
    output = plain(ended.output)
    written = written_since(stale_gradle(ended.root), ended.results)
    tests, unready, problems = read_reports(written, sources)
    errors = (*compile_errors(output, sources), *unready)
    failed = any(case.failure for case in tests)
    wrong = [match["said"].replace("\n> ", " ") for match in _WRONG.finditer(output)]
    if ended.exit_status and not (failed or errors or problems) and not (tests and _ONLY_SELECTION.search(output)):
        why = "; ".join(wrong)[:500] or "it does not say why"
        fetch = f". {_GRADLE_FETCH}" if _GRADLE_UNFETCHED in output else ""
        problems = (f"Gradle failed outside of the tests: {why.rstrip('.')}{fetch}",)
    return Results(tests=tests, collect_errors=errors, problem="; ".join(problems) or None)


GRADLE = Framework(
    name="gradle",
    looked_for="build.gradle(.kts) or settings.gradle(.kts)",
    find=find_gradle,
    arguments=arguments_gradle,
    read=read_gradle,
    is_test=is_test,
    stale=stale_gradle,
)
