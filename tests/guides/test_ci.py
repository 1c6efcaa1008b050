"""The scripts of docs/guides/ci.md, taken from the page and run in a small repository."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "docs/guides/ci.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
WORKFLOW, PRE_COMMIT = (yaml.safe_load(text) for language, text in BLOCKS if language == "yaml")
(GATE_SH,) = (text for language, text in BLOCKS if language == "sh")
(HOOKS,) = (json.loads(text)["hooks"] for language, text in BLOCKS if language == "json")

PRODUCT = "def add(a, b):\n    return a + b\n"
TESTS = (
    "from my_package.calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
    "def test_old_trouble():\n    assert add('1', 2) == 3\n"
)
FILES = {
    "my_package/__init__.py": "",
    "my_package/calc.py": PRODUCT,
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\npythonpath = ['.']\n",
    "tests/test_calc.py": TESTS,
}
SOUND = TESTS.replace("'1'", "1")
SUB = "\n\ndef sub(a, b):\n    return a - b\n"
TEST_SUB = "\n\ndef test_sub():\n    from my_package.calc import sub\n\n    assert sub(3, 1) == 2\n"
BROKEN = PRODUCT.replace("a + b", "a * b")
GIT = ("git", "-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "init.defaultBranch=main")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository whose branch ``main`` holds a product and its tests."""

    folder: Path
    variables: Mapping[str, str]

    def put(self, files: Mapping[str, str]) -> None:
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def run(self, *command: str, said: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=self.folder, env=self.variables, input=said, capture_output=True, text=True, check=False
        )

    def commit(self) -> None:
        for command in (("add", "--all"), ("commit", "--quiet", "--message", "x")):
            assert self.run(*GIT, *command).returncode == 0

    def gates(self) -> tuple[int, str]:
        """Run the job on what is committed: its status, and what it printed of the gates."""
        step = WORKFLOW["jobs"]["gates"]["steps"][-1]
        script = self.folder.parent / "step.sh"
        script.write_text(step["run"], encoding="utf-8")
        variables = {**step["env"], "BASE": "main", "PYTEST_ADDOPTS": "-p no:cacheprovider"}
        set_ = [f"{name}={value}" for name, value in variables.items()]
        ended = self.run("env", *set_, "bash", "--noprofile", "--norc", "-e", str(script))
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    removed = ("PYTEST_", "GIT_", "CLAUDE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    variables = {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_PLUGINS": "pytest_tdd_agent",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(tmp_path),
    }
    made = Repository(folder=tmp_path / "repository", variables=variables)
    made.put(FILES)
    assert made.run(*GIT, "init", "--quiet").returncode == 0
    made.commit()
    assert made.run(*GIT, "checkout", "--quiet", "-b", "change").returncode == 0
    return made


