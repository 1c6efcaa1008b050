from collections.abc import Mapping
from pathlib import Path

import pytest

from cdd_agent.errors import UsageError
from cdd_agent.generation.package_files import list_search_path, read_package


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with installed packages. Each ends the test if it is imported."""
    code = "raise SystemExit\n"
    return write(
        tmp_path / "site",
        {
            "stats/__init__.py": code,
            "stats/deep/a.py": code,
            "stats/data.json": "{}",
            "stats/__pycache__/a.pyc": "",
            "stats/.hidden/b.py": code,
            "one.py": code,
            "fast.cpython-311-x86_64-linux-gnu.so": "",
            "shared/part/__init__.py": code,
            "two_a/__init__.py": code,
            "two_b.py": code,
            "Stats_Tools-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: Stats-Tools\nVersion: 1.2\n"
            "Summary: Sums.\nRequires-Dist: numpy>=2\nRequires-Dist: black; extra == 'dev'\n",
            "Stats_Tools-1.2.dist-info/RECORD": "stats/__init__.py,,\nstats/deep/a.py,,\n../../bin/stats,,\n",
            "two-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: two\nVersion: 1\n",
            "two-1.dist-info/RECORD": "two_a/__init__.py,,\ntwo_b.py,,\n",
        },
    )


def test_a_package_is_found_by_folder_by_name_and_by_distribution(site: Path) -> None:
    folder = read_package(str(site / "stats"), search=[])
    assert folder.package == "stats"
    assert [*folder.sources] == ["stats/__init__.py", "stats/deep/a.py"]
    assert folder.others == ("stats/data.json",)
    assert folder.metadata == {}
    for name in ("stats", "stats-tools", "Stats.Tools"):
        found = read_package(name, search=[str(site)])
        assert found.sources == folder.sources
        assert found.metadata == {
            **{"name": "Stats-Tools", "version": "1.2", "description": "Sums.", "requirements": ["numpy>=2"]}
        }


def test_a_module_is_found_by_file_and_by_name(site: Path) -> None:
    for name in (str(site / "one.py"), "one"):
        found = read_package(name, search=[str(site)])
        assert (found.package, [*found.sources], found.others) == ("one", ["one.py"], ())


def test_what_has_no_sources_is_refused_with_what_to_type(site: Path, tmp_path: Path) -> None:
    (site / "stats" / "link.py").symlink_to("/etc/passwd")
    (site / "bad-name.py").write_text("", encoding="utf-8")
    assert "stats/link.py" not in read_package("stats", search=[str(site)]).sources
    refused = {
        "fast": ("fast is compiled", "name its folder"),
        "sys": ("sys is built into Python", "name its folder"),
        "shared": ("shared is a folder without __init__.py", "name its folder"),
        "two": ("The distribution two has several packages: two_a, two_b", "cdd graph from two_a"),
        "nothing": (
            "Neither a file, a module nor a distribution has the name 'nothing'",
            "name the folder of a package",
        ),
        "a/b": ("There is no file a/b", "name its folder"),
        str(site / "shared"): ("is neither a package nor a module", f"cdd graph from {site}/shared/part"),
        str(site / "stats" / "deep"): ("is neither a package nor a module", "name its folder"),
        str(site / "bad-name.py"): ("'bad-name' is not the name of a module", "rename"),
        str(site / "shared" / "part" / "__init__.py"): ("is a part of the package part", f"from {site}/shared/part"),
    }
    for name, (words, hint) in refused.items():
        with pytest.raises(UsageError) as caught:
            read_package(name, search=[str(site)])
        assert words in caught.value.happened
        assert hint in caught.value.hint


def test_the_environment_of_the_project_is_searched_first(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    assert list_search_path(tmp_path)[0] == str(packages)
