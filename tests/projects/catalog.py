"""The projects: what they hold, how their users made them ready, and where they work."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tests.projects.bench import FOLDER, Missing, Place
from tests.stories.frameworks.compiled import CARGO
from tests.stories.frameworks.javascript import VITEST

Make = Callable[[Place], None]


def leave(place: Place) -> None:
    """Leave everything as it is."""
    del place


@dataclass(frozen=True, kw_only=True)
class Case:
    """One project. ``@N`` in a text is the number of the step."""

    name: str
    files: Mapping[str, str]
    test: str = "tests/test_steps.py"
    code: str = "src/sums/__init__.py"
    inside: str = "."
    """Where the user works."""
    arrange: Make = leave
    """Does what its user did to the repository after the first commit."""
    install: Make = leave
    """Puts there what git ignores."""
    newline: str = "\n"
    options: tuple[str, ...] = ()
    """Of ``cdd green``."""
    limits_s: tuple[float, float] | None = None
    """Time that the run tree may take to be ready again, and a landing."""
    message: str = ""
    """A part of the one message that says what to do, if runs do not work."""


def uv() -> str:
    """The path of uv, which is installed once."""
    found = shutil.which("uv") or str(FOLDER / "tools" / "bin" / "uv")
    if not os.path.exists(found):
        place = Place(folder=FOLDER, tree=FOLDER)
        (FOLDER / "tmp").mkdir(parents=True, exist_ok=True)
        place.variables = dict(os.environ)
        place.run(sys.executable, "-m", "pip", "install", "-q", "--target", str(FOLDER / "tools"), "uv")
    return found


def venv(*packages: str, options: tuple[str, ...] = (), project: str = ".") -> Make:
    """An environment in the project with pytest and what is named, and the project in editable form."""

    def install(place: Place) -> None:
        kept = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_"))}
        place.variables |= kept | {"UV_CACHE_DIR": str(FOLDER / "cache"), "UV_LINK_MODE": "hardlink"}
        base = place.tree / ".venv"
        place.run(uv(), "venv", "-q", "--python", sys.executable, str(base))
        pip = (uv(), "pip", "install", "-q", "--python", str(base / "bin" / "python"))
        place.run(*pip, "pytest", *packages)
        if (place.tree / project / "pyproject.toml").exists():
            place.run(*pip, *options, "--no-deps", "-e", project)

    return install


_PYPROJECT = """\
[build-system]
requires = [{requires}]
build-backend = "{backend}"

[project]
name = "sums"
version = "1.0"

[tool.pytest.ini_options]
testpaths = ["tests"]
"""
_PLACE = """\
from importlib.metadata import version
from pathlib import Path

import sums


def test_it_is_the_project_s_own():
    assert version("sums").startswith("1.")
    assert Path(sums.__file__).resolve().is_relative_to(Path(__file__).resolve().parents[1])
