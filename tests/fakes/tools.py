"""Skip a test that starts a tool where the tool is not there or does not run, with the tool's own words.

A pytest plugin, loaded by ``tests/conftest.py``: ``@pytest.mark.needs("cargo", "--version")``.
"""

import os
import subprocess
from functools import cache

import pytest

_ANSWERS_WITHIN_S = 60


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers", "needs(*command, **variables): run only if the command succeeds, with variables in its environment"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest looks for marks that skip
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Try what the test needs: not when tests are collected, because most workers will not run that test."""
    for mark in item.iter_markers("needs"):
        if reason := why_not(*mark.args, **mark.kwargs):
            item.add_marker(pytest.mark.skip(reason=reason))


def why_not(*command: str, **variables: str) -> str | None:
    """Return why the command does not succeed, or None if it does; each command is tried once in a process.

    To find the program is not enough, as it may only look for another: rustup's ``cargo`` without a toolchain,
    pyenv's ``python3`` without that version, ``docker`` without its service.
    """
    return _try(command, tuple(sorted(variables.items())))


@cache
def _try(command: tuple[str, ...], variables: tuple[tuple[str, str], ...]) -> str | None:
    try:
        tried = subprocess.run(
            command,
            env={**os.environ, **dict(variables)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} does not run: {error}"
    if tried.returncode == 0:
        return None
    said = (tried.stderr.strip() or tried.stdout.strip()).decode("utf-8", "replace").splitlines()
    return f"{command[0]} does not run: {said[0] if said else f'exit status {tried.returncode}'}"
