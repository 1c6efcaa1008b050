import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.symbols.index import Index

TWINS = """\
import sys
from typing import overload


@overload
def load(x: int) -> int: ...
@overload
def load(x: str) -> str: ...
def load(x):
    return x


class K:
    @property
    def p(self):
        return 1

    @p.setter
    def p(self, value):
        pass

    @p.deleter
    def p(self):
        pass


if sys.platform == "win32":
    def opened(): return 1
else:
    def opened(): return 2

try:
    import json
    def dumps(): return json
except ImportError:
    def dumps(): return None


def again(): return 1
def again(): return 2
"""


def make_index(folder: Path, files: Mapping[str, str | bytes]) -> Index:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return Index(folder)


def find(index: Index, name: str, path: str = "") -> list[str]:
    return [f"{each.path}:{each.line} {each.reference}" for each in index.find(name, path=path)]


def test_find_symbol_exact(tmp_path: Path) -> None:
    code = "import math\n\n\ndef calculate_mean(values: list[float]) -> float:\n    '''Average.'''\n    return 0.0\n"
    files = {f"src/stats/{name}.py": code for name in ("basic", "robust", "rolling")}
    index = make_index(tmp_path, files | {"src/stats/other.py": "def calculate_means(): pass\n"})
    found = index.find("calculate_mean")
    assert [(each.path, each.line, each.name_column) for each in found] == [
        ("src/stats/basic.py", 4, 4),
        ("src/stats/robust.py", 4, 4),
        ("src/stats/rolling.py", 4, 4),
    ]
    assert {(each.header, each.summary, each.kind) for each in found} == {
        ("def calculate_mean(values: list[float]) -> float:", "Average.", "function")
    }


def test_a_name_may_be_bare_or_name_what_is_around_it_up_to_the_package(tmp_path: Path) -> None:
    code = "def run(): pass\nclass Job:\n    limit = 3\n    def run(self):\n        def inner(): pass\n"
    index = make_index(tmp_path, {"src/shop/job.py": code, "src/shop/__init__.py": "class Shop:\n  def run(self): 0\n"})
    assert find(index, "run") == [
        "src/shop/job.py:1 run",
        "src/shop/__init__.py:2 Shop.run",
        "src/shop/job.py:4 Job.run",
    ]
    for name in ("Job.run", "Job/run", "/Job/run", "Job::run", "shop.job.Job.run", "job.Job.run"):
        assert find(index, name) == ["src/shop/job.py:4 Job.run"], name
    assert find(index, "job.run") == find(index, "/run") == find(index, "shop.job.run") == ["src/shop/job.py:1 run"]
    assert find(index, "shop.Shop.run") == find(index, "Shop.run") == ["src/shop/__init__.py:2 Shop.run"]
    assert find(index, "Job.run.<locals>.inner") == find(index, "inner") == ["src/shop/job.py:5 Job.run.inner"]
    assert find(index, "Job.limit") == ["src/shop/job.py:3 Job.limit"]
    assert find(index, "run", "src/shop/__init__.py") == ["src/shop/__init__.py:2 Shop.run"]
    assert find(index, "run", "src/sho") == find(index, "un") == find(index, "") == find(index, "ob.run") == []
    assert index.find_one("run").line == 1


def test_several_definitions_of_a_name_in_a_file_are_numbered_and_none_is_taken_for_another(tmp_path: Path) -> None:
    index = make_index(tmp_path, {"a.py": TWINS})
    for name, count in (("load", 3), ("K.p", 3), ("opened", 2), ("dumps", 2), ("again", 2)):
        found = index.find(name)
        assert [each.reference for each in found] == [f"{name}[{at}]" for at in range(count)]
        with pytest.raises(UsageError) as caught:
            index.find_one(name)
        assert all(f"a.py:{each.line} {each.reference}: " in str(caught.value) for each in found)
        assert f"such as {name}[0] in a.py" in caught.value.hint
        assert index.find_one(f"{name}[1]") == found[1]
    assert index.find("load[3]") == ()
    with pytest.raises(UsageError, match=r"Nothing in a\.py defines load\[7\]"):
        index.find_one("load[7]", path="a.py")


