import base64
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.events import Event, Notice, SuiteStarted
from cdd_agent.evidence.clean_copy import CODES, CheckRequest, Findings, find_newly_passing
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.mutation import build_mutants
from cdd_agent.evidence.suspicious import find_suspicious_lines, judge_suspicious_lines
from cdd_agent.git.commits import commit_paths
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.honest import HONEST, IMPORTS
from tests.cdd_agent.evidence.requests import leave_confirmed, request, tell
from tests.cdd_agent.evidence.steps import OLD_TEST, Step, report_of
from tests.fakes.cases import soak_after

TARGET = "tests/test_product.py::test_it"
RED = {"tests/test_product.py": "from product import add\n\n\ndef test_it():\n    assert add(20, 15) == 35\n"}
ADD = "def add(a, b):\n    return a + b\n"


def asked(step: Step, about: CheckRequest, seen: list[Event] | None = None) -> Findings:
    return leave_confirmed(confirm(about, runs=step.runs(seen)), seen)


def codes(found: Findings) -> list[str]:
    return [reason.code for reason in found.reasons]


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_change_looks_honest_and_can_be_altered(name: str) -> None:
    code, test, stated = HONEST[name]
    asked_for = request(code, test=test, stated=stated)
    assert judge_suspicious_lines(find_suspicious_lines(asked_for)).reasons == ()
    assert build_mutants(asked_for.changes).chosen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a state machine", "an async function"])
def test_an_honest_change_is_confirmed(name: str, make: Make) -> None:
    code, test, stated = HONEST[name]
    step = make({"tests/test_product.py": IMPORTS + test}, {"product.py": code}, runs_pytest=True)
    assert asked(step, step.request(TARGET, stated=stated)).reasons == ()


@pytest.mark.slow
def test_all_honest_changes_are_confirmed_in_one_step(make: Make) -> None:
    red, green = {}, {}
    for number, (code, test, _) in enumerate(HONEST.values()):
        red[f"tests/test_{number}.py"] = IMPORTS.replace("product", f"product_{number}") + test
        green[f"product_{number}.py"] = code
    step = make(red, green, runs_pytest=True)
    run = step.suite.run()
    assert run.report is not None
    targets = find_newly_passing(run.report, baseline=report_of((OLD_TEST,)))
    assert len(targets) == len(HONEST) + 1, "one of them has two"
    stated = " ".join(stated for _, _, stated in HONEST.values())
    found = asked(step, step.request(*targets, stated=stated))
    assert found.reasons == ()
    assert [notice for notice in tell(found) if not notice.startswith("To review in the change: ")] == [
        "No test fails if these changed functions raise an exception: "
        "__hash__ (product_4.py:14), area (product_9.py:2)."
    ]


def test_the_work_tree_and_the_repository_stay_as_they_are_and_runs_are_told(make: Make) -> None:
    step = make(RED, {"product.py": ADD}, runs_pytest=True)
    root = step.repository.root

    def state() -> tuple[object, ...]:
        files = {p: p.read_bytes() for p in root.rglob("*") if p.is_file() and "objects" not in p.parts}
        return files, step.repository.git("worktree", "list"), step.repository.git("for-each-ref")

    before, seen = state(), list[Event]()
    assert asked(step, step.request(TARGET), seen) == Findings()
    assert state() == before
    *runs, last = seen
    first, *side_by_side = (run.purpose for run in runs if isinstance(run, SuiteStarted))
    assert first == "targets in a clean copy"
    assert sorted(side_by_side) == ["targets with product.py:2 altered", "targets with the expected values altered"]
    assert isinstance(last, Notice)
    wanted = "Checked in a clean copy: the tests pass there too, and fail with product.py:2 altered (3 runs, "
    assert last.text.startswith(wanted)


