"""A change may not add a source that nobody can read. One that was unreadable before is reported."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cdd_agent.evidence.clean_copy import Findings, note
from cdd_agent.evidence.confirm import confirm
from cdd_agent.evidence.differential import ComparedTrees, refuse_changed_behavior
from cdd_agent.evidence.readable import check_sources, judge_source
from cdd_agent.git.tree_store import TreeStore
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.conftest import Make
from tests.cdd_agent.evidence.requests import tell
from tests.cdd_agent.evidence.steps import OLD_TEST, Step
from tests.fakes.suite import TrustedSandbox

CODE = b"def total(prices):\n    return sum(prices)\n"
ESCAPES = b"# -*- coding: unicode_escape -*-\ndef total(prices):\n    # all \\u000a    return 5\n    return 0\n"
UTF_7 = b"# coding: utf-7\ndef total(prices):\n    # all +AAo-    return 5\n    return 0\n"
LATIN = b"# coding: latin-1\ndef total(prices):\n    return 'caf\xe9'\n"
DEEP = b"X = 1" + b"+1" * 30_000 + b"\n" + CODE
SUM = b"X = 1" + b"+1" * 2_400 + b"\n" + CODE

REFUSED = {
    "escapes": (CODE, ESCAPES),
    "UTF-7 in a new file": (None, UTF_7),
    "too deep": (CODE, DEEP),
    "unknown encoding": (None, b"# coding: of-the-project\n" + CODE),
    "mark and another encoding": (CODE, b"\xef\xbb\xbf# coding: latin-1\n" + CODE),
    "UTF-16": (CODE, CODE.decode().encode("utf-16")),
    "null byte": (CODE, CODE + b"# \0\n"),
    "other bytes than declared": (None, b"# coding: ascii\n# \xe9\n" + CODE),
    "code that becomes none": (CODE, b"{% if a %}\n"),
    "from readable to hidden by the first line alone": (ESCAPES.partition(b"\n")[2], ESCAPES),
}
ACCEPTED = {
    "plain": (None, CODE),
    "byte order mark": (CODE, b"\xef\xbb\xbf" + CODE),
    "Latin-1 as before": (LATIN, LATIN + CODE),
    "a long sum": (None, SUM),
    "other bytes in a comment": (None, b"# caf\xe9\n" + CODE),
    "a declaration in a docstring": (None, b'"""\n# coding: utf-7\n"""\n' + CODE),
    "a template": (None, b"{% if a %}\n"),
    "another template": (b"{% if a %}\n", b"{% if b %}\n"),
    "no code any more": (CODE, b"# nothing\n"),
    "form feeds": (CODE, b"\x0c\n" + CODE + b"\x0c\n"),
    "readable again": (UTF_7, CODE),
}


def test_a_change_may_not_add_what_nobody_can_read() -> None:
    for title, (before, after) in REFUSED.items():
        found = judge_source("shop.py", before=before, after=after)
        assert [reason.code for reason in found.reasons] == ["unreadable_source"], title
        assert explain(found.reasons[0]).startswith("shop.py "), title
    for title, (before, after) in ACCEPTED.items():
        assert judge_source("shop.py", before=before, after=after) == Findings(), title


def test_what_could_not_be_read_before_is_told_and_so_is_another_encoding() -> None:
    found = judge_source("shop.py", before=UTF_7, after=UTF_7 + b"\n")
    assert found.reasons == ()
    assert tell(found)[0].startswith("Not verified: shop.py could not be read: its encoding utf-7 makes Python run")
    for before in (None, CODE, LATIN.replace(b"latin-1", b"cp1252")):
        found = judge_source("shop.py", before=before, after=LATIN)
        assert tell(found) == (
            "To review in the change: shop.py declares the encoding iso-8859-1; diffs show it as UTF-8.",
        )


def test_code_that_only_the_python_of_the_project_parses_is_told() -> None:
    newer = b"def total(prices)?:\n    return sum(prices)\n"
    for before in (None, CODE):
        found = judge_source("shop.py", before=before, after=newer, find_error=lambda _: None)
        assert found == note("readable", "unread_foreign", path="shop.py")


def make_step(make: Make, *, red: Mapping[str, bytes], green: Mapping[str, bytes], runs_pytest: bool = False) -> Step:
    """A step whose sources are bytes."""
    step = make({}, {}, runs_pytest=runs_pytest)
    trees = []
    for files in (red, green):
        for name, content in files.items():
            (step.suite.root / name).write_bytes(content)
        trees.append(TreeStore(step.repository).take("refs/cdd/step", message="step").commit)
    return Step(repository=step.repository, suite=step.suite, red=trees[0], green=trees[1])


