"""The test frameworks that cdd knows besides pytest, each as one record.

**To add a framework, add its record here**, and to ``FRAMEWORKS``. ``framework.Framework`` explains the fields, and
the records below show what exists already: ``find_by_manifest``, the toolchains in ``environment``, and the readers in
``framework``. A new report format or language gets a new module, such as ``go``, and its errors a section in
``kinds.toml``. Test it with the stored output of a real run in ``tests/cdd_agent/testrun/frameworks/data``.
"""

import re
import shutil
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest_tdd_agent
from cdd_agent.testrun import inside
from cdd_agent.testrun.frameworks import dotnet, environment, go, javascript, javascript_results, jvm, rust
from cdd_agent.testrun.frameworks.framework import (
    REPORT,
    FinishedRun,
    Framework,
    FrameworkMatch,
    ParsedResults,
    find_by_manifest,
    read_lines,
)
from cdd_agent.testrun.frameworks.sources import list_own_files, match_path, read_text
from cdd_agent.testrun.interpreter import FOLDERS

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""The order in which GNU make looks for them."""

_TEST_TARGET = re.compile(r"^(?:[\w./-]+ +)*test(?: +[\w./-]+)* *::?(?!=)", re.MULTILINE)
_NO_RULE = re.compile(r"^make: \*\*\* No rule to make target .*", re.MULTILINE)
_NOTHING_DONE = re.compile(
    r"^g?make: (?P<message>(?!\*\*\*)[^\n:]*['`\"\u00ab\u2018\u201e](?:test|check)['\"\u00bb\u2019\u201c][^\n:]*)\.$",
    re.MULTILINE,
)
"""The message that there is nothing to do for the target, in any of make's languages."""
_IS_TEST = match_path(
    rf"^(?:{'|'.join(_MAKEFILES)})$|(?:^|/)(?:tests?|specs?|t)/|(?:^|/)test[_-][^/]*$|[_.-](?:test|spec)s?\.\w+$"
)

_UNITTEST_PROGRAM = "unittest_program.py"
_PYTHON_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg")
_UNITTEST_PLACES = ("test*.py", "tests/**/test*.py", "test/**/test*.py", "*/test*.py", "*/tests/**/test*.py")
_FILES_CAP = 200
_IMPORTS_UNITTEST = re.compile(r"^\s*(?:import unittest|from unittest)\b", re.MULTILINE)
_IMPORTS_PYTEST = re.compile(r"^\s*(?:import pytest|from pytest)\b", re.MULTILINE)


def find_makefile(folder: Path) -> FrameworkMatch | None:
    """Look for a makefile with a target ``test``; make reads only the first one."""
    name = next((name for name in _MAKEFILES if (folder / name).is_file()), "")
    found = FrameworkMatch(manifest=folder / name, argv=("make", "test"), why=f"{name} has a target test")
    return found if name and _TEST_TARGET.search(read_text(found.manifest)) else None


def read_exit_status(run: FinishedRun) -> ParsedResults:
    """Return no tests, and a problem if make could not start or ran nothing and still succeeded."""
    missing, idle = _NO_RULE.search(run.output), _NOTHING_DONE.search(run.output)
    problem = missing[0].removeprefix("make: *** ") if missing and run.exit_status else None
    if idle is not None and not run.exit_status:
        problem = f"make ran nothing: {idle['message']}. Make the target run the tests every time (.PHONY: test)"
    return ParsedResults(is_structured=False, problem=problem)


def find_unittest(folder: Path) -> FrameworkMatch | None:
    """Look for test files that import unittest and not pytest, in the places of unittest's discovery."""
    for path in islice(list_own_files(folder, *_UNITTEST_PLACES), _FILES_CAP):
        text = read_text(path)
        if _IMPORTS_UNITTEST.search(text) and not _IMPORTS_PYTEST.search(text):
            inside = path.relative_to(folder)
            manifests = (folder / name for name in (*_PYTHON_MANIFESTS, inside.parts[0]))
            manifest = next(path for path in manifests if path.exists())
            pythons = (folder / name / "bin" / "python" for name in FOLDERS)
            python = next((str(path) for path in pythons if path.exists()), "python3")
            return FrameworkMatch(manifest=manifest, argv=(python,), why=f"{inside.as_posix()} imports unittest")
    return None