TAMPERING = {
    "forged report": "import os, sys\n\n\ndef add(a, b):\n"
    "    path = sys.argv[sys.argv.index('--tdd-agent-report') + 1]\n    open(path, 'w').write('...')\n",
    "patched reporter": "import sys\n\nsys.modules['pytest_tdd_agent.gate'].judge = None\n\n\n"
    "def add(a, b):\n    return 0\n",
    "patched TestReport": "import _pytest.reports\n\n\ndef passes(item, call):\n    ...\n\n\n"
    "_pytest.reports.TestReport.from_item_and_call = passes\n",
}


@soak_after(2, "name", TAMPERING)
def test_tampering_that_its_source_gives_away_is_refused_without_a_run(name: str, make: Make) -> None:
    step, seen = make(RED, {"product.py": TAMPERING[name]}), list[Event]()
    assert set(codes(asked(step, step.request(TARGET), seen))) == {"suspicious_code"}
    assert seen == []


@pytest.mark.slow
def test_a_sign_is_told_and_refuses_nothing(make: Make) -> None:
    code = "import sys\n\n\ndef add(a, b):\n    caller = sys._getframe(1)\n    return a + b\n"
    step, seen = make(RED, {"product.py": code}), list[Event]()
    assert tell(asked(step, step.request(TARGET), seen)) == (
        "To review in the change: product.py:5 looks at the code that calls it.",
    )
    assert any(isinstance(event, Notice) and event.text.startswith("Checked in a clean copy") for event in seen)


PATCHES = "exec(__import__('base64').b64decode({coded!r}))\n"
"""Code that no look at the source recognizes."""

PASSES_ALL = """
import sys
made = sys.modules['_pytest.reports'].TestReport
def always(cls, item, call):
    call.excinfo = None
    return original(item, call)
original = made.from_item_and_call
made.from_item_and_call = classmethod(always)
def add(a, b): return 0
"""

FORGES = """
import json, os, sys
def add(a, b):
    place = sys.argv[sys.argv.index('--tdd-agent-report') + 1]
    nonce = sys.argv[sys.argv.index('--tdd-agent-nonce') + 1]
    test = {'nodeid': 'tests/test_product.py::test_it', 'outcome': 'passed', 'file': 'tests/test_product.py', 'line': 4,
            'duration_s': 0.1, 'phases': {}, 'reruns': 0, 'failure': None}
    summary = dict.fromkeys(('failed', 'error', 'skipped', 'xfailed', 'xpassed', 'deselected', 'flaky'), 0)
    summary.update(passed=1, collected=1)
    report = {'schema': 1, 'complete': True, 'exit_status': 0, 'nonce': nonce, 'python': '3', 'pytest': '9',
              'rootdir': '', 'started_at': '', 'duration_s': 1, 'summary': summary, 'tests': [test],
              'collect_errors': [], 'fingerprints': {}, 'gate': None, 'old_failures': []}
    with open(place, 'w') as file:
        json.dump(report, file)
    os._exit(0)
"""


PATCHES_REPORTER = """
import sys
from dataclasses import replace
def add(a, b): return 0
for name, module in list(sys.modules.items()):
    if name.endswith('.codec') and hasattr(module, 'to_json'):
        def rosy(report, honest=module.to_json):
            cases = (replace(case, outcome='passed', failure=None) for case in report.tests)
            return honest(replace(report, tests=tuple(cases)))
        module.to_json = rosy
"""


@soak_after(1, "source", [PASSES_ALL, PATCHES_REPORTER, FORGES], ids=["TestReport", "reporter", "forged report"])
def test_a_hidden_cheat_is_refused_by_the_runs(source: str, make: Make) -> None:

    step = make(RED, {"product.py": PATCHES.format(coded=base64.b64encode(source.encode()).decode())}, runs_pytest=True)
    found = codes(asked(step, step.request(TARGET)))
    assert found in (["canary_failed"], ["report_differs"], ["not_reproduced"]), (
        "the last where the plugin withstands it"
    )


ONLY_WITH_PLUGIN = """
import sys
def add(a, b): return 35 if any('tdd_agent' in name for name in sys.modules) else 7
"""