PULL_REQUESTS = {
    "adds a feature": ({"my_package/calc.py": PRODUCT + SUB, "tests/test_calc.py": TESTS + TEST_SUB}, ""),
    "adds a module": (
        {
            "my_package/out.py": "def out():\n    return 1\n",
            "tests/test_out.py": "from my_package.out import out\n\n\ndef test_out():\n    assert out() == 1\n",
        },
        "",
    ),
    "imports a new name in an old file": (
        {
            "my_package/calc.py": PRODUCT + SUB,
            "tests/test_calc.py": f"from my_package.calc import sub\n{TESTS}{TEST_SUB}",
        },
        "",
    ),
    "changes no test": ({"my_package/calc.py": PRODUCT + SUB}, ""),
    "breaks a test": ({"my_package/calc.py": BROKEN}, "target_failed: tests/test_calc.py::test_add"),
    "adds no code": ({"tests/test_calc.py": TESTS + TEST_SUB}, "target_failed: tests/test_calc.py::test_sub"),
    "adds no module": (
        {"tests/test_out.py": "from my_package.out import out\n\n\ndef test_out():\n    assert out() == 1\n"},
        "target_failed: tests/test_out.py",
    ),
    "adds tests that pass already": (
        {"tests/test_calc.py": TESTS + "\n\ndef test_again():\n    assert add(2, 2) == 4\n"},
        "already_green: tests/test_calc.py::test_again",
    ),
    "needs what is not installed": (
        {"tests/test_out.py": "import no_such_library\n\n\ndef test_out(): ...\n"},
        "name_not_expected: tests/test_out.py",
    ),
    "turns an old test round": (
        {
            "my_package/calc.py": BROKEN + SUB,
            "tests/test_calc.py": TESTS.replace("add(1, 2) == 3", "add(1, 2) == 2") + TEST_SUB,
        },
        "broke_others: tests/test_calc.py::test_add",
    ),
    "makes an old test say less": (
        {
            "my_package/calc.py": BROKEN + SUB,
            "tests/test_calc.py": TESTS.replace("add(1, 2) == 3", "add(1, 2)") + TEST_SUB,
        },
        "target_failed: tests/test_calc.py::test_add",
    ),
    "removes an old test": (
        {"my_package/calc.py": BROKEN + SUB, "tests/test_calc.py": TEST_SUB},
        "test_removed: tests/test_calc.py::test_add",
    ),
    "configures an old test away": (
        {
            "my_package/calc.py": BROKEN + SUB,
            "tests/test_calc.py": TESTS + TEST_SUB,
            "pyproject.toml": FILES["pyproject.toml"] + "addopts = '--deselect tests/test_calc.py::test_add'\n",
        },
        "protected_changed: pyproject.toml[tool.pytest]",
    ),
    "ends the process": (
        {
            "my_package/calc.py": PRODUCT + "\n\ndef sub(a, b):\n    import os\n\n    os._exit(0)\n",
            "tests/test_calc.py": TESTS + TEST_SUB,
        },
        "run_incomplete: The run ended early",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PULL_REQUESTS)
def test_a_pull_request_is_let_through_or_refused(repository: Repository, name: str) -> None:
    files, told = PULL_REQUESTS[name]
    repository.put(files)
    repository.commit()
    status, output = repository.gates()
    assert (status == 0) == (told == ""), output
    assert told in output


@pytest.mark.slow
def test_the_check_before_a_commit_sees_that_a_test_ends_its_process(repository: Repository) -> None:
    (hook,) = PRE_COMMIT["repos"][0]["hooks"]
    repository.put({"tests/test_calc.py": SOUND})
    assert repository.run(*shlex.split(hook["entry"])).returncode == 0
    repository.put({"my_package/calc.py": "import os\n\n\ndef add(a, b):\n    os._exit(0)\n"})
    assert repository.run(*shlex.split(hook["entry"])).returncode != 0


@pytest.mark.slow
def test_the_hooks_of_an_agent_hand_the_gate_s_word_to_the_model(repository: Repository) -> None:
    (started,), (stopped,) = (HOOKS[event][0]["hooks"] for event in ("SessionStart", "Stop"))
    local = Repository(
        folder=repository.folder, variables={**repository.variables, "CLAUDE_PROJECT_DIR": str(repository.folder)}
    )
    local.put({".claude/gate.sh": GATE_SH, "tests/test_calc.py": SOUND + TEST_SUB})
    assert local.run("sh", "-c", started["command"]).stdout == ""

    local.put({"my_package/calc.py": BROKEN})
    closed = local.run("sh", "-c", stopped["command"], said='{"stop_hook_active": false}')
    assert (closed.returncode, closed.stdout) == (2, "")
    assert "GREEN gate: closed" in closed.stderr
    assert "tests/test_calc.py::test_sub fails" in closed.stderr
    assert local.run("sh", "-c", stopped["command"], said='{"stop_hook_active": true}').returncode == 0

    local.put({"my_package/calc.py": "import os\n\n\ndef add(a, b):\n    os._exit(0)\n"})
    died = local.run("sh", "-c", stopped["command"], said="{}")
    assert died.returncode == 2
    assert "the test process ended with status 0 while tests/test_calc.py::test_add ran" in died.stderr

    local.put({"my_package/calc.py": PRODUCT + SUB})
    assert local.run("sh", "-c", stopped["command"], said="{}").returncode == 0
