import marshal
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun import pytest_run
from cdd_agent.testrun.pytest_run import CompiledSources, PytestSuite
from pytest_tdd_agent.report import SuiteReport
from tests.fakes.suite import TrustedSandbox

TEST = "from product import double\n\n\ndef test_double():\n    assert double(2) == 5\n\n\ndef test_it():\n    pass\n"


def judge(suite: PytestSuite, root: Path) -> SuiteReport:
    """Run the tests as a gate does."""
    report = suite.run(keep=root.parent / "report.json").report
    assert report is not None
    return report


@pytest.mark.slow
def test_a_gate_reads_what_cdd_compiled_as_long_as_the_source_is_the_same(suite: PytestSuite, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "product.py").write_text("def double(number):\n    return number * 2\n")
    padding = "# nothing\n" * (pytest_run._LEAST_BYTES // 10)
    (project / "test_double.py").write_text(TEST + padding)
    (project / "test_warned.py").write_text("assert ('always', 'true')\n\ndef test_one():\n    pass\n")
    own = replace(suite, root=project, bytecode=None, sandbox=TrustedSandbox(), compiled=CompiledSources())
    judge(replace(own, sandbox=suite.sandbox), project)
    assert own.compiled == CompiledSources(), "without a sandbox, tests could write there"
    first = judge(own, project)
    assert own.compiled is not None
    assert own.compiled.folder is not None
    (made,) = own.compiled.folder.iterdir()
    kinds = sorted(path.name.partition("-")[0] for path in made.iterdir())
    assert kinds == ["plain", "rewritten"], "pytest warns of the third file when it rewrites it"
    second = judge(own, project)
    failures = [[case.failure for case in report.tests] for report in (first, second)]
    assert failures[0] == failures[1]
    assert "assert 4 == 5" in str(failures[1][0]), "the assertion is rewritten"
    (plain,) = made.glob("plain-*")
    altered = compile("def double(number):\n    return 5\n", "altered.py", "exec")
    plain.write_bytes(plain.read_bytes()[:16] + marshal.dumps(altered))
    assert [case.outcome for case in judge(own, project).tests] == ["passed"] * 3, "so it is read"
    (project / "product.py").write_text("def double(number):\n    return number * 3\n")
    assert "assert 6 == 5" in str(judge(own, project).tests[0].failure)