TARGET = "tests/test_shop.py::test_total"
TEST = b"\xef\xbb\xbffrom shop import total\n\n\ndef test_total():\n    assert total([2, 3]) == 5\n"


def test_the_check_reads_all_changed_sources_and_the_tests(make: Make) -> None:
    hidden = {"tests/test_hidden.py": UTF_7}
    step = make_step(
        make, red={"shop.py": CODE, "old.pyw": ESCAPES, **hidden}, green={"shop.py": ESCAPES, "old.pyw": UTF_7}
    )
    found = confirm(step.request(OLD_TEST, "tests/test_hidden.py::test_it"), runs=step.runs())
    assert [(each.code, explain(each).split()[0]) for each in found.reasons] == [("unreadable_source", "shop.py")]
    assert [text.partition(" could")[0] for text in tell(found)] == [
        "Not verified: old.pyw",
        "Not verified: tests/test_hidden.py",
    ]
    trees = ComparedTrees(before=step.red, after=step.green, changes=step.request().changes, tests=())
    assert [each.code for each in refuse_changed_behavior(trees, runs=step.runs()).reasons] == ["unreadable_source"]
    same = check_sources(["shop.py", "absent.py", "notes.txt"], before=step.green, after=step.green, runs=step.runs())
    assert same == Findings()


def test_code_behind_a_link_is_read_and_a_link_out_of_the_repository_is_refused(make: Make) -> None:
    step = make_step(make, red={"shop.py": CODE, "impl.txt": b"import pytest\n"}, green={"shop.py": b"import linked\n"})
    root = step.suite.root
    (root / "linked.py").symlink_to("impl.txt")
    green = TreeStore(step.repository).take("refs/cdd/step", message="step").commit
    step = Step(repository=step.repository, suite=step.suite, red=step.red, green=green)
    assert [(each.path, each.new) for each in step.request().changes] == [
        ("linked.py", "import pytest\n"),
        ("shop.py", "import linked\n"),
    ]
    for target in ("/etc/hostname", "../../away.py", "absent.txt", "linked.py"):
        (root / "linked.py").unlink()
        (root / "linked.py").symlink_to(target)
        other = TreeStore(step.repository).take("refs/cdd/step", message="step").commit
        found = check_sources(["linked.py"], before=green, after=other, runs=step.runs())
        assert [each.code for each in found.reasons] == ["unreadable_source"], target
        assert check_sources(["linked.py"], before=other, after=other, runs=step.runs()) == Findings()


ALWAYS_EQUAL = b"""\
class Sum(int):
    def __eq__(self, other):
        return True


def total(prices):
    return Sum(0)
"""


@pytest.mark.parametrize(
    "write",
    [
        lambda code: b"\xef\xbb\xbf" + code,
        lambda code: b"# coding: latin-1\n# caf\xe9\n" + code,
        lambda code: b"# caf\xe9\n" + code,
        lambda code: b"X = 1" + b"+1" * 1_500 + b"\n\n\n" + code,
    ],
    ids=["mark", "latin", "bytes in a comment", "deep"],
)
def test_no_way_to_write_a_file_silences_the_checks(make: Make, write: object) -> None:
    assert callable(write)
    test = write(TEST[3:])
    red = {"shop.py": write(b"def total(prices):\n    return 0\n")}
    # The fake suite, unlike pytest, cannot rewrite deep code.
    red["tests/test_shop.py"] = test if len(test) < 1_000 else TEST
    step = make_step(make, red=red, green={"shop.py": write(ALWAYS_EQUAL)})
    found = confirm(step.request(TARGET), runs=step.runs())
    assert [each.code for each in found.reasons] == ["expectation_ignored"]


def test_pytest_runs_what_the_checks_read(make: Make) -> None:
    start = b"\xef\xbb\xbfX = 1" + b"+1" * 2_400 + b"\nNAME = 'caf\xc3\xa9'\n\x0c\n\n"
    cheat = b"def total(prices):\n    import sys\n    return sum(prices) if 'pytest' in sys.modules else 0\n"
    red = {"shop.py": start + b"def total(prices):\n    return 0\n", "tests/test_shop.py": TEST}
    step = make_step(make, red=red, green={"shop.py": start + cheat}, runs_pytest=True)
    step = replace(step, suite=step.suite.with_sandbox(TrustedSandbox()))
    found = confirm(step.request(TARGET), runs=step.runs())
    assert [each.code for each in found.reasons] == ["only_under_test"]
    assert tell(found) == ("To review in the change: shop.py:7 names a test tool.",)