def build_unittest_arguments(files: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """Copy the program and the plugin's rules for failures into ``results``."""
    package = Path(pytest_tdd_agent.__file__).parent
    rules = results / "tdd_agent_rules"
    rules.mkdir()
    for path in package.glob("*.py"):
        shutil.copy(path, rules)
    (rules / "__init__.py").write_bytes(b"")
    shutil.copy(Path(inside.__file__).with_name(_UNITTEST_PROGRAM), results)
    return ("-B", str(results / _UNITTEST_PROGRAM), str(results / REPORT), *files)


VITEST = Framework(
    name="vitest",
    discovery="vitest in a package.json's dependencies or scripts, or a vitest.config file",
    find=javascript.VITEST.find,
    word=r"(?:.*/)?vitest(?:\.m?js)?",
    arguments=javascript.VITEST.build_arguments,
    # Without CI, a test would write its missing snapshot itself.
    variables=(("CI", "true"), ("NO_COLOR", "1")),
    toolchains=(environment.JAVASCRIPT,),
    read=partial(javascript_results.read_jest, tool="vitest"),
    is_test=javascript.is_test,
    names=javascript.list_names,
)
JEST = replace(
    VITEST,
    name="jest",
    discovery="jest in a package.json's dependencies or scripts, or a jest.config file",
    find=javascript.JEST.find,
    word=r"(?:.*/)?jest(?:\.js)?",
    arguments=javascript.JEST.build_arguments,
    read=javascript_results.read_jest,
)
MOCHA = replace(
    VITEST,
    name="mocha",
    discovery="mocha in a package.json's dependencies or scripts, or a .mocharc file",
    find=javascript.MOCHA.find,
    word=r"(?:.*/)?_?mocha(?:\.js)?",
    arguments=javascript.MOCHA.build_arguments,
    variables=(("NO_COLOR", "1"), ("FORCE_COLOR", "0")),
    read=javascript_results.read_mocha,
    is_test=javascript.is_mocha_test,
    hides_other_tests=True,
)
NODE = replace(
    VITEST,
    name="node",
    discovery="a script with node --test in a package.json",
    find=javascript.find_node,
    word=r"(?!)",
    arguments=javascript.NODE.build_arguments,
    variables=(("NO_COLOR", "1"),),
    read=javascript_results.read_node,
    is_test=javascript.is_node_test,
)
CARGO = Framework(
    name="cargo",
    discovery=rust.MANIFEST,
    find=rust.find_cargo,
    word=r"(?:.*/)?cargo",
    arguments=rust.build_cargo_arguments,
    variables=rust.VARIABLES,
    toolchains=(environment.RUST,),
    read=rust.read_cargo,
    is_test=rust.is_test,
    names=rust.list_names,
    hides_other_tests=True,
    build_files={rust.MANIFEST: r"^\[workspace\b"},
)
NEXTEST = replace(
    CARGO,
    name="nextest",
    discovery=f"{rust.MANIFEST}, and cargo-nextest installed",
    find=rust.find_nextest,
    word="nextest",
    arguments=rust.build_nextest_arguments,
    read=rust.read_nextest,
    replaces="cargo",
)
GO = Framework(
    name="go",
    discovery=go.MANIFEST,
    find=find_by_manifest(go.MANIFEST, command=("go", "test")),
    word=r"(?:.*/)?go",
    arguments=go.build_arguments,
    toolchains=(environment.GO,),
    read=go.read,
    is_test=go.is_test,
    names=go.list_names,
    hides_other_tests=True,
)
MAVEN = Framework(
    name="maven",
    discovery="pom.xml",
    find=find_by_manifest("pom.xml", command=("mvn", "-B", "test"), wrapper=("mvnw", "Maven")),
    word=r"(?:.*/)?mvnw?",
    arguments=jvm.build_maven_arguments,
    toolchains=(environment.MAVEN,),
    read=jvm.MAVEN_BUILD.read,
    old_reports=jvm.MAVEN_BUILD.list_reports,
    is_test=jvm.is_test,
    names=jvm.list_names,
    hides_other_tests=True,
    build_files={"pom.xml": "<modules>"},
)
GRADLE = replace(
    MAVEN,
    name="gradle",
    discovery="build.gradle(.kts) or settings.gradle(.kts)",
    find=find_by_manifest(
        *("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
        command=("gradle", "test"),
        wrapper=("gradlew", "Gradle"),
    ),
    word=r"(?:.*/)?gradlew?",
    arguments=jvm.build_gradle_arguments,
    toolchains=(environment.GRADLE,),
    read=jvm.GRADLE_BUILD.read,
    old_reports=jvm.GRADLE_BUILD.list_reports,
    build_files={"settings.gradle": "", "settings.gradle.kts": ""},
)
DOTNET = Framework(
    name="dotnet",
    discovery="*.sln or *.csproj",
    find=find_by_manifest(
        *("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"), command=("dotnet", "test", "{manifest}")
    ),
    word=r"(?:.*/)?dotnet",
    arguments=dotnet.build_arguments,
    variables=(("DOTNET_CLI_TELEMETRY_OPTOUT", "1"), ("DOTNET_NOLOGO", "1"), ("MSBUILDTERMINALLOGGER", "off")),
    toolchains=(environment.DOTNET,),
    read=dotnet.read,
    is_test=dotnet.is_test,
    names=dotnet.list_names,
    hides_other_tests=True,
    build_files={"*.sln": "", "*.slnx": ""},
)
UNITTEST = Framework(
    name="unittest",
    discovery="test*.py with `import unittest`",
    find=find_unittest,
    word="unittest",
    arguments=build_unittest_arguments,
    toolchains=(),
    read=partial(read_lines, tool="unittest", describe=lambda line: line.failure),
    is_test=match_path(r"(?:^|/)test[^/]*\.py$|(?:^|/)tests?/"),
    is_fallback=True,
)
MAKE = Framework(
    name="make",
    discovery="a Makefile with a target test",
    find=find_makefile,
    arguments=lambda files, results: (),  # only the makefile knows how to select a test
    read=read_exit_status,
    is_test=_IS_TEST,
    is_fallback=True,
)
COMMAND = replace(
    MAKE, name="command", discovery="test_command in .cdd/config.yaml", find=lambda _: None, is_fallback=False
)
"""Any other ``test_command``: only its exit status is known."""

JAVASCRIPT = (VITEST, JEST, MOCHA, NODE)
FRAMEWORKS = (*JAVASCRIPT, NEXTEST, CARGO, GO, MAVEN, GRADLE, DOTNET, UNITTEST, MAKE)
"""The order in which cdd looks for frameworks and compares a ``test_command`` with them."""