"""
_PYTHON = {
    ".gitignore": ".venv/\n__pycache__/\n*.egg-info/\nbuild/\n.pytest_cache/\n",
    "src/sums/__init__.py": "def steps():\n    return @N\n",
    "tests/test_steps.py": "from sums import steps\n\n\ndef test_steps():\n    assert steps() >= @N\n",
    "tests/test_place.py": _PLACE,
}


def editable(name: str, backend: str, *, requires: str, more: str = "", options: tuple[str, ...] = ()) -> Case:
    """A project with a folder ``src`` that a build backend installs in editable form."""
    text = _PYPROJECT.format(requires=f'"{requires}"', backend=backend)
    return Case(name=name, files={**_PYTHON, "pyproject.toml": text + more}, install=venv(options=options))


def by_git(*commands: str) -> Make:
    """Run git commands in the work tree, one after the other."""

    def arrange(place: Place) -> None:
        for command in commands:
            place.git(*command.split(" "))

    return arrange


def clone(*options: str) -> Make:
    """Work in a clone of what was committed."""

    def arrange(place: Place) -> None:
        place.write({"README.md": "Other sums.\n"}, step=0)
        place.git("commit", "-q", "-a", "-m", "second")
        place.tree = place.tree.rename(place.folder / "origin")
        place.git("clone", "-q", *options, f"file://{place.folder}/origin", str(place.folder / "project"))
        place.tree = place.folder / "project"
        if "--sparse" in options:
            place.git("sparse-checkout", "set", "src", "tests")

    return arrange


def begin_anew(*options: str) -> Make:
    """Commit the files to another kind of repository."""

    def arrange(place: Place) -> None:
        shutil.rmtree(place.tree / ".git")
        place.git("init", "-q", *options)
        place.git("add", "-A")
        place.git("commit", "-q", "-m", "start")

    return arrange


def move(place: Place) -> None:
    """Work in a folder with spaces and letters of other languages, through a link."""
    moved = place.tree.rename(place.folder / "größte Projekte")
    place.tree = place.folder / "a link"
    place.tree.symlink_to(moved)


def leave_changes(place: Place) -> None:
    """Leave a changed file, a staged one and a new one."""
    place.write({"README.md": "Sums, some day.\n", "notes.txt": "mine\n", "staged.txt": "mine\n"}, step=0)
    place.git("add", "staged.txt")


def filter_files(place: Place) -> None:
    """Have git write a file otherwise than it is committed."""
    place.git("config", "filter.loud.clean", "tr A-Z a-z")
    place.git("config", "filter.loud.smudge", "tr a-z A-Z")
    place.write({".gitattributes": "README.md filter=loud\n"}, step=0)
    place.git("add", "-A")
    # Otherwise git cleans the file only if it was written in the same moment as the index.
    place.git("add", "--renormalize", "-A")
    place.git("commit", "-q", "-m", "loud")
    (place.tree / "README.md").unlink()
    place.git("checkout", "-q", "README.md")


def add_hook(place: Place) -> None:
    """Refuse commits without a file that is committed."""
    hook = place.tree / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\ntest -f README.md\n")
    hook.chmod(0o755)


def link(place: Place) -> None:
    """Work in a linked work tree."""
    place.git("worktree", "add", "-q", "-b", "side", str(place.folder / "linked"))
    place.tree = place.folder / "linked"


def add_submodule(place: Place) -> None:
    """Commit a submodule, whose file a test reads."""
    origin = place.folder / "library"
    place.run("git", "init", "-q", str(origin))
    (origin / "table.csv").write_text("1,2\n")
    place.run("git", "add", "-A", at=origin)
    place.run("git", "commit", "-q", "-m", "library", at=origin)
    place.git("submodule", "--quiet", "add", str(origin), "library")
    place.git("commit", "-q", "-m", "a library")


def store_elsewhere(place: Place) -> None:
    """Commit a file whose content is in Git LFS."""
    place.git("lfs", "install")
    place.write({".gitattributes": "*.csv filter=lfs diff=lfs merge=lfs -text\n", "table.csv": "1,2\n"}, step=0)
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "large")


def ignored(files: Mapping[str, str], then: Make) -> Make:
    """Write files that git ignores."""

    def install(place: Place) -> None:
        place.write(files, step=0)
        then(place)

    return install


def fetch_packages(place: Place) -> None:
    """Leave a ``node_modules`` as npm does."""
    problem = VITEST.fetch(place.tree, place.folder).problem
    if problem:
        raise Missing(problem)


def link_packages(place: Place) -> None:
    """Leave a ``node_modules`` with links to the packages of the repository."""
    place.run("npm", "install", "--silent", "--no-package-lock", "--offline")


def use_cargo(place: Place) -> None:
    """Leave a ``target`` as an earlier build does; the tools stay where they are installed."""
    home = os.environ["HOME"]
    place.variables |= {"RUSTUP_HOME": f"{home}/.rustup", "CARGO_HOME": f"{home}/.cargo"}
    place.run("cargo", "test", "-q", "--offline", "--lib")
    place.git("commit", "-q", "--allow-empty", "-a", "-m", "lock")


_SETUPTOOLS = "setuptools.build_meta"
_FLAT = editable("setuptools, path", _SETUPTOOLS, requires="setuptools")
_MAPPED = '\n[tool.setuptools]\npackages = ["sums"]\n[tool.setuptools.package-dir]\nsums = "src/sums"\n'
_EXTENSION = '[[tool.setuptools.ext-modules]]\nname = "sums.fast"\nsources = ["src/sums/fast.c"]\n'
_C = """\
#include <Python.h>

