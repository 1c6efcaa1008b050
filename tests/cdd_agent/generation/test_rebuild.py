"""A library is rebuilt from its graph: the skeleton, then the true bodies."""

import importlib.util
from pathlib import Path

import pytest

from cdd_agent.generation.package_files import PackageFiles, read_package
from cdd_agent.untrusted.python_source import decode
from tests.fakes.cases import soak_after
from tests.libraries.rebuild import Rebuilding, has_same_code, import_all, lay


def read_installed(name: str) -> tuple[PackageFiles, Path]:
    """Return a package that cdd needs itself, and the folder that contains it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return read_package(name, search=[str(Path(spec.origin).parents[1])]), Path(spec.origin).parents[1]


@soak_after(1, "name", ["docstring_parser", "click", "jinja2", "markdown_it"])
def test_the_graph_of_a_package_has_everything_but_its_bodies(name: str, tmp_path: Path) -> None:
    package, folder = read_installed(name)
    rebuilding = Rebuilding.of(package, folder)
    lay(tmp_path, rebuilding.skeleton)
    cannot_be = {line.partition(" ")[0] for line in import_all(folder, package, site=folder)}
    assert {line.partition(" ")[0] for line in import_all(tmp_path, package, site=folder)} == cannot_be
    *_, (_, files) = rebuilding.rebuild()
    differing = [
        path for path in package.sources if not has_same_code(decode(package.sources[path]), files[path].decode())
    ]
    assert differing == []


@pytest.mark.parametrize("indent", ["  ", "\t"])
def test_odd_code_is_rebuilt_as_it_was(indent: str, tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations as _later\nimport sys\n\n# a comment\nif sys.argv:\n>@staticmethod  # why\n"
        ">def f(a: 'x' = {}): '''Two\n>lines.'''; return  a\nelse:\n>f = None\n\n"
        'class K(\n>object,\n):\n>"""Doc.\n\n>>More.\n>"""\n>x: int = 3; y = 4\n'
        ">if x:\n>>def m(self):\n>>>return '''a\nb'''\n"
        ">async def n(self): yield 1\n>@property\n>def p(self): return 1\n"
        ">@p.setter\n>def p(self, value):\n>>'''Set.'''\n\n"
        "class L:\n>if sys.argv:\n>>def m(self): return 1\n"
        "if sys.argv:\n>class M:\n>>n = 1\nelse:\n>class M:\n>>def m(self): return 1\n"
        "def made(): return 3\nLIMIT = made(); OTHER = LIMIT + 1\n__all__ = ['f']\nlambda: f\n"
    ).replace(">", indent)
    package = PackageFiles(package="app", sources={"app/__init__.py": text.encode(), "app/empty.py": b""})
    rebuilding = Rebuilding.of(package, tmp_path)
    assert b"a\nb" not in rebuilding.skeleton["app/__init__.py"]
    *_, (_, files) = rebuilding.rebuild()
    assert has_same_code(text, files["app/__init__.py"].decode())
    assert files["app/empty.py"] == b""
