""""""

from dataclasses import replace

import pytest

from cdd_agent.evidence.clean_copy import Findings
from cdd_agent.evidence.signs import find_suspicions, find_suspicious_code
from tests.cdd_agent.evidence.requests import request


def kinds(code: str) -> set[str]:
    return {each.kind for each in find_suspicions(code)}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import os\ndef f():\n    os._exit(0)\n", "exit"),
        ("from os import _exit as bye\nbye(0)\n", "exit"),
        ("import os\ngetattr(os, '_exit')(0)\n", "exit"),
        ("import pytest\n", "test_tool"),
        ("from _pytest.reports import TestReport\n", "test_tool"),
        ("def f():\n    import unittest.mock\n", "test_tool"),
        ("import importlib\nimportlib.import_module('pytest')\n", "test_tool"),
        ("import os\nif 'PYTEST_CURRENT_TEST' in os.environ: ...\n", "under_test"),
        ("import os\nos.environ.get('PYTEST_CURRENT_TEST')\n", "under_test"),
        ("import sys\nif 'pytest' in sys.modules: ...\n", "under_test"),
        ("import sys\nsys.modules['_pytest.reports'].TestReport = None\n", "under_test"),
        ("import sys\nsys._getframe(1).f_locals\n", "stack"),
        ("from inspect import stack\nstack()\n", "stack"),
        ("import inspect\ninspect.currentframe().f_back\n", "stack"),
        ("import traceback\ntraceback.extract_stack()\n", "stack"),
        ("import gc\ngc.get_objects()\n", "stack"),
        ("class A:\n    def __eq__(self, other):\n        return True\n", "equality"),
        (
            "class A:\n    def __eq__(self, other):\n        if other:\n            return True\n        return True\n",
            "equality",
        ),
        ("class A:\n    def __eq__(self, other):\n        return self.value > 3\n", "equality"),
        ("class A:\n    __eq__ = lambda self, other: True\n", "equality"),
        ("class A:\n    def __ne__(self, other):\n        return False\n", "equality"),
        ("class A(list):\n    def __contains__(self, item):\n        return True\n", "equality"),
        (
            "class A:\n    def __lt__(self, other):\n        return True\n"
            "    def __gt__(self, other):\n        return True\n",
            "equality",
        ),
        ("import pytest\ndef f():\n    pytest.skip('later')\n", "outcome"),
        ("from unittest import SkipTest\nraise SkipTest('later')\n", "outcome"),
        ("import builtins\nbuiltins.AssertionError = ValueError\n", "patch"),
        ("import builtins\nsetattr(builtins, 'len', None)\n", "patch"),
        ("from _pytest.reports import TestReport\nTestReport.from_item_and_call = None\n", "patch"),
        ("import os\nos.write(7, b'{}')\n", "descriptor"),
        ("import os\nfor fd in range(3, 50):\n    os.write(fd, b'{}')\n", "descriptor"),
        ("import os\nos.listdir('/proc/self/fd')\n", "descriptor"),
        ("open('tests/data.json').read()\n", "test_files"),
        ("from pathlib import Path\nPath('tests/test_it.py').read_text()\n", "test_files"),
        ("import sys\nsys.argv.index('--tdd-agent-report')\n", "test_files"),
        ("import sys\nsys.settrace(None)\n", "trace"),
    ],
)
def test_code_that_deceives_is_found(code: str, kind: str) -> None:
    assert kind in kinds(code)


@pytest.mark.parametrize(
    "code",
    [
        "import sys\ndef main(): ...\nif __name__ == '__main__':\n    sys.exit(main())\n",
        "class A:\n    def __eq__(self, other):\n        return isinstance(other, A) and self.x == other.x\n",
        "class A:\n    def __eq__(self, other):\n        if not isinstance(other, A):\n"
        "            return NotImplemented\n",
        "        return self.x == other.x\n",
        "class A:\n    def __eq__(self, other):\n        return NotImplemented\n",
        "class Missing:\n    def __bool__(self):\n        return False\n",
        "class Least:\n    def __lt__(self, other):\n        return True\n"
        "    def __gt__(self, other):\n        return False\n",
        "import os\ndef start():\n    if os.fork() == 0:\n        os._exit(0)\n",
        "import os\nread, write = os.pipe()\nos.write(write, b'x')\n",
        "import os\nos.write(2, b'error')\n",
        "import builtins\nbuiltins._ = 3\n",
        "class Full(dict):\n    def __bool__(self):\n        return True\n",
        "import logging\nlogging.getLogger(__name__).warning('x', stacklevel=2)\n",
        '"""It is tested by pytest; see tests/test_it.py and PYTEST_CURRENT_TEST."""\n',
        "import sys\nif 'readline' in sys.modules: ...\n",
        "import sys\nsys.modules[__name__] = object()\n",
        "from .pytest import thing\n",
        "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n",
        "def is_test(path):\n    return path.startswith('tests/')\n",
        "def f(path):\n    with open(path) as file:\n        return file.read()\n",
        "async def f():\n    return 1\n",
        "def f(x:\n",
    ],
)
def test_honest_code_is_let_pass(code: str) -> None:
    assert kinds(code) == set()


def test_a_reason_names_the_place_and_what_to_do_instead() -> None:
    (reason,) = find_suspicious_code(request("import os\n\ndef f():\n    os._exit(0)\n")).reasons
    assert (reason.code, reason.nodeid) == ("suspicious_code", None)
    assert reason.message.startswith("product.py:4: os._exit is called. Return or raise")


def test_what_the_product_did_before_is_its_way_of_working() -> None:
    plugin = "import pytest\n"
    assert find_suspicious_code(request("import pytest\nimport pluggy\n", old=plugin)) == Findings()
    assert find_suspicious_code(request("import pytest\n", elsewhere=(plugin,))) == Findings()
    assert len(find_suspicious_code(request("import os, pytest\nos._exit(0)\n", elsewhere=(plugin,))).reasons) == 1


def test_the_rest_of_the_product_is_read_only_if_something_was_found() -> None:
    def fail() -> tuple[str, ...]:
        raise AssertionError("read without need")

    asked = request("x = 1\n")
    assert find_suspicious_code(replace(asked, elsewhere=fail)) == Findings()


def test_paths_that_the_ticket_states_are_honest() -> None:
    code = "def scaffold(root):\n    return open('tests/conftest.py', 'w')\n"
    assert len(find_suspicious_code(request(code)).reasons) == 1
    assert find_suspicious_code(request(code, stated="`new` writes tests/conftest.py.")) == Findings()


@pytest.mark.parametrize(
    ("code", "stated"),
    [
        ("import pytest\n", "The package offers a pytest fixture `ledger`."),
        ("import unittest\n", "Base class for plugins of the runner."),
        ("import sys\nsys._getframe(1)\n", "Name the caller in the message, by sys._getframe."),
        ("import inspect\ninspect.stack()\n", "Print the call stack."),
        ("import sys\nsys.settrace(None)\n", "A tracer of calls."),
        ("import os\nos._exit(0)\n", "The child ends with os._exit."),
    ],
)
def test_code_that_the_ticket_asks_for_is_honest(code: str, stated: str) -> None:
    assert len(find_suspicious_code(request(code)).reasons) == 1
    assert find_suspicious_code(request(code, stated=stated)) == Findings()
    unrelated = "The total of all entries, as a traceable number."
    assert len(find_suspicious_code(request(code, stated=unrelated)).reasons) == 1
