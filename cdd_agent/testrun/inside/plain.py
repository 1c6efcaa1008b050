"""A plain program: it answers the calls that tests made.

``evidence/outside.py`` writes a copy of it, which is Python 3.8, beside a file with the task and a package with
``answers``, and runs it in another folder, with a copy of the project without its tests.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import pytest


_FURTHER_S = 0.5
"""For all further calls."""


def main() -> None:
    """Answer each call twice and each further call once, and write down each answer at once, as in a test run.

    A line with the index -2 names a module that cannot be imported, and the module that it lacks.
    """
    here, folder = os.path.dirname(os.path.abspath(__file__)), os.getcwd()
    with open(os.path.join(here, "task.json"), encoding="utf-8") as stream:
        task = json.load(stream)
    sys.path[:] = [*task["path"], *sys.path[1:], here]
    logging.getLogger().addHandler(logging.NullHandler())  # as pytest does, so that Python prints no warning
    os.chdir(task["root"])
    answers = importlib.import_module(f"{task['package']}.answers")
    values = importlib.import_module(f"{task['package']}.values")
    values.computed.update(task["computed"])
    os.chdir(folder)
    end = time.monotonic() + task["seconds"] / 2
    with open(os.path.join(here, "answers.jsonl"), "w", encoding="ascii", buffering=1) as stream:
        for module in dict.fromkeys([*task["modules"], *(call["module"] for call in task["calls"])]):
            stream.write("".join(f"{json.dumps([-2, [[name]], module])}\n" for name in _import(module)))
        if task["tests"]:
            _collect(task)
        for index, call in [*enumerate(task["calls"])] * 2:
            stream.write(json.dumps([index, answers.answer(call), ""]) + "\n")
            if time.monotonic() > end:
                break
        end = min(end, time.monotonic() + _FURTHER_S)
        for index, call in enumerate(task["further"], len(task["calls"])):
            if time.monotonic() > end:
                break
            stream.write(json.dumps([index, answers.answer(call), answers.shorten(values.show(call))]) + "\n")
        stream.write(json.dumps([-1, [], ""]) + "\n")


def _import(module: str) -> list[str]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return [error.name or ""]
    except BaseException:  # noqa: BLE001 (code of the project)
        return [""]
    return []


def _collect(task: dict[str, Any]) -> None:
    """Set up what test files, conftest files and plugins do when tests are collected, then remove all traces of it.

    What a product found out about its surroundings when it was imported stays as it is.
    """
    root, tests, before = task["root"], task["tests"], set(sys.modules)
    current, path, variables = os.getcwd(), [*sys.path], dict(os.environ)
    shutil.copytree(tests, root, dirs_exist_ok=True)
    os.chdir(root)
    pytest = importlib.import_module("pytest")
    tools = _Tools()
    pytest.main(["--collect-only", "-qq", "-pno:cacheprovider", "--rootdir=.", *task["targets"]], plugins=[tools])
    os.chdir(current)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(variables)
    removed = [os.path.join(root, os.path.relpath(file, tests)) for file in _list_files(tests)]
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in tools.names or getattr(sys.modules[name], "__file__", None) in removed:
            del sys.modules[name]
    for file in removed:
        os.unlink(file)
    for folder, _, _ in os.walk(tests, topdown=False):
        own = os.path.join(root, os.path.relpath(folder, tests))
        if not os.listdir(own):
            os.rmdir(own)
    importlib.invalidate_caches()


def _list_files(folder: str) -> list[str]:
    return [os.path.join(inside, name) for inside, _, names in os.walk(folder) for name in names]


class _Tools:
    """The plugins of a pytest run, by the names of their packages, and the test tools that it loads."""

    def __init__(self) -> None:
        self.names = {"pytest", "pluggy", "unittest", "doctest"}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the plugins."""
        plugins = session.config.pluginmanager.get_plugins()
        self.names |= {(getattr(each, "__name__", None) or type(each).__module__).partition(".")[0] for each in plugins}


if __name__ == "__main__":
    main()
