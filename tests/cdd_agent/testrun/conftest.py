"""Environments and programs for the rules that look for an interpreter."""

import venv
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without pytest."""
    folder = tmp_path_factory.mktemp("bare") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


@pytest.fixture(scope="session")
def full_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that sees this interpreter's pytest."""
    folder = tmp_path_factory.mktemp("full") / "env"
    venv.create(folder, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    here = Path(pytest.__file__).parent.parent
    (site / "here.pth").write_text(f"{here}\n")
    return folder


def program(path: Path, script: str) -> Path:
    """A program that does what the shell script says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
