from pathlib import Path

from cdd_agent.agent.tools import make_search_tools
from cdd_agent.workspace.files import Workspace


def test_paths_are_listed_one_a_line(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_text("x = 1\n")
    (tmp_path / "a.py").write_text("y = 1\n")
    glob, _ = make_search_tools(Workspace(tmp_path))
    assert glob.run({"pattern": "*.py"}).text == "a.py\nb.py"
    assert glob.run({"pattern": "*.js"}).text == "No file matches *.js."
    assert glob.run({"pattern": "../*"}).is_error
    assert glob.subject({"pattern": "*.py"}) == "*.py"
    assert glob.run({"pattern": "*.py", "path": "a.py"}).text == "a.py"
    assert glob.subject({"pattern": "*.py", "path": "src"}) == "*.py in src"
    assert "'lib' does not exist in the project" in glob.run({"pattern": "*.py", "path": "lib"}).text


def test_a_long_list_is_cut_and_counted(tmp_path: Path) -> None:
    for number in range(510):
        (tmp_path / f"{number}.txt").touch()
    glob, _ = make_search_tools(Workspace(tmp_path))
    assert glob.run({"pattern": "*"}).text.endswith("\n... and 10 more; use a narrower pattern")


def test_hits_are_listed_with_path_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x = 1\ny = '\xe9'\n")
    (tmp_path / "b.bin").write_bytes(b"\0")
    _, grep = make_search_tools(Workspace(tmp_path))
    assert grep.run({"pattern": "y ="}).text == (
        "a.py:2: y = '\\xe9'\n(files not searched because they are binary, too large, secret or unreadable: 1)"
    )
    assert grep.run({"pattern": "none", "glob": "*.py"}).text == "No line matches."
    assert grep.run({"pattern": "("}).is_error
    assert grep.subject({"pattern": "x", "glob": "*.py"}) == "x in *.py"
    assert grep.subject({"pattern": "x", "glob": "*.py", "path": "src"}) == "x in src and *.py"


def test_many_hits_are_cut_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n" * 250)
    _, grep = make_search_tools(Workspace(tmp_path))
    assert grep.run({"pattern": "x"}).text.endswith("... and 50 more; use a narrower pattern or glob")


def test_an_expression_that_would_take_years_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 40 + "!\n")
    _, grep = make_search_tools(Workspace(tmp_path), limit_s=0.3)
    answer = grep.run({"pattern": "(a+)+$"})
    assert answer.is_error
    assert answer.text.startswith("Stopped after 0.3 s. (use a simpler expression")


def test_a_name_of_two_lines_is_one_row(tmp_path: Path) -> None:
    (tmp_path / "a\nb.py").write_text("x = 1\n")
    (tmp_path / "c  d.py").write_text("y = 1\n")
    glob, grep = make_search_tools(Workspace(tmp_path))
    assert glob.run({"pattern": "*"}).text == "a b.py\nc  d.py"
    assert grep.run({"pattern": "x"}).text == "a b.py:1: x = 1"


def test_keys_are_masked_and_files_of_secrets_passed_over(tmp_path: Path) -> None:
    key = f"AKIA{'Q' * 16}"
    (tmp_path / "a.py").write_text(f"KEY = '{key}'\n")
    (tmp_path / ".env").write_text(f"KEY={key}\n")
    _, grep = make_search_tools(Workspace(tmp_path))
    assert grep.run({"pattern": "KEY"}).text == (
        "a.py:1: KEY = '[masked: AWS key]'\n"
        "(files not searched because they are binary, too large, secret or unreadable: 1)\n"
        "(texts shaped like keys, masked in these files: 1)"
    )
