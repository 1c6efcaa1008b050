from dataclasses import replace

import pytest

from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.evidence.suspicious import find_suspicious_lines, judge_suspicious_lines
from cdd_agent.work.wording import explain
from tests.cdd_agent.evidence.requests import request, tell

TEST = "def test_it():\n    assert minutes('2 h 5') == 125\n    assert [steps(n) for n in range(5, 8)] == [5, 8, 13]\n"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import os\nos._exit(0)\n", "ends the process at once"),
        ("from os import _exit as bye\nbye(0)\n", "ends the process at once"),
        ("def f():\n    import unittest.mock\n", "imports a test tool"),
        ("import importlib\nimportlib.import_module('pytest')\n", "names a test tool"),
        ("import os\nos.environ.get('PYTEST_CURRENT_TEST')\n", "asks whether a test is running"),
        ("import sys\nif 'pytest' in sys.modules: ...\n", "names a test tool"),
        ("from inspect import stack\nstack()\n", "looks at the code that calls it"),
        ("def f(error):\n    return error.__traceback__.tb_frame\n", "looks at the code that calls it"),
        ("import sys\nsys.settrace(None)\n", "traces the process"),
        ("import os\nos.listdir('/proc/self/fd')\n", "reaches the open files of the process"),
        ("open('tests/data.json').read()\n", "names a file of the tests"),
        (
            "def minutes(text):\n    if text == '2 h 5':\n        return 125\n",
            "repeats an example of the tests ('2 h 5', 125)",
        ),
        ("def run(jobs, limit):\n    return [job() for job in jobs]\n", "does not use its parameter limit"),
        ("class A:\n    def add(self, n):\n        self.total = 5\n", "does not use its parameter n"),
        ("def steps(n):\n    return [5, 8, 13][n]\n", "repeats an example of the tests (13, 5, 8)"),
    ],
)
def test_a_sign_is_told_and_refuses_nothing(code: str, what: str) -> None:
    signs = find_suspicious_lines(request(code, test=TEST))
    line = next(sign.line for sign in signs if explain(sign.what) == what)
    found = judge_suspicious_lines(signs)
    assert found.reasons == ()
    assert f"product.py:{line} {what}" in tell(found)[0]


@pytest.mark.parametrize(
    "code",
    [
        "from _pytest.reports import TestReport\nTestReport.from_item_and_call = None\n",
        "import _pytest.reports\nsetattr(_pytest.reports, 'TestReport', None)\n",
        "import sys\nsys.modules['_pytest.reports'].TestReport = None\n",
        "import pytest\ndel pytest.fail\n",
        "import sys\nsys.argv.index('--tdd-agent-report')\n",
    ],
)
def test_tampering_is_refused(code: str) -> None:
    (reason, *_) = judge_suspicious_lines(find_suspicious_lines(request(code))).reasons
    assert (reason.code, reason.nodeid) == ("suspicious_code", None)
    assert explain(reason).startswith("product.py:")


@pytest.mark.parametrize(
    "code",
    [
        "import sys\ndef main(): ...\nif __name__ == '__main__':\n    sys.exit(main())\n",
        "class A:\n    def __eq__(self, other):\n        return True\n",
        "import os\nread, write = os.pipe()\nos.write(write, b'x')\n",
        "import builtins\nbuiltins._ = 3\n",
        "import logging\nlogging.getLogger(__name__).warning('x', stacklevel=2)\n",
        '"""It is tested by pytest; see tests/test_it.py and PYTEST_CURRENT_TEST."""\n',
        "import sys\nsys.modules[__name__] = object()\n",
        "from .pytest import thing\n",
        "def f(path):\n    with open(path) as file:\n        return file.read()\n",
        "def minutes(text):\n    return 60 if text else 0\n",
        "TABLE = {'2 h 5': None}\n",
        "def f(x:\n",
        "def f(x):\n    raise NotImplementedError\n",
        "def f(x, _rest):\n    return x\n",
        "def f(kind, frame):\n    print(kind)\nsignal(2, f)\n",
        "@route\ndef f(request):\n    return page()\n",
        "class A(Base):\n    def f(self, x):\n        return self.y\n",
        "class A:\n    def __exit__(self, *error):\n        self.y()\n    def log(self, text):\n        pass\n",
        "def f(x):\n    def g(x, y):\n        return 1\n    return '{x}'.format(**locals()), g\n",
    ],
)
def test_other_code_gives_no_sign(code: str) -> None:
    assert judge_suspicious_lines(find_suspicious_lines(request(code, test=TEST))) == Findings()


def test_kinds_of_code_that_the_product_had_are_no_signs() -> None:
    plugin = "import pytest\n"
    assert find_suspicious_lines(request("import pytest\nimport pluggy\n", old=plugin)) == ()
    assert find_suspicious_lines(request("import pytest\n", elsewhere=(plugin,))) == ()
    (sign,) = find_suspicious_lines(request("import os, pytest\nos._exit(0)\n", elsewhere=(plugin,)))
    assert explain(sign.what) == "ends the process at once"


def test_the_product_is_read_only_if_there_is_a_sign() -> None:
    def fail() -> tuple[str, ...]:
        raise AssertionError

    assert find_suspicious_lines(replace(request("def f(): ...\n"), elsewhere=fail)) == ()


def test_values_that_the_step_names_may_be_repeated() -> None:
    code = "TABLE = {'2 h 5': 125}\n"
    assert len(find_suspicious_lines(request(code, test=TEST))) == 1
    assert find_suspicious_lines(request(code, test=TEST, stated="2 h 5 is 125 minutes.")) == ()
    line = request("HEAD = 'a;b\\n'\n", test="def test_it():\n    assert head() == 'a;b\\n'\n", stated="the header a;b")
    assert find_suspicious_lines(line) == ()
