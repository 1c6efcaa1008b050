"""``cdd green`` as a user types it, and killed as often as a user may be unlucky."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.fakes.program import command, environment
from tests.stories.conftest import git

CART = "class Cart:\n    def __init__(self):\n        self.prices = []\n\n    def total(self):\n        return 0\n"
TEST = """\
from cart import Cart


def test_total():
    cart = Cart()
    cart.prices += [1, 2]
    assert cart.total() == 3


def test_count():
    assert Cart().count() == 0
"""
RECORDING = r"""
- when: "^Work: green green-test-cart-\\w+ attempt 1$"
  content:
    - {type: tool_use, name: Read, input: {file_path: cart.py}}
    - {type: tool_use, name: Edit, input: {file_path: cart.py, old_string: "return 0", new_string: "return 3"}}
    - {type: tool_use, name: CompleteImplementation, input: {implementation_files: [cart.py], summary: "All pass."}}
- when: "^Work: green green-test-cart-\\w+ attempt 2$"
  content:
    - {type: tool_use, name: Read, input: {file_path: cart.py}}
    - type: tool_use
      name: Edit
      input:
        file_path: cart.py
        old_string: "return 3"
        new_string: "return sum(self.prices)\n\n    def count(self):\n        return len(self.prices)"
    - {type: tool_use, name: CompleteImplementation, input: {implementation_files: [cart.py], summary: "All pass."}}
"""
GIVES_UP = r"""
- when: "^Work: green green-test-cart-\\w+ attempt 1$"
  content:
    - {type: tool_use, name: ReportBlocked, input: {why: test_is_wrong, reason: "A cart counts nothing."}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    for name, content in {
        "cart.py": CART,
        "pytest.ini": "[pytest]\npythonpath = .\n",
        ".gitignore": "__pycache__/\n",
        "tests/test_cart.py": TEST,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "recording.yaml").write_text(RECORDING)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.org")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def cdd(*arguments: str, cwd: Path, typed: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(cwd.parent / "home"),
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


GREEN = ("--replay", "../recording.yaml", "--yes", "green", "tests/test_cart.py")


@pytest.mark.slow
def test_a_person_reads_what_came_of_it_and_a_program_the_artifact(shop: Path) -> None:
    done = cdd(*GREEN, "--out", "../artifact.json", cwd=shop)
    assert done.returncode == 0, done.stderr
    assert "the tests pass, after 2 iterations" in done.stdout
    assert "edited   cart.py" in done.stdout
    assert git(shop, "log", "-1", "--format=%s") == "feat: make 2 tests of tests/test_cart.py pass"
    written = json.loads((shop.parent / "artifact.json").read_text())
    assert (written["all_tests_pass"], written["passing_tests"], written["iterations"]) == (True, 2, 2)


@pytest.mark.slow
def test_a_test_that_passes_already_is_a_slip(shop: Path) -> None:
    (shop / "cart.py").write_text(CART.replace("return 0", "return 3") + "\n    def count(self):\n        return 0\n")
    git(shop, "commit", "-qam", "by hand")
    again = cdd(*GREEN, cwd=shop)
    assert (again.returncode, "already passes" in again.stderr) == (2, True)


def test_with_json_the_last_line_is_the_artifact_and_work_that_fails_ends_with_1(shop: Path) -> None:
    (shop.parent / "recording.yaml").write_text(GIVES_UP)
    done = cdd(*GREEN, "--json", cwd=shop)
    assert done.returncode == 1, done.stderr
    artifact = json.loads(done.stdout.splitlines()[-1])
    assert artifact["event"] == "GreenArtifact"
    assert (artifact["artifact"]["outcome"], artifact["artifact"]["iterations"]) == ("blocked", 1)
    assert "error: the agent gave up in GREEN: test_is_wrong: A cart counts nothing." in done.stderr
    assert git(shop, "status", "--porcelain") == ""


@pytest.mark.slow
def test_the_prompt_has_it_too(shop: Path) -> None:
    typed = "/green tests/test_cart.py\n/green tests/test_none.py\n"
    done = cdd("--replay", "../recording.yaml", cwd=shop, typed=typed)
    assert "the tests pass, after 2 iterations" in done.stdout
    assert "There is no tests/test_none.py" in done.stdout + done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("event", "number"),
    [
        pytest.param("GateJudged", 1, marks=pytest.mark.slow),
        pytest.param("SuiteStarted", 3, marks=pytest.mark.slow),
        pytest.param("RunStarted", 1, marks=pytest.mark.slow),
        pytest.param("AttemptStarted", 1, marks=pytest.mark.slow),
        pytest.param("ToolReturned", 2, marks=pytest.mark.slow),
        pytest.param("AttemptStarted", 2, marks=pytest.mark.slow),
        pytest.param("ToolReturned", 5, marks=pytest.mark.slow),
        pytest.param("GateJudged", 2, marks=pytest.mark.slow),
        pytest.param("Committed", 1, marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_moment_the_same_command_comes_to_the_same(
    shop: Path, *, home: Path, event: str, number: int
) -> None:
    with subprocess.Popen(
        command(*GREEN, "--json"), cwd=shop, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        left = number
        for line in process.stdout:
            left -= f'"{event}"'.encode() in line
            if not left:
                break
        process.kill()
        process.communicate()
    done = cdd(*GREEN, "--json", cwd=shop)
    assert done.returncode == 0, done.stderr
    assert git(shop, "log", "--reverse", "--format=%s").splitlines() == [
        "first",
        "feat: make 2 tests of tests/test_cart.py pass",
    ]
    assert "return sum(self.prices)" in (shop / "cart.py").read_text()
    assert git(shop, "status", "--porcelain") == ""
    assert len(git(shop, "notes", "--ref=tdd-handoffs", "show", "HEAD").splitlines()) == 1
    artifact = json.loads(done.stdout.splitlines()[-1])["artifact"]
    assert (artifact["all_tests_pass"], artifact["iterations"]) == (True, 2)
