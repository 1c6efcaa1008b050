"""Uses and renames by names alone; ``test_project.py`` has those of other engines."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cdd_agent.errors import CddError, UsageError
from cdd_agent.symbols.edit import replace_body
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.project import Symbols
from cdd_agent.symbols.rename import RenamePlan, apply_rename
from tests.cdd_agent.symbols.test_index import make_index


def make_symbols(folder: Path, files: Mapping[str, str | bytes]) -> Symbols:
    return Symbols(make_index(folder, files))


def plan_rename(symbols: Symbols, name: str, new: str) -> RenamePlan:
    return symbols.plan_rename(symbols.find_one(name), new)


def show_changes(plan: RenamePlan) -> dict[str, str]:
    return {path: change.new.decode() for path, change in plan.changes.items()}


def show_remaining(plan: RenamePlan) -> list[str]:
    return [f"{each.path}:{each.line} {each.kind}" for each in plan.remaining]


def test_find_referencing_symbols(tmp_path: Path) -> None:
    files = {
        "shop/__init__.py": "",
        "shop/checks.py": "def validate_input(x):\n    return x\n\n\ndef both(x):\n    return validate_input(x)\n",
        "shop/a.py": "from .checks import validate_input\n\nvalue = validate_input(1)\n",
        "shop/b.py": "from shop import checks\n\n\nclass K:\n  def m(self):\n    return checks.validate_input(2)\n",
        "shop/c.py": "import shop.checks as c\n\nf = lambda x: c.validate_input(x)  # validate_input\n",
        "tests/test_d.py": "from shop.checks import validate_input as v\n\n\ndef test():\n    assert v(1)\n",
        "shop/e.py": "def validate_input(y):\n    return y\n\n\nvalidate_input('validate_input')\n",
        "shop/f.py": "def f(validate_input):\n    return validate_input(1)\n",
    }
    symbols = make_symbols(tmp_path, files)
    found = symbols.find_references(symbols.find_one("checks.validate_input"))
    assert [(each.path, each.line, each.inside) for each in found.places] == [
        ("shop/a.py", 1, ""),
        ("shop/a.py", 3, ""),
        ("shop/b.py", 6, "K.m"),
        ("shop/c.py", 3, ""),
        ("shop/checks.py", 6, "both"),
        ("tests/test_d.py", 1, ""),
    ]
    assert all(each.text[each.column :].startswith("validate_input") for each in found.places)
    assert (found.engine, found.is_verified, symbols.engines.counts["name scan"]) == ("name scan", False, 1)


def test_a_type_in_a_cast_is_one_use(tmp_path: Path) -> None:
    code = "from typing import cast\nclass Foo: pass\nx = cast(Foo, 1)\ny = cast('Foo', 1)\n"
    symbols = make_symbols(tmp_path, {"a.py": code})
    found = symbols.find_references(symbols.find_one("Foo"))
    assert [(each.line, each.column) for each in found.places] == [(3, 9), (4, 10)]


def test_rename_symbol(tmp_path: Path) -> None:
    files = {
        "stats.py": "def mean(values):\n    return sum(values)\n\n\ndef both(values):\n    return mean(values)\n",
        "a.py": "from stats import mean\n\nx = mean([1]) + mean([2])\n",
        "b.py": "import stats\r\n\r\ny = stats.mean([3])\r\nmean_of = 1\r\n",
    }
    symbols = make_symbols(tmp_path, files)
    plan = plan_rename(symbols, "mean", "calculate_mean")
    assert show_changes(plan) == {path: re.sub(r"\bmean\b", "calculate_mean", text) for path, text in files.items()}
    assert (plan.count, plan.remaining, plan.answer.is_verified) == (6, (), False)
    assert all((tmp_path / path).read_bytes() == text.encode() for path, text in files.items())
    symbols.apply(plan, write=lambda path, data: void((tmp_path / path).write_bytes(data)))
    assert len(symbols.find("calculate_mean")) == 1
    assert symbols.find("mean") == ()


def void(_: object) -> None:
    """Ignore a result."""


TRICKY = {
    "pkg/__init__.py": (
        "from .core import run, Runner\nfrom .more import *\n__all__ = ['run', 'Runner']\n__all__ += ['extra']\n"
    ),
    "pkg/core.py": (
        "__all__ = ['run', 'Runner']\n\n\ndef run(x):\n    return x\n\n\n"
        "class Runner:\n    def start(self):\n        return run(1)\n\n"
        "    def again(self):\n        return self.start()\n"
    ),
    "pkg/more.py": (
        "from .core import *\nfrom . import core\n\n\n"
        "class Fast(Runner):\n    def start(self):\n        return super().start() + run(2) + core.run(3)\n\n\n"
        "def extra(runner):\n    return runner.start()\n"
    ),
    "tests/test_pkg.py": (
        "import pkg\nfrom pkg import run as execute, Runner\n\n\n"
        "def test(monkeypatch):\n    monkeypatch.setattr('pkg.core.run', abs)\n"
        "    assert getattr(pkg, 'run') and pkg.run(1) and pkg.core.run(1) and execute(2)\n"
        "    runner: 'Runner' = Runner()\n    assert runner.start() and Runner.start(runner)\n"
    ),
}


def test_a_rename_follows_all_lists_star_imports_and_reexports(tmp_path: Path) -> None:
    symbols = make_symbols(tmp_path, TRICKY)
    plan = plan_rename(symbols, "pkg.core.run", "execute_once")
    wanted = {
        path: re.sub(r"(?<!')\brun\b(?!')", "execute_once", text).replace("['run'", "['execute_once'")
        for path, text in TRICKY.items()
    }
    assert show_changes(plan) == wanted
    assert show_remaining(plan) == ["tests/test_pkg.py:6 string", "tests/test_pkg.py:7 string"]


def test_a_rename_follows_overrides_and_lists_nothing_else(tmp_path: Path) -> None:
    symbols = make_symbols(tmp_path, TRICKY)
    for name in ("Runner.start", "Fast.start"):
        plan = plan_rename(symbols, name, "begin")
        assert show_changes(plan) == {
            path: re.sub(r"\bstart\b", "begin", text) for path, text in TRICKY.items() if "start" in text
        }


def test_a_rename_there_and_back_leaves_all_bytes(tmp_path: Path) -> None:
    symbols = make_symbols(tmp_path, TRICKY)
    for symbol in [each for path in TRICKY for each in symbols.list_file(path) if each.last_name != "__all__"]:
        there = symbols.plan_rename(symbol, "renamed")
        symbols.apply(there, write=lambda path, data: void((tmp_path / path).write_bytes(data)))
        back = plan_rename(symbols, f"/{symbol.name.rpartition('.')[0]}/renamed".replace("//", "/"), symbol.last_name)
        assert {path: each.new for path, each in back.changes.items()} == {
            path: each.old for path, each in there.changes.items()
        }
        symbols.apply(back, write=lambda path, data: void((tmp_path / path).write_bytes(data)))


def test_a_class_is_renamed_in_annotations_too(tmp_path: Path) -> None:
    plan = plan_rename(make_symbols(tmp_path, TRICKY), "Runner", "Engine")
    assert show_changes(plan) == {
        path: re.sub(r"\bRunner\b", "Engine", text) for path, text in TRICKY.items() if "Runner" in text
    }


CALLED_BY_OTHERS = {
    "fixture": ("@pytest.fixture\ndef {0}(): pass\n\n\ndef test_it({0}): pass\n", "database", "db"),
    "fixture with options": ("@fixture(scope='module')\ndef {0}(): pass\n", "database", "db"),
    "fixture by another name": (
        "from pytest import fixture as fx\n\n\n@fx(name=None)\nasync def {0}(): pass\n",
        "database",
        "db",
    ),
    "fixture that is assigned": ("db = 1\n{0} = pytest.fixture(scope='module')(print)\n", "database", "rows"),
    "hook": ("class Plugin:\n    def {0}(self, config): pass\n", "configure", "pytest_configure"),
    "builtin": ("class Stack(dict[str, int]):\n    def {0}(self, key): pass\n", "fetch", "get"),
    "library": ("import json as j\n\nclass E(j.JSONEncoder):\n    def {0}(self, o): pass\n", "encode_it", "default"),
    "library, through import *": (
        "from collections.abc import Mapping\n\n\nclass M(Mapping):\n    def {0}(self): pass\n",
        "names",
        "keys",
    ),
    "library, in C": ("import io\n\n\nclass S(io.StringIO):\n    def {0}(self, text): pass\n", "put", "write"),
    "library, through others": (
        "try:\n    from unittest import TestCase as T\nexcept ImportError:\n    pass\n\n\nclass Base(T): pass\n\n\n"
        "class TestIt(Base):\n    def {0}(self): pass\n",
        "prepare",
        "setUp",
    ),
}


@pytest.mark.parametrize("kind", CALLED_BY_OTHERS)
def test_what_others_call_by_its_name_keeps_it(kind: str, tmp_path: Path) -> None:
    code, own, other = CALLED_BY_OTHERS[kind]
    with pytest.raises(UsageError, match=rf"{other} keeps its name: .* Nothing was changed\."):
        plan_rename(make_symbols(tmp_path, {"a.py": code.format(other)}), other, own)


@pytest.mark.parametrize("kind", ["builtin", "library", "library, through others"])
def test_a_method_cannot_get_the_name_of_one_that_it_would_override(kind: str, tmp_path: Path) -> None:
    code, own, other = CALLED_BY_OTHERS[kind]
    with pytest.raises(UsageError, match=f"inherits {other} from"):
        plan_rename(make_symbols(tmp_path, {"a.py": code.format(own)}), own, other)


def test_a_fixture_with_another_name_for_tests_is_a_plain_function(tmp_path: Path) -> None:
    code = "@pytest.fixture(name='db')\ndef make(): pass\n\n\ndef test_it(db): pass\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "make", "build")
    assert show_changes(plan) == {"a.py": code.replace("make", "build")}


def test_overrides_are_those_in_classes_that_import_the_base(tmp_path: Path) -> None:
    base = "class Base:\n    def load(self): return 1\n"
    files = {
        "x.py": base,
        "y.py": base,
        "p/__init__.py": "from y import *\n",
        "a.py": "from x import Base\n\n\nclass A(Base):\n    def load(self): return 2\n",
        "b.py": "from p import Base as Other\n\n\nclass B(Other):\n    def load(self): return super().load()\n",
        "c.py": "from lib import Base\n\n\nclass C(Base):\n    def load(self): return 4\n",
    }
    plan = plan_rename(make_symbols(tmp_path, files), "y.Base.load", "fetch")
    assert show_changes(plan) == {path: files[path].replace("load", "fetch") for path in ("b.py", "y.py")}


def test_a_twin_that_is_imported_with_as_is_renamed_there(tmp_path: Path) -> None:
    code = "try:\n    from fast import load as load\nexcept ImportError:\n    def load(): pass\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "load", "read")
    assert show_changes(plan) == {"a.py": code.replace("as load", "as read").replace("def load", "def read")}


def test_private_attributes_that_are_written_with_the_name_of_their_class_are_listed(tmp_path: Path) -> None:
    code = "class Shop:\n    def __init__(self): self.__size = 1\n\n\nprint(Shop()._Shop__size)\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "Shop", "Store")
    assert show_remaining(plan) == ["a.py:5 code"]


def test_entries_of_slots_and_match_args_are_renamed(tmp_path: Path) -> None:
    code = (
        "class A:\n    __slots__ = ('size', 'color')\n    __match_args__ = ('size',)\n    size: int\n\n\n"
        "class B:\n    __slots__ = ('size',)\n    size: int\n"
    )
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "A.size", "width")
    first, second = code.split("\n\n\n")
    assert show_changes(plan) == {"a.py": first.replace("size", "width") + "\n\n\n" + second}


def test_a_private_name_cannot_become_one_that_a_star_import_brings(tmp_path: Path) -> None:
    files = {
        "m.py": "def _load(): pass\n",
        "o.py": "def load(): pass\n",
        "a.py": "from o import *\nfrom m import *\nload()\n",
        "b.py": "from m import *\n",
    }
    with pytest.raises(UsageError, match=r"a\.py:3: its import \* would bring load\n"):
        plan_rename(make_symbols(tmp_path, files), "_load", "load")
    plan = plan_rename(make_symbols(tmp_path, files | {"m.py": "__all__ = []\n" + files["m.py"]}), "_load", "load")
    assert sorted(plan.changes) == ["m.py"]


def test_texts_in_annotations_are_renamed_if_they_are_types(tmp_path: Path) -> None:
    code = (
        "from typing import Annotated, Literal, cast\n\n\nclass Row: pass\n\n\nclass K:\n    Row = 1\n\n\n"
        "def f(a: 'Row', b: 'list[\"Row\"]', c: 'Ro' 'w', d: Annotated['Row', 'a Row']) -> 'dict[K.Row, Row]':\n"
        "    e: Literal['Row'] = 'Row'\n    f: Annotated[int, print('Row')] = cast('Row | None', e)\n"
        "    g: 'a Row of numbers'\n    table.cast('Row')\n"
    )
    other = "import a\n\nx: 'a.Row | a.K.Row'\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code, "b.py": other}), "/Row", "Line")
    wanted = code.replace("class Row", "class Line").replace("a: 'Row'", "a: 'Line'").replace('"Row"', '"Line"')
    wanted = wanted.replace("Annotated['Row'", "Annotated['Line'").replace(", Row]", ", Line]")
    wanted = wanted.replace("'Row | None'", "'Line | None'")
    assert show_changes(plan) == {"a.py": wanted, "b.py": other.replace("a.Row", "a.Line", 1)}
    assert [each for each in show_remaining(plan) if "b.py" in each] == ["b.py:3 string"]


def test_names_that_the_tree_has_as_texts_are_found_beside_equal_words(tmp_path: Path) -> None:
    code = "err = {}\ntry:\n    pass\nexcept OSError as err:  # as err\n    pass\n"
    code += "match err:\n    case {'err': 1, **err}:\n        pass\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "err", "rest")
    wanted = re.sub(r"\berr\b", "rest", code).replace("# as rest", "# as err").replace("'rest'", "'err'")
    assert show_changes(plan) == {"a.py": wanted}


def test_attributes_of_unknown_values_are_left_if_another_class_has_the_name(tmp_path: Path) -> None:
    code = "class {0}:\n    def close(self):\n        self.close\n\n\ndef f(x, y: {0}):\n    x.close()\n    y.close()\n"
    symbols = make_symbols(tmp_path, {"a.py": code.format("A"), "b.py": code.format("B")})
    plan = plan_rename(symbols, "A.close", "shut")
    assert show_changes(plan) == {"a.py": code.format("A").replace("close", "shut").replace("x.shut", "x.close")}
    assert show_remaining(plan) == ["a.py:7 code", *(f"b.py:{line} code" for line in (2, 3, 7, 8))]


def test_twins_are_renamed_together(tmp_path: Path) -> None:
    code = (
        "import sys\ntry:\n    from fast import load\nexcept ImportError:\n    def load(x): return x\n\n\n"
        "if sys.argv:\n    def load(x): return 1\nelse:\n    load = None\n\n\n"
        "def f():\n    global load\n    load = 3\n    return load\n\n\ndef g(load=load):\n    return load\n"
    )
    symbols = make_symbols(tmp_path, {"a.py": code})
    plan = plan_rename(symbols, "load[1]", "read")
    wanted = re.sub(r"\bload\b", "read", code).replace("import read", "import load as read")
    wanted = wanted.replace("g(read=read):\n    return read", "g(load=read):\n    return load")
    assert show_changes(plan) == {"a.py": wanted}


def test_a_class_that_takes_a_name_from_around_it(tmp_path: Path) -> None:
    code = "limit = 3\n\n\nclass K:\n    limit = limit\n    size = limit\n    def m(self): return limit\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "/limit", "most")
    wanted = code.replace("limit = 3", "most = 3").replace("= limit\n    s", "= most\n    s")
    wanted = wanted.replace("return limit", "return most")
    assert show_changes(plan) == {"a.py": wanted}


def test_fields_are_renamed_in_calls_and_patterns(tmp_path: Path) -> None:
    code = (
        "@dataclass\nclass Row:\n    size: int\n\n\n@dataclass\nclass Other:\n    size: int\n\n\n"
        "def f(x):\n    Row(size=1)\n"
        "    match x:\n        case Row(size=(1 | 2)) | Row(size = size):\n            return size\n"
        "        case [Row(size=Other(size=3))]:\n            return Other(size=4)\n"
    )
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code}), "Row.size", "width")
    wanted = code.replace("Row:\n    size", "Row:\n    width").replace("Row(size=", "Row(width=")
    assert show_changes(plan) == {"a.py": wanted.replace("Row(size =", "Row(width =")}


def test_a_local_function_and_a_field_are_renamed_in_their_scope(tmp_path: Path) -> None:
    code = (
        "def outer():\n    def step(): return 1\n    return [step() for step in [step]] + [step]\n\n\n"
        "def step(): pass\n\n\n"
        "class Row(NamedTuple):\n    name: str = ''\n    size: int = len(name)\n\n\nRow(name='x').name\n"
    )
    symbols = make_symbols(tmp_path, {"a.py": code})
    plan = plan_rename(symbols, "outer.step", "move")
    wanted = code.replace("def step(): return 1", "def move(): return 1").replace(
        "in [step]] + [step]", "in [move]] + [move]"
    )
    assert show_changes(plan) == {"a.py": wanted}
    plan = plan_rename(symbols, "Row.name", "title")
    assert show_changes(plan) == {"a.py": re.sub(r"\bname\b", "title", code)}


@pytest.mark.parametrize("style", ["utf-8", "utf-8-sig", "latin-1", "cp1252"])
def test_a_rename_keeps_all_other_bytes(tmp_path: Path, style: str) -> None:
    head = "" if style.startswith("utf-8") else f"# coding: {style}\r\n"
    text = f"{head}x = '\u00e9'; y = old(x) # \u00e9 old\r\n\f\r\ndef old(z):\n\treturn '\u00e9\u00e9', old\r\n"
    symbols = make_symbols(tmp_path, {"a.py": text.encode(style)})
    plan = plan_rename(symbols, "old", "new")
    wanted = text.replace("old(", "new(").replace(", old", ", new")
    assert plan.changes["a.py"].new == wanted.encode(style)
    if not style.startswith("utf-8"):
        with pytest.raises(UsageError, match="which cannot hold \u043a"):
            plan_rename(symbols, "old", "\u043a")


def test_a_rename_refuses_an_encoding_that_would_change_other_bytes(tmp_path: Path) -> None:
    content = b"# coding: cp932\ndef old(): return '\xee\xf9'\n"  # its codec writes this sign as 81 CA
    with pytest.raises(UsageError, match="cp932, which cannot be edited in parts"):
        plan_rename(make_symbols(tmp_path, {"a.py": content}), "old", "new")


REFUSED = [
    ("f", "not valid", "'not valid' is not a name in Python"),
    ("f", "class", "'class' is a keyword"),
    ("f", "", "is not a name"),
    ("f", "\ufb01n", "Python reads '\ufb01n' as 'fin'"),
    ("f", "f", "already has this name"),
    ("f", "__all__", "have a meaning for Python"),
    ("LIMIT", "not valid", "is not a name in Python"),
    ("f", "g", r"a\.py:6: binds g"),
    ("f", "LIMIT", r"a\.py:1: binds LIMIT"),
    ("f", "os", r"a\.py:2: binds os"),
    ("f", "len", r"a\.py:7: uses another len"),
    ("f", "given", r"a\.py:7: g binds given too"),
    ("f", "local", r"b\.py:\d: h binds local too"),
    ("f", "own", r"c\.py:2: binds own"),
    ("f", "_f", r"c\.py: its import \* does not bring _f"),
    ("K.m", "n", r"a\.py:13: K\.n exists"),
    ("K.m", "child", r"d\.py:4: Child\.child exists"),
    ("K.m", "size", r"a\.py:12: an attribute size is assigned"),
    ("K.m", "state", r"d\.py:6: an attribute state is assigned"),
    ("K.m", "keys", r"a\.py:10: K inherits keys from dict"),
    ("K.__len__", "length", "Python itself calls __len__"),
    ("K.m", "__m", "__m is private to its class"),
    ("pkg.tool", "sub", r"pkg/__init__\.py: the package has a module sub"),
]


def test_names_that_mean_something_else_are_refused(tmp_path: Path) -> None:
    files = {
        "a.py": (
            "LIMIT = 3\nimport os\ndef f(x):\n    return x\n\ndef g(given):\n    return f(len(given))\n\n\n"
            "class K(dict):\n    def m(self):\n        self.size = 1\n"
            "    def n(self): pass\n    def __len__(self): return 1\n"
        ),
        "b.py": "from a import f\ndef h():\n    local = 1\n    return f(local)\n",
        "c.py": "from a import *\nown = 1\n",
        "d.py": "import a\n\nclass Child(a.K):\n  def child(self): pass\n  def set(self):\n    self.state = 1\n",
        "pkg/__init__.py": "def tool(): pass\n",
        "pkg/sub.py": "",
    }
    symbols = make_symbols(tmp_path, files)
    for name, new, reason in REFUSED:
        with pytest.raises(UsageError, match=reason) as caught:
            plan_rename(symbols, name, new)
        assert "Nothing was changed" in str(caught.value)
        assert caught.value.hint


def test_a_name_in_another_scope_is_no_collision(tmp_path: Path) -> None:
    code = "def f(): pass\nclass K:\n    new = 1\n    def m(self, new): return new\n\ndef g():\n    import new\n\nf()\n"
    plan = plan_rename(make_symbols(tmp_path, {"a.py": code, "b.py": "new = 1\n"}), "f", "new")
    assert show_changes(plan) == {"a.py": code.replace("f()", "new()")}


def test_files_with_the_name_that_cannot_be_parsed_stop_a_rename(tmp_path: Path) -> None:
    files = {"a.py": "def f(): pass\n", "bad.py": "from a import f\nf((\n", "other.py": "def g(:\n"}
    symbols = make_symbols(tmp_path, files)
    with pytest.raises(
        UsageError, match=r"files with this name are unknown:\n  bad\.py cannot be parsed: line 2"
    ) as caught:
        plan_rename(symbols, "f", "new")
    assert "other.py" not in str(caught.value)


def write_package(folder: Path, *, size: int) -> Index:
    """Write a package in which one function is used in many files, in several ways."""
    files = {"pkg/__init__.py": "from pkg.core import validate_input\n__all__ = ['validate_input']\n"}
    files["pkg/core.py"] = "def validate_input(x):\n    return x\n"
    ways = [
        ("from pkg.core import validate_input\n", "validate_input"),
        ("from pkg import validate_input\n", "validate_input"),
        ("import pkg.core\n", "pkg.core.validate_input"),
        ("import pkg\n", "pkg.validate_input"),
        ("from ..core import validate_input\n", "validate_input"),
        ("from pkg.core import *\n", "validate_input"),
    ]
    for at in range(size):
        first, called = ways[at % len(ways)]
        files[f"pkg/p{at % 7}/m{at}.py"] = f"{first}\n\ndef use_{at}(x):\n    return {called}(x) + {called}(x)\n"
    files |= {f"pkg/p{at}/__init__.py": "" for at in range(7)}
    return make_index(folder, files)


def test_a_rename_over_189_files_is_complete(tmp_path: Path) -> None:
    symbols = Symbols(write_package(tmp_path, size=187))
    plan = plan_rename(symbols, "pkg.core.validate_input", "check_input")
    assert len(plan.changes) == 189
    assert plan.remaining == ()
    symbols.apply(plan, write=lambda path, data: void((tmp_path / path).write_bytes(data)))
    assert not [path for path in tmp_path.rglob("*.py") if b"validate_input" in path.read_bytes()]


def test_ten_files_with_thirty_functions(tmp_path: Path) -> None:
    files = {
        f"lib/m{at}.py": "".join(f"def f{at}_{n}(x):\n    # first\n    y = x\n    return y\n\n\n" for n in range(3))
        + (f"from lib.m{at - 1} import f{at - 1}_0\n\nf{at - 1}_0({at})\n" if at else "")
        for at in range(10)
    }
    symbols = make_symbols(tmp_path, files)
    assert len([each for path in files for each in symbols.list_file(path)]) == 30
    start = time.process_time()
    assert [each.path for each in symbols.find("f3_0")] == ["lib/m3.py"]
    assert time.process_time() - start < 0.2
    content = (tmp_path / "lib/m3.py").read_bytes()
    changed = replace_body(content, symbols.find_one("f3_1"), code="def f3_1(x):\n    return 5")
    assert changed == content.replace(
        b"f3_1(x):\n    # first\n    y = x\n    return y", b"f3_1(x):\n    # first\n    return 5"
    )
    plan = plan_rename(symbols, "f3_0", "renamed")
    symbols.apply(plan, write=lambda path, data: void((tmp_path / path).write_bytes(data)))
    text = {path: (tmp_path / path).read_text() for path in files}
    assert not [path for path in files if re.search(r"\bf3_0\b", text[path])]
    assert text == {path: re.sub(r"\bf3_0\b", "renamed", each) for path, each in files.items()}


class Disk:
    """Files in memory. One write fails."""

    def __init__(self, plan: RenamePlan, *, fails_at: int, error: BaseException) -> None:
        self.files = {path: change.old for path, change in plan.changes.items()}
        self.before = dict(self.files)
        self._fails_at, self._error, self.writes = fails_at, error, 0

    def write(self, path: str, data: bytes) -> None:
        self.writes += 1
        if self.writes == self._fails_at:
            self.files[path] = b"half"
            raise self._error
        self.files[path] = data


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), UsageError("locked", hint="wait")])
def test_all_files_get_their_old_bytes_again_if_a_write_fails(tmp_path: Path, error: BaseException) -> None:
    plan = plan_rename(Symbols(write_package(tmp_path, size=6)), "pkg.core.validate_input", "check")
    for fails_at in range(1, len(plan.changes) + 1):
        disk = Disk(plan, fails_at=fails_at, error=error)
        with pytest.raises(type(error)):
            apply_rename(plan, read=disk.before.__getitem__, write=disk.write)
        assert disk.files == disk.before


def fail() -> str:
    return "2 tests fail: tests/test_a.py::test_b"


def interrupt() -> str:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("check", "error"), [(fail, UsageError), (interrupt, KeyboardInterrupt)])
def test_all_files_get_their_old_bytes_again_if_the_check_fails(
    tmp_path: Path, check: Callable[[], str], error: type[BaseException]
) -> None:
    plan = plan_rename(Symbols(write_package(tmp_path, size=6)), "pkg.core.validate_input", "check")
    for fails_at in (0, len(plan.changes) + 2):  # the second: while the old bytes are written
        disk = Disk(plan, fails_at=fails_at, error=KeyboardInterrupt())
        with pytest.raises(error):
            apply_rename(plan, read=disk.before.__getitem__, write=disk.write, check=check)
        assert disk.files == disk.before


def test_a_file_that_cannot_be_restored_is_named(tmp_path: Path) -> None:
    plan = plan_rename(make_symbols(tmp_path, {"a.py": "def f(): f\n"}), "f", "g")

    def write(path: str, data: bytes) -> None:
        raise OSError("read-only")

    with pytest.raises(CddError, match=r"the old content could not be written to a\.py \(read-only\)"):
        apply_rename(plan, read={"a.py": b"def f(): f\n"}.__getitem__, write=write)


def test_a_plan_for_other_bytes_is_refused(tmp_path: Path) -> None:
    symbols = make_symbols(tmp_path, {"a.py": "def f(): f\n"})
    plan = plan_rename(symbols, "f", "g")
    (tmp_path / "a.py").write_text("def f(): pass\n")
    with pytest.raises(UsageError, match=r"a\.py has changed since the rename was planned"):
        symbols.apply(plan, write=lambda path, data: None)
