"""Every test framework that cdd knows apart from pytest, each as one record.

**To add a framework, add its record here**, and to ``FRAMEWORKS``. ``framework.Framework`` explains the fields. What
most frameworks share exists already:

========================  ============================================================================
``find``                  ``by_manifest("pom.xml", command=...)``; ``javascript.find_tool`` for npm packages
``read``, JUnit XML       ``jvm.Build(folder=...).read``, or ``junit_xml.read_junit`` for other names
``read``, jest's JSON     ``javascript_reports.read_jest`` (vitest writes the same)
``read``, node's events   ``javascript_reports.read_node``
``read``, exit status     ``make.read``
``requirements``          one of ``environment.require_*``
``names``                 the ``list_names`` of its language
========================  ============================================================================

A new report format or a new language gets a module beside these, such as ``go``; its record still stands here. A stored
output of a real run (``tests/cdd_agent/testrun/frameworks/data``) is its test.
"""

from cdd_agent.testrun.frameworks import (
    dotnet,
    environment,
    go,
    javascript,
    javascript_reports,
    jvm,
    make,
    rust,
    rust_errors,
    unittest,
)
from cdd_agent.testrun.frameworks.framework import Framework, by_manifest

VITEST = Framework(
    name="vitest",
    looked_for="vitest in a package.json's dependencies or scripts, or a vitest.config file",
    find=javascript.find_vitest,
    word=r"(?:.*/)?vitest(?:\.m?js)?",
    arguments=javascript.build_vitest_arguments,
    # CI: otherwise a missing snapshot is written by the test that it is to judge
    variables=(("CI", "true"), ("NO_COLOR", "1")),
    requirements=environment.require_javascript,
    read=javascript_reports.read_vitest,
    is_test=javascript.is_test,
    names=javascript.list_names,
)
JEST = Framework(
    name="jest",
    looked_for="jest in a package.json's dependencies or scripts, or a jest.config file",
    find=javascript.find_jest,
    word=r"(?:.*/)?jest(?:\.js)?",
    arguments=javascript.build_jest_arguments,
    variables=(("CI", "true"), ("NO_COLOR", "1")),
    requirements=environment.require_javascript,
    read=javascript_reports.read_jest,
    is_test=javascript.is_test,
    names=javascript.list_names,
)
MOCHA = Framework(
    name="mocha",
    looked_for="mocha in a package.json's dependencies or scripts, or a .mocharc file",
    find=javascript.find_mocha,
    word=r"(?:.*/)?_?mocha(?:\.js)?",
    arguments=javascript.build_mocha_arguments,
    variables=(("NO_COLOR", "1"), ("FORCE_COLOR", "0")),
    requirements=environment.require_javascript,
    read=javascript_reports.read_mocha,
    is_test=javascript.is_mocha_test,
    names=javascript.list_names,
    hides_other_tests=True,
)
NODE = Framework(
    name="node",
    looked_for="a script with node --test in a package.json",
    find=javascript.find_node,
    arguments=javascript.build_node_arguments,
    variables=(("NO_COLOR", "1"),),
    requirements=environment.require_javascript,
    read=javascript_reports.read_node,
    is_test=javascript.is_node_test,
    names=javascript.list_names,
)
CARGO = Framework(
    name="cargo",
    looked_for=rust_errors.MANIFEST,
    find=rust.find_cargo,
    word=r"(?:.*/)?cargo",
    arguments=rust.build_cargo_arguments,
    variables=rust.VARIABLES,
    requirements=environment.require_rust,
    read=rust.read_cargo,
    is_test=rust_errors.is_test,
    names=rust.list_names,
    hides_other_tests=True,
    begins_build=rust.begins_build,
)
NEXTEST = Framework(
    name="nextest",
    looked_for=f"{rust_errors.MANIFEST}, and cargo-nextest installed",
    find=rust.find_nextest,
    word="nextest",
    arguments=rust.build_nextest_arguments,
    variables=rust.VARIABLES,
    requirements=environment.require_rust,
    read=rust.read_nextest,
    is_test=rust_errors.is_test,
    names=rust.list_names,
    hides_other_tests=True,
    replaces="cargo",
    begins_build=rust.begins_build,
)
GO = Framework(
    name="go",
    looked_for=go.MANIFEST,
    find=by_manifest(go.MANIFEST, command=("go", "test")),
    word=r"(?:.*/)?go",
    arguments=go.build_arguments,
    requirements=environment.require_go,
    read=go.read,
    is_test=go.is_test,
    names=go.list_names,
    hides_other_tests=True,
)
MAVEN = Framework(
    name="maven",
    looked_for="pom.xml",
    find=by_manifest("pom.xml", command=("mvn", "-B", "test"), wrapper=("mvnw", "Maven")),
    word=r"(?:.*/)?mvnw?",
    arguments=jvm.build_maven_arguments,
    requirements=environment.require_maven,
    read=jvm.MAVEN_BUILD.read,
    old_reports=jvm.MAVEN_BUILD.list_reports,
    is_test=jvm.is_test,
    names=jvm.list_names,
    hides_other_tests=True,
    begins_build=jvm.begins_maven_build,
)
GRADLE = Framework(
    name="gradle",
    looked_for="build.gradle(.kts) or settings.gradle(.kts)",
    find=by_manifest(
        *("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
        command=("gradle", "test"),
        wrapper=("gradlew", "Gradle"),
    ),
    word=r"(?:.*/)?gradlew?",
    arguments=jvm.build_gradle_arguments,
    requirements=environment.require_gradle,
    read=jvm.GRADLE_BUILD.read,
    old_reports=jvm.GRADLE_BUILD.list_reports,
    is_test=jvm.is_test,
    names=jvm.list_names,
    hides_other_tests=True,
    begins_build=jvm.begins_gradle_build,
)
DOTNET = Framework(
    name="dotnet",
    looked_for="*.sln or *.csproj",
    find=by_manifest(
        *("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"), command=("dotnet", "test", "{manifest}")
    ),
    word=r"(?:.*/)?dotnet",
    arguments=dotnet.build_arguments,
    variables=(("DOTNET_CLI_TELEMETRY_OPTOUT", "1"), ("DOTNET_NOLOGO", "1"), ("MSBUILDTERMINALLOGGER", "off")),
    requirements=environment.require_dotnet,
    read=dotnet.read,
    is_test=dotnet.is_test,
    names=dotnet.list_names,
    hides_other_tests=True,
    begins_build=dotnet.begins_build,
)
UNITTEST = Framework(
    name="unittest",
    looked_for="test*.py with `import unittest`",
    find=unittest.find,
    word="unittest",
    arguments=unittest.build_arguments,
    requirements=environment.require_python,
    read=unittest.read,
    is_test=unittest.is_test,
    is_fallback=True,
)
MAKE = Framework(
    name="make",
    looked_for="a Makefile with a target test",
    find=make.find,
    arguments=make.build_arguments,
    requirements=environment.require_make,
    read=make.read,
    is_test=make.is_test,
    is_fallback=True,
)
COMMAND = Framework(
    name="command",
    looked_for="test_command in .cdd/config.yaml",
    find=lambda _: None,
    arguments=make.build_arguments,
    requirements=environment.require_anything,
    read=make.read,
    is_test=make.is_test,
)
"""Any other ``test_command``: only its exit status is known."""

JAVASCRIPT = (VITEST, JEST, MOCHA, NODE)
FRAMEWORKS = (*JAVASCRIPT, NEXTEST, CARGO, GO, MAVEN, GRADLE, DOTNET, UNITTEST, MAKE)
"""In the order in which they are looked for, and in which a ``test_command`` is compared with them."""