def test_a_product_that_passes_only_where_cdd_watches_is_refused(make: Make) -> None:
    coded = base64.b64encode(ONLY_WITH_PLUGIN.encode()).decode()
    step = make(RED, {"product.py": PATCHES.format(coded=coded)}, runs_pytest=True)
    (reason,) = asked(step, step.request(TARGET)).reasons
    assert (reason.code, reason.nodeid) == ("report_differs", TARGET)
    assert "in a plain run of pytest tests/test_product.py::test_it does not pass: assertion" in explain(reason)


STATUS = """
import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 3
"""


@pytest.mark.slow
def test_an_exit_status_that_the_project_decides_says_nothing(make: Make) -> None:
    step = make({**RED, "conftest.py": STATUS}, {"product.py": ADD}, runs_pytest=True)
    assert asked(step, step.request(TARGET)) == Findings()


@pytest.mark.slow
def test_where_the_exit_status_says_nothing_the_results_still_count(make: Make) -> None:
    coded = base64.b64encode(ONLY_WITH_PLUGIN.encode()).decode()
    product = {"product.py": PATCHES.format(coded=coded)}
    step = make({**RED, "conftest.py": STATUS}, product, runs_pytest=True)
    assert codes(asked(step, step.request(TARGET))) == ["report_differs"]


@pytest.mark.slow
def test_an_exit_status_that_only_the_change_makes_is_refused(make: Make) -> None:
    code = f"import atexit, os\natexit.register(os._exit, 3)\n{ADD}"
    step = make(RED, {"product.py": code}, runs_pytest=True)
    (reason,) = asked(step, step.request(TARGET)).reasons
    assert reason.code == "report_differs"
    assert "a plain run of pytest ends with status 3 although no test fails in it" in explain(reason)


@pytest.mark.slow
def test_tests_that_change_their_names_in_junit_xml_are_told(make: Make) -> None:
    test = "from product import add\n\n\ndef test_it(record_xml_attribute):\n" + (
        "    record_xml_attribute('name', 'sum')\n    assert add(20, 15) == 35\n"
    )
    step = make({"tests/test_product.py": test}, {"product.py": ADD}, runs_pytest=True)
    found = asked(step, step.request(TARGET))
    assert found.reasons == ()
    assert tell(found)[0].startswith("Not verified: the tests change their names in JUnit XML")


def test_tests_are_those_of_red_in_the_copy(make: Make) -> None:
    weak = "def test_it():\n    assert True\n"
    step = make(RED, {"product.py": "def add(a, b):\n    return 0\n", "tests/test_product.py": weak})
    (reason,) = asked(step, step.request(TARGET)).reasons
    assert (reason.code, reason.nodeid) == ("not_reproduced", TARGET)
    assert "assertion, AssertionError" in explain(reason)


def test_help_from_an_ignored_module_is_not_reproduced(make: Make) -> None:
    code = "from secret_sum import add\n"
    step = make({**RED, ".gitignore": "secret_*.py\n"}, {"product.py": code, "secret_sum.py": ADD})
    assert codes(asked(step, step.request(TARGET))) == ["not_reproduced"]


@pytest.mark.slow
def test_help_from_another_ignored_file_is_told(make: Make) -> None:
    code = "def add(*numbers):\n    return int(open('VERSION').read().partition('.')[0])\n"
    step = make({**RED, ".gitignore": "VERSION\n"}, {"product.py": code, "VERSION": "35.0.1\n"})
    assert tell(asked(step, step.request(TARGET))) == (
        "The targets need files that git ignores, some of these: VERSION.",
    )


@pytest.mark.slow
def test_targets_whose_names_tell_a_place_or_the_time_are_confirmed(make: Make) -> None:
    test = (
        "import time\nfrom pathlib import Path\nimport pytest\nfrom product import add\n\n\n"
        "@pytest.mark.parametrize('place', [str(Path(__file__).parent), time.time_ns()])\n"
        "def test_it(place):\n    assert add(20, 15) == 35\n"
    )
    step = make({"tests/test_product.py": test}, {"product.py": ADD})
    target = f"{TARGET}[{step.suite.root}/tests]"
    assert asked(step, step.request(target, f"{TARGET}[1]")) == Findings()


