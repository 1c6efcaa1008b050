"""``mvn test``, read from what Surefire leaves in each module."""

import re
from pathlib import Path

from cdd_agent.testrun.frameworks.compiled.jvm import records
from cdd_agent.testrun.frameworks.compiled.jvm.javac import compile_errors
from cdd_agent.testrun.frameworks.compiled.sources import only, plain
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results

MANIFEST = "pom.xml"

_FAILED = re.compile(r"^\[ERROR\] (?!Tests run|Failures|Errors|  )(?P<said>.+)$", re.MULTILINE)
_UNFETCHED = "in offline mode"
_FETCH = "Tests are run without network: run `mvn test` yourself once, so that what it needs is fetched"
_CRASHED = re.compile(
    r"The forked VM terminated without properly saying goodbye|There was a timeout or other error in the fork"
)


def find(folder: Path) -> Finding | None:
    """A project; its own ``mvnw`` comes before what is installed."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    program = "./mvnw" if (folder / "mvnw").is_file() else "mvn"
    own = ", and it brings its own Maven" if program == "./mvnw" else ""
    return Finding(manifest=manifest, argv=(program, "-B", "test"), why=f"there is a {MANIFEST}{own}")


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Every module, whole stack traces, and the classes and methods of ``targets`` if none of them is a folder."""
    settings = ("-fae", "-Dstyle.color=never", "-DtrimStackTrace=false")
    chosen = [records.selected(target) for target in targets]
    if not chosen or None in chosen:
        return settings
    parts = (each for each in chosen if each is not None)
    tests = ",".join(only(f"{owner.replace('.', '/')}{method and f'#{method}'}" for owner, method in parts))
    return (*settings, "-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false", f"-Dtest={tests}")


def stale(root: Path) -> tuple[Path, ...]:
    """What Surefire has left: it stays where it is when the next run does not compile."""
    return records.reports(root, folders=("target/surefire-reports",))


def read(ended: Ended) -> Results:
    """The results of all modules that ran, and what did not compile in the others."""
    sources = records.sources_of(ended.root)
    output = plain(ended.output)
    written = records.written_since(stale(ended.root), ended.results)
    tests, unready, problems = records.read_reports(written, sources)
    errors = (*compile_errors(output, sources), *unready)
    if found := _CRASHED.search(output):
        problems = (*problems, found[0])
    failed = any(case.failure for case in tests)
    if ended.exit_status and not (failed or errors or problems):
        said = _FAILED.search(output)
        why = said["said"][:500] if said else "it does not say why"
        fetch = f". {_FETCH}" if _UNFETCHED in why else ""
        problems = (f"Maven failed outside of the tests: {why.removesuffix(' -> [Help 1]').rstrip('.')}{fetch}",)
    return Results(tests=tests, collect_errors=errors, problem="; ".join(problems) or None)


MAVEN = Framework(
    name="maven",
    looked_for=MANIFEST,
    find=find,
    arguments=arguments,
    read=read,
    is_test=records.is_test,
    stale=stale,
)