def test_a_file_that_cannot_be_parsed_is_named_with_the_place(tmp_path: Path) -> None:
    index = make_index(tmp_path, {"ok.py": "def f(): pass\n", "bad.py": "def g(:\n    pass\n", "b.py": b"x = '\xe9'\n"})
    assert find(index, "f") == ["ok.py:1 f"]
    assert {path: text.split(":")[0] for path, text in index.problems.items()} == {
        "bad.py": "bad.py cannot be parsed",
        "b.py": "b.py cannot be parsed",
    }
    with pytest.raises(UsageError, match=r"bad\.py cannot be parsed: line 1"):
        index.find("g", path="bad.py")
    with pytest.raises(UsageError, match=r"bad\.py cannot be parsed: line 1"):
        index.list_file("./bad.py")
    with pytest.raises(UsageError, match=r"Nothing defines g\. The definitions of 2 files are unknown: .*bad\.py"):
        index.find_one("g")
    with pytest.raises(UsageError, match=r"no\.py is not a Python file of the project"):
        index.list_file("no.py")


def test_changes_are_seen_at_the_next_question(tmp_path: Path) -> None:
    index = make_index(tmp_path, {"a.py": "def one(): pass\n", "p/b.py": "def two(): pass\n"})
    assert find(index, "one")
    assert find(index, "two")
    before = (tmp_path / "a.py").stat()
    (tmp_path / "a.py").write_text("def six(): pass\n")  # of the same size, and with the same time
    os.utime(tmp_path / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "p" / "c.py").write_text("def four(): pass\n")
    assert find(index, "one") == []
    assert find(index, "six")
    assert find(index, "four")
    (tmp_path / "p" / "b.py").unlink()
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "d.py").write_text("def five(): pass\n")
    assert find(index, "two") == []
    assert find(index, "five") == ["q/d.py:1 five"]
    (tmp_path / "p").rename(tmp_path / "r")
    assert find(index, "four") == ["r/c.py:1 four"]
    assert index.list_paths() == ("a.py", "q/d.py", "r/c.py")


def test_links_environments_secrets_and_ignored_files_are_not_read(tmp_path: Path) -> None:
    code = "def hidden(): pass\n"
    outside = tmp_path / "outside"
    make_index(outside, {"x.py": code, "deep/x.py": code})
    project = tmp_path / "project"
    made = {".venv/x.py": code, "env/pyvenv.cfg": "", "env/x.py": code, "node_modules/x.py": code, ".git/x.py": code}
    made |= {"ignored/x.py": code, "secret.py": code, "own/x.py": "def own(): pass\n"}
    make_index(project, made)
    (project / "link.py").symlink_to(outside / "x.py")
    (project / "folder").symlink_to(outside)
    os.mkfifo(project / "pipe.py")
    index = Index(project, list_ignored=lambda: ("ignored/",), may_read=lambda path: path != "secret.py")
    assert index.find("hidden") == ()
    assert index.list_paths() == ("own/x.py",)
    (project / "own" / "x.py").unlink()
    (project / "own").rmdir()
    (project / "own").symlink_to(outside / "deep")
    assert index.find("hidden") == ()
    assert index.list_paths() == ()
    with pytest.raises(UsageError):
        index.read("own/x.py")
    with pytest.raises(UsageError):
        index.read("../outside/x.py")


def test_git_is_asked_about_new_files_only(tmp_path: Path) -> None:
    asked = list[int]()

    def list_ignored() -> tuple[str, ...]:
        asked.append(1)
        return ("build/",)

    make_index(tmp_path, {"a.py": "def f(): pass\n", "build/b.py": "def f(): pass\n"})
    index = Index(tmp_path, list_ignored=list_ignored)
    assert find(index, "f") == ["a.py:1 f"]
    (tmp_path / "a.py.tmp").write_text("def g(): pass\n")
    (tmp_path / "a.py.tmp").rename(tmp_path / "a.py")
    assert find(index, "g") == ["a.py:1 g"]
    assert len(asked) == 1
    (tmp_path / "c.py").write_text("def g(): pass\n")
    assert len(find(index, "g")) == 2
    assert len(asked) == 2


def test_a_stub_is_marked_and_its_place_is_that_of_the_name(tmp_path: Path) -> None:
    body = "    '''Doc.\n\n    More.'''\n    raise NotImplementedError('x')\n"
    code = f"@cached\nasync  def  größe(\n    x,\n    y=1,\n):\n{body}"
    [symbol] = make_index(tmp_path, {"a.py": code}).find("größe")
    assert (symbol.line, symbol.name_line, symbol.name_column, symbol.end_line) == (1, 2, 12, 9)
    assert symbol.header == "async  def  größe(x, y=1):"
    assert symbol.summary == "Doc."
    assert symbol.is_stub
