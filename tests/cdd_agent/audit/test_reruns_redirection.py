"""Projects whose sources are found by a path of the work tree: their copies see themselves."""

import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from cdd_agent.testrun.interpreter import Interpreter
from tests.cdd_agent.audit.made_history import History, carry_out
from tests.fakes.project import FILES, QUICK, TEST, TEST_FILE, Project, item, writes

SRC = {
    "pytest.ini": QUICK.replace("pythonpath = .\n", ""),
    ".gitignore": FILES[".gitignore"] + ".venv/\n",
    "src/prices.py": FILES["prices.py"],
    "tests/test_prices.py": FILES["tests/test_prices.py"],
}
FINDER = """\
import sys
from importlib.machinery import PathFinder

MAPPING = {"prices": %r, "discount": %r}


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        folder = MAPPING.get(name)
        return PathFinder.find_spec(name, [folder]) if folder else None


sys.meta_path.append(Finder)
"""
"""Like those that setuptools makes."""


def not_true(project: Project) -> list[str]:
    """What does not hold of one cycle over sources in ``src``."""
    work = replace(item(refactor=False), sources=("src/discount.py",))
    code = "def discount(price):\n    return price - 10\n"
    assert carry_out(project, work, writes(TEST_FILE, TEST), writes("src/discount.py", code)) == "done"
    audited = History(project=project).audit(suite=project.suite)
    assert [each.phase for each in audited] == ["RED", "GREEN"]
    return [claim.text for each in audited for claim in each.claims if not claim.holds]


@pytest.mark.slow
def test_an_absolute_pythonpath_leads_into_the_copy(
    tmp_path: Path, *, interpreter: Interpreter, bytecode: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "project" / "src"))
    project = Project.make(tmp_path / "project", interpreter=interpreter, bytecode=bytecode, files=SRC)
    assert not_true(project) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["path", "finder"])
def test_an_editable_install_in_an_environment_of_the_project_leads_into_the_copy(
    tmp_path: Path, *, interpreter: Interpreter, bytecode: Path, kind: str
) -> None:
    project = Project.make(tmp_path / "project", interpreter=interpreter, bytecode=bytecode, files=SRC)
    venv, src = project.folder / ".venv", project.folder / "src"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = (venv / "lib").glob("python*/site-packages")
    own = sysconfig.get_path("purelib")
    (packages / "own.pth").write_text(f"{own}\n")
    if kind == "path":
        (packages / "sale.pth").write_text(f"{src}\n")
    else:
        (packages / "__editable___sale_finder.py").write_text(FINDER % (str(src), str(src)))
        (packages / "sale.pth").write_text("import __editable___sale_finder\n")
    inside = replace(interpreter, path=venv / "bin" / "python", reads=(*interpreter.reads, src, Path(own), venv))
    assert not_true(replace(project, interpreter=inside)) == []