@pytest.mark.slow
def test_a_product_and_tests_that_call_git_are_confirmed(make: Make) -> None:
    code = (
        "import subprocess\n\n\ndef branch():\n    asked = ['git', 'branch', '--show-current']\n"
        "    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout\n"
    )
    test = "from product import branch\n\n\ndef test_it():\n    assert branch() == 'main\\n'\n"
    step = make({"tests/test_product.py": test}, {"product.py": code})
    assert asked(step, step.request(TARGET)) == Findings()


@pytest.mark.slow
def test_a_copy_that_git_cannot_make_is_told(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "gitconfig"
    own.write_text('[filter "x"]\n\tsmudge = false\n\tclean = cat\n\trequired = true\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    step = make({**RED, ".gitattributes": "*.bin filter=x\n", "a.bin": "x"}, {"product.py": ADD})
    found = asked(step, step.request(TARGET))
    assert found.reasons == ()
    assert tell(found)[0].startswith("Not verified: cdd could not create a clean copy: A filter of your")


def test_tests_behind_a_link_get_no_company(make: Make, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    step = make({}, {"product.py": ADD})
    (away / "test_product.py").write_text(RED["tests/test_product.py"])
    (step.suite.root / "checks").symlink_to(away)
    target = "checks/test_product.py::test_it"
    found = asked(step, step.request(target))
    assert found.reasons == ()
    assert tell(found) == ("Git does not track the target tests, so they cannot run in a clean copy.",)
    commit_paths(step.repository, "RED", paths=["checks"])
    found = asked(
        step,
        replace(step, red=str(step.repository.read_head()), green=str(step.repository.read_head())).request(target),
    )
    assert found.reasons == ()
    assert tell(found)[0].startswith("A link leads from the folder of the target tests")
    assert [path.name for path in away.iterdir()] == ["test_product.py"]


def test_a_source_that_is_a_link_is_not_written_through(make: Make, tmp_path: Path) -> None:
    away = tmp_path / "away.py"
    away.write_text(ADD)
    step = make(RED, {"away.txt": ""})
    (step.suite.root / "product.py").symlink_to(away)
    green = TreeStore(step.repository).take("refs/cdd/green", message="GREEN").commit
    found = asked(step, replace(step, green=green).request(TARGET))
    assert [reason.code for reason in found.reasons] == ["unreadable_source"]
    assert away.read_text() == ADD


@pytest.mark.slow
def test_a_copy_in_which_other_tests_fail_too_says_nothing(make: Make) -> None:
    old = "from pathlib import Path\n\n\ndef test_old():\n    assert Path('key.secret').exists()\n"
    code = "from pathlib import Path\n\n\ndef add(a, b):\n    return a + b if Path('key.secret').exists() else None\n"
    step = make({**RED, "tests/test_old.py": old}, {"product.py": code, "key.secret": ""})
    found = asked(step, step.request(TARGET))
    assert found.reasons == ()
    assert "1 more fail there, tests/test_old.py::test_old first" in tell(found)[0]


def test_a_change_on_which_no_target_depends_is_refused(make: Make) -> None:
    red = {"tests/test_product.py": "import product\n\n\ndef test_it():\n    assert hasattr(product, 'add')\n"}
    step = make(red, {"product.py": ADD})
    (reason,) = asked(step, step.request(TARGET)).reasons
    assert reason.code == "unproven_change"
    assert "product.py:2: return None instead of a + b" in explain(reason)


@pytest.mark.slow
def test_a_target_that_only_runs_the_changed_code_is_told(make: Make) -> None:
    test = RED["tests/test_product.py"].replace(" == 35", " or True")
    step = make({"tests/test_product.py": test}, {"product.py": ADD.replace("b\n", "b + 1000\n")})
    seen = list[Event]()
    (notice,) = tell(asked(step, step.request(TARGET), seen))
    assert notice == (
        "The targets fail if the changed functions raise, but pass if their results are altered (product.py:2: return "
        "None instead of a + b + 1000). Check that they assert the purpose of the change."
    )
    assert [event.purpose for event in seen if isinstance(event, SuiteStarted)][-1] == (
        "targets with the changed functions of product.py altered"
    )
    assert not any(isinstance(event, Notice) for event in seen), "it is not said that all is well"


@pytest.mark.slow
def test_a_target_for_which_the_changed_code_must_not_raise_is_confirmed(make: Make) -> None:
    test = "import product\n\n\ndef test_it():\n    product.check([])\n"
    code = "def check(rows):\n    for row in rows:\n        print(row)\n"
    step = make({"tests/test_product.py": test}, {"product.py": code})
    assert asked(step, step.request(TARGET)) == Findings(), "nothing of it can be altered but that it ends"


@pytest.mark.slow
def test_a_product_in_a_process_of_its_own_is_altered_too(make: Make) -> None:
    test = (
        "import subprocess, sys\n\n\ndef test_it():\n"
        "    run = [sys.executable, '-c', 'import product; print(product.add(20, 15))']\n"
        "    assert subprocess.run(run, capture_output=True, text=True).stdout == '35\\n'\n"
    )
    seen = list[Event]()
    step = make({"tests/test_product.py": test}, {"product.py": ADD})
    assert asked(step, step.request(TARGET), seen) == Findings()
    assert len([event for event in seen if isinstance(event, SuiteStarted)]) == 3


def test_a_product_that_is_loaded_from_the_work_tree_is_not_proven(make: Make, tmp_path: Path) -> None:
    installed = f"import sys\n\nsys.path.insert(0, {str(tmp_path / 'project')!r})\n"
    step = make({**RED, "conftest.py": installed}, {"product.py": ADD})
    found = asked(step, step.request(TARGET))
    assert found.reasons == ()
    assert "or load them from elsewhere" in tell(found)[0]


@pytest.mark.slow
def test_a_change_without_python_is_not_altered(make: Make) -> None:
    red = {"tests/test_product.py": "def test_it():\n    assert open('data.txt').read() == 'forty-two'\n"}
    step = make(red, {"data.txt": "forty-two"})
    found = asked(step, step.request(TARGET))
    assert (found.reasons, len(tell(found))) == ((), 1)


@pytest.mark.slow
def test_a_project_that_takes_no_more_tests_is_told(make: Make) -> None:
    refuses = (
        "def pytest_collection_modifyitems(items):\n"
        "    items[:] = [item for item in items if item.name in ('test_it', 'test_old')]\n"
    )
    step = make({**RED, "conftest.py": refuses}, {"product.py": ADD}, runs_pytest=True)
    found = asked(step, step.request(TARGET))
    assert found.reasons == ()
    assert tell(found)[0].startswith("cdd cannot add tests with a known result to this project")


def test_a_project_inside_the_work_tree(make: Make) -> None:
    step = make(RED, {"product.py": ADD}, inside="testing/sums")
    inner = step.request(TARGET)
    assert [change.path for change in inner.changes] == ["product.py"]
    assert asked(step, inner) == Findings()


def test_the_time_box_ends_the_checks_with_a_notice(make: Make) -> None:
    step = make(RED, {"product.py": ADD})
    found = confirm(step.request(TARGET), runs=step.runs(limit_s=0.5))
    assert found.reasons == ()
    assert tell(found) == (
        "Not verified: the time for checks ended before targets in a clean copy (0.5 s, evidence_timeout_s in "
        ".cdd/config.yaml).",
    )


def test_without_targets_only_the_code_is_looked_at(make: Make) -> None:
    step = make({}, {"old.py": "import pytest\n\npytest.fail = print\n"})
    assert codes(asked(step, step.request())) == ["suspicious_code"]
    assert asked(step, replace(step.request(), changes=())) == Findings()


def test_the_reference_explains_every_code() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "evidence.md").read_text()
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning} |" in page