static PyObject *three(PyObject *self, PyObject *args) { return PyLong_FromLong(3); }
static PyMethodDef methods[] = {{"three", three, METH_NOARGS, ""}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "fast", "", -1, methods};
PyMODINIT_FUNC PyInit_fast(void) { return PyModule_Create(&module); }
"""
_SCM = _FLAT.files["pyproject.toml"].replace('version = "1.0"', 'dynamic = ["version"]')
_SCM_TEST = """\
import subprocess
from pathlib import Path

from setuptools_scm import get_version

TOP = Path(__file__).parents[1]


def test_the_version_is_git_s():
    assert get_version(root=str(TOP)).startswith("1.")
    assert subprocess.check_output(["git", "describe", "--tags"], cwd=TOP, text=True).startswith("v1.0")
"""
_READS = """\
from pathlib import Path


def test_it_reads():
    assert (Path(__file__).parents[1] / "{}").read_text() == "1,2\\n"
"""
_PLAIN = Case(
    name="",
    files={
        ".gitignore": ".venv/\n__pycache__/\ndata/\n.pytest_cache/\n",
        "pytest.ini": "[pytest]\npythonpath = src\n",
        **{name: _PYTHON[name] for name in ("src/sums/__init__.py", "tests/test_steps.py")},
        "README.md": "Sums.\n",
    },
    install=venv(),
)


def plain(name: str, more: Mapping[str, str] = _PLAIN.files, *, arrange: Make = leave) -> Case:
    """A project without an installation; ``more`` are files by their paths."""
    return replace(_PLAIN, name=name, files={**_PLAIN.files, **more}, arrange=arrange)


_NODE = {
    ".gitignore": "node_modules\n",
    "package.json": '{"name": "sums", "type": "module", "scripts": {"test": "vitest"}}\n',
    "src/steps.js": "export const steps = () => @N;\n",
    "test/steps.test.js": "import { expect, test } from 'vitest';\nimport { steps } from '../src/steps.js';\n\n"
    "test('steps', () => expect(steps()).toBeGreaterThanOrEqual(@N));\n",
}
_WORKSPACE = {
    ".gitignore": "node_modules\n",
    "package.json": '{"type": "module", "workspaces": ["packages/*"], "scripts": {"test": "node --test"}}\n',
    "packages/steps/package.json": '{"name": "@sums/steps", "type": "module", "main": "index.js"}\n',
    "packages/steps/index.js": "export const steps = () => @N;\n",
    "test/steps.test.js": "import assert from 'node:assert';\nimport test from 'node:test';\n"
    "import { steps } from '@sums/steps';\n\ntest('steps', () => assert.ok(steps() >= @N));\n",
}
_RUST = {
    **{name: CARGO.files[name] for name in ("Cargo.toml", "Cargo.lock", ".gitignore")},
    "src/lib.rs": "pub fn steps() -> i32 {\n    @N\n}\n",
    "tests/steps.rs": "#[test]\nfn steps() {\n    assert!(two_sums::steps() >= @N);\n}\n",
}
_MONO = {f"packages/sums/{name}": text for name, text in _FLAT.files.items()}

CASES: tuple[Case, ...] = (
    _FLAT,
    editable("setuptools, finder", _SETUPTOOLS, requires="setuptools", more=_MAPPED),
    editable(
        "setuptools, strict", _SETUPTOOLS, requires="setuptools", options=("--config-setting", "editable_mode=strict")
    ),
    editable("hatchling", "hatchling.build", requires="hatchling"),
    editable("poetry-core", "poetry.core.masonry.api", requires="poetry-core"),
    editable("uv build backend", "uv_build", requires="uv_build"),
    replace(
        editable("C extension in place", _SETUPTOOLS, requires="setuptools", more=_MAPPED + _EXTENSION),
        files={
            **editable("", _SETUPTOOLS, requires="setuptools", more=_MAPPED + _EXTENSION).files,
            ".gitignore": _PYTHON[".gitignore"] + "*.so\n",
            "src/sums/fast.c": _C,
            "tests/test_fast.py": "from sums import fast\n\n\ndef test_fast():\n    assert fast.three() == 3\n",
        },
    ),
    replace(
        plain("xdist and coverage", {"pytest.ini": "[pytest]\npythonpath = src\naddopts = -n 2 --cov=sums\n"}),
        install=venv("pytest-xdist", "pytest-cov"),
    ),
    Case(
        name="setuptools-scm",
        files={
            **_FLAT.files,
            # Newer versions do nothing if this table is missing.
            "pyproject.toml": _SCM.replace('"setuptools"', '"setuptools-scm"') + "\n[tool.setuptools_scm]\n",
            "tests/test_version.py": _SCM_TEST,
        },
        arrange=by_git("tag v1.0"),
        install=venv("setuptools-scm", "setuptools"),
    ),
    replace(
        plain(
            "ignored version, which the package imports",
            {
                ".gitignore": ".venv/\n__pycache__/\n.pytest_cache/\nsrc/sums/_version.py\n",
                "src/sums/__init__.py": "from sums._version import VERSION as VERSION\n"
                + _PYTHON["src/sums/__init__.py"],
            },
        ),
        install=ignored({"src/sums/_version.py": "VERSION = '1'\n"}, venv()),
    ),
    replace(
        plain(
            "ignored data", {"tests/test_data.py": _READS.format("data/table.csv"), ".cdd/worktree-include": "data/\n"}
        ),
        install=ignored({"data/table.csv": "1,2\n"}, venv()),
    ),
    replace(
        plain(
            "ignored data, too large",
            {
                "tests/test_data.py": _READS.format("data/table.csv"),
                ".cdd/config.yaml": "run_tree_copy_mb: 0\n",
                ".cdd/worktree-include": "data/\n",
            },
        ),
        install=ignored({"data/table.csv": "1,2\n"}, venv()),
        message="No such file or directory",
    ),
    replace(
        plain(
            "generated, worktree_setup",
            {
                ".gitignore": ".venv/\n__pycache__/\n.pytest_cache/\nsrc/made.py\n",
                ".cdd/config.yaml": "worktree_setup: sh make.sh && echo changed >README.md\n",
                "make.sh": "echo TEXT = \\'made\\' >src/made.py\n",
                "tests/test_made.py": "import made\n\n\ndef test_made():\n    assert made.TEXT == 'made'\n",
            },
        ),
        install=ignored({"src/made.py": "TEXT = 'old'\n"}, venv()),
    ),
    Case(
        name="vitest, node_modules", files=_NODE, test="test/steps.test.js", code="src/steps.js", install=fetch_packages
    ),
    Case(
        name="node:test, npm workspaces",
        files=_WORKSPACE,
        test="test/steps.test.js",
        code="packages/steps/index.js",
        install=link_packages,
    ),
    Case(name="cargo", files=_RUST, test="tests/steps.rs", code="src/lib.rs", arrange=use_cargo),
    Case(
        name="monorepo, subfolder",
        files={**_MONO, ".gitignore": _PYTHON[".gitignore"], "packages/other/a.txt": "a\n"},
        test="packages/sums/tests/test_steps.py",
        code="packages/sums/src/sums/__init__.py",
        inside="packages/sums",
        install=venv(project="packages/sums"),
    ),
    plain("submodule", {"tests/test_library.py": _READS.format("library/table.csv")}, arrange=add_submodule),
    plain("Git LFS", {"tests/test_table.py": _READS.format("table.csv")}, arrange=store_elsewhere),
    plain("sparse checkout", {"docs/a.md": "a\n"}, arrange=by_git("sparse-checkout set --cone src tests")),
    plain("shallow clone", arrange=clone("--depth", "1")),
    plain("partial clone", arrange=clone("--filter=blob:none")),
    plain("partial, sparse clone", {"docs/a.md": "a\n"}, arrange=clone("--filter=blob:none", "--sparse")),
    plain("linked work tree", arrange=link),
    plain("repository of SHA-256", arrange=begin_anew("--object-format=sha256")),
    plain("separate git folder", arrange=begin_anew("--separate-git-dir", "../apart.git")),
    plain("split index, cache", arrange=by_git("update-index --split-index --untracked-cache --index-version 4")),
    plain("spaces, through a link", arrange=move),
    replace(plain("uncommitted changes", arrange=leave_changes), options=("--allow-dirty",)),
    plain("clean and smudge", arrange=filter_files),
    plain("pre-commit hook", arrange=add_hook),
    plain("detached HEAD", arrange=by_git("checkout -q --detach")),
    replace(plain("core.autocrlf, CRLF", arrange=by_git("config core.autocrlf true")), newline="\r\n"),
    replace(
        plain("20,000 files", {f"data-{number % 200}/{number}.txt": f"{number}\n" for number in range(20_000)}),
        limits_s=(1.0, 0.5),
    ),
)
