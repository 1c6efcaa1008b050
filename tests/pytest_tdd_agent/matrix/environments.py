"""The interpreters and releases of pytest on which the plugin has to work.

``python -m tests.pytest_tdd_agent.matrix.environments`` installs those that are not there yet, each into a folder of
its own, for every interpreter that this machine has.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".venv" / "matrix"
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
RELEASES = {"3.8": ("7.0.1", "7.4.4", "8.3.5"), "3.9": ("7.0.1", "7.4.4", "8.4.2")}
"""Python -> pytest, where it is not ``NEWER``."""
NEWER = ("7.0.1", "7.4.4", "8.4.2", "9.2.0")
PLUGINS = ("xdist", "rerunfailures", "asyncio", "subtests")
"""Installed beside pytest, in the newest release that fits; 9 has subtests of its own."""


@dataclass(frozen=True)
class Environment:
    """One interpreter with one release of pytest."""

    python: str
    pytest: str

    @property
    def name(self) -> str:
        return f"{self.python}-{self.pytest}"

    @property
    def folder(self) -> Path:
        """What is put on the path of the interpreter."""
        return FOLDER / self.name

    @property
    def plugins(self) -> tuple[str, ...]:
        return tuple(name for name in PLUGINS if name != "subtests" or self.release < (9,))

    @property
    def requirements(self) -> tuple[str, ...]:
        """What pip is asked for."""
        plugins = (f"pytest-{name}" for name in self.plugins if name != "subtests" or self.release >= (7, 4))
        early = ("pytest-subtests==0.10.0",) if self.release < (7, 4) else ()  # later ones call what 7.0 has not
        return (f"pytest=={self.pytest}", *plugins, *early)

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(map(int, self.pytest.split(".")))

    @property
    def interpreter_release(self) -> tuple[int, ...]:
        return tuple(map(int, self.python.split(".")))

    @property
    def lacks(self) -> str:
        """What is missing, and what to do about it; empty if the environment can be used."""
        if interpreter(self.python) is None:
            return f"Python {self.python} is missing among pyenv's versions and on PATH"
        ready = self.folder / ".ready"
        if not ready.exists() or ready.read_text(encoding="utf-8").split() != list(self.requirements):
            return f"pytest {self.pytest} for Python {self.python} is missing: make matrix"
        return ""


ENVIRONMENTS = tuple(Environment(python, pytest) for python in PYTHONS for pytest in RELEASES.get(python, NEWER))


@cache
def interpreter(python: str) -> Path | None:
    """Return an interpreter of that release, None if this machine has none."""
    return next((path for path in _candidates(python) if _is_release(path, python)), None)


def _candidates(python: str) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    if os.access(pyenv, os.R_OK | os.X_OK):  # PYENV_ROOT may lie in the home folder of another user
        yield from sorted(pyenv.glob(f"versions/{python}.*/bin/python"))
    found = shutil.which(f"python{python}")
    if found:
        yield Path(found)


def _is_release(path: Path, python: str) -> bool:
    question = [str(path), "-c", "import pip, sys; print('%d.%d' % sys.version_info[:2])"]
    answer = subprocess.run(question, capture_output=True, text=True, check=False)
    return answer.stdout.strip() == python


def install(environment: Environment) -> str:
    """Install an environment that is not there, and return what became of it."""
    python = interpreter(environment.python)
    if python is None or not environment.lacks:
        return environment.lacks or "there"
    shutil.rmtree(environment.folder, ignore_errors=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    command = [*pip, "--target", str(environment.folder), *environment.requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"not installed: {done.stderr.strip().splitlines()[-1:]}"
    (environment.folder / ".ready").write_text("\n".join(environment.requirements), encoding="utf-8")
    return "installed"


def main() -> int:
    """Install what is missing; 1 if something for which there is an interpreter could not be installed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        answers = list(pool.map(install, ENVIRONMENTS))
    for environment, answer in zip(ENVIRONMENTS, answers, strict=True):
        print(f"{environment.name:<12} {answer}")
    return int(any(answer.startswith("not installed") for answer in answers))


if __name__ == "__main__":
    sys.exit(main())
