"""``gradle test``, read from what its test tasks leave in each project."""

import re
from pathlib import Path

from cdd_agent.testrun.frameworks.compiled.jvm import records
from cdd_agent.testrun.frameworks.compiled.jvm.javac import compile_errors
from cdd_agent.testrun.frameworks.compiled.sources import only, plain
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results

MANIFESTS = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")

_WRONG = re.compile(r"^\* What went wrong:\n(?P<said>.+(?:\n> .+)?)", re.MULTILINE)
_UNFETCHED = "offline mode"
_FETCH = "Tests are run without network: run `gradle test` yourself once, so that what it needs is fetched"
_ONLY_SELECTION = re.compile(r"No tests found for given includes")


def find(folder: Path) -> Finding | None:
    """A build; its own ``gradlew`` comes before what is installed."""
    manifest = next((folder / name for name in MANIFESTS if (folder / name).is_file()), None)
    if manifest is None:
        return None
    program = "./gradlew" if (folder / "gradlew").is_file() else "gradle"
    own = ", and it brings its own Gradle" if program == "./gradlew" else ""
    return Finding(manifest=manifest, argv=(program, "test"), why=f"there is a {manifest.name}{own}")


def arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """The classes and methods of ``targets`` if none of them is a folder; every project; no process that stays."""
    chosen = [records.selected(target) for target in targets]
    names = () if None in chosen else only(f"{each[0]}{each[1] and f'.{each[1]}'}" for each in chosen if each)
    filters = tuple(part for name in names for part in ("--tests", name))
    return (*filters, "--continue", "--no-daemon", "--console=plain")


def stale(root: Path) -> tuple[Path, ...]:
    """What test tasks have left: it stays when the next run does not compile, and without it the tests run again."""
    return records.reports(root, folders=("build/test-results/*",))


def read(ended: Ended) -> Results:
    """The results of all projects that ran, and what did not compile in the others."""
    sources = records.sources_of(ended.root)
    output = plain(ended.output)
    written = records.written_since(stale(ended.root), ended.results)
    tests, unready, problems = records.read_reports(written, sources)
    errors = (*compile_errors(output, sources), *unready)
    failed = any(case.failure for case in tests)
    wrong = [match["said"].replace("\n> ", " ") for match in _WRONG.finditer(output)]
    if ended.exit_status and not (failed or errors or problems) and not (tests and _ONLY_SELECTION.search(output)):
        why = "; ".join(wrong)[:500] or "it does not say why"
        fetch = f". {_FETCH}" if _UNFETCHED in output else ""
        problems = (f"Gradle failed outside of the tests: {why.rstrip('.')}{fetch}",)
    return Results(tests=tests, collect_errors=errors, problem="; ".join(problems) or None)


GRADLE = Framework(
    name="gradle",
    looked_for="build.gradle(.kts) or settings.gradle(.kts)",
    find=find,
    arguments=arguments,
    read=read,
    is_test=records.is_test,
    stale=stale,
)
