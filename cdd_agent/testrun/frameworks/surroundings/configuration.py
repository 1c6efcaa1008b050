"""Parts of the product's files that decide how tests are run, and digests of all that GREEN may not change."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.suite import Conventions, digest
from pytest_tdd_agent.fingerprint import IGNORED_FOLDERS

_LIMIT_BYTES = 8_000_000
_MOST_FILES = 100_000
_BUILT = frozenset({"target", "build", "dist", "out", "obj", "bin", "coverage", ".gradle", ".next", ".nuxt", "vendor"})
"""Folders of what was built or fetched, unless tests of the project lie there."""
_TEST_KEYS = ("jest", "mocha", "vitest", "ava", "nyc", "c8")
_SCRIPT = re.compile(r"(?:pre|post)?test\b.*")
_VITE = re.compile(r"\btest\s*:")
_SUREFIRE = re.compile(r"<plugin>(?:(?!</plugin>).)*?maven-(?:surefire|failsafe)-plugin.*?</plugin>", re.DOTALL)
_CARGO_KEYS = (("package", ("autotests", "autobenches", "build")), ("lib", ("test", "doctest", "harness")))

SHARED = frozenset(
    {
        *("package.json", "Cargo.toml", "pom.xml"),
        *(f"vite.config.{ending}" for ending in ("js", "ts", "mjs", "mts", "cjs", "cts")),
    }
)
"""Files of which a part configures the tests."""


def parts(folder: Path) -> Mapping[str, str]:
    """Digests of those parts of the files in ``folder``, by keys such as ``package.json[tests]``."""
    found = {}
    for name in sorted(SHARED):
        try:
            data = read_ordinary(folder / name, limit_bytes=_LIMIT_BYTES)
        except OSError:
            continue
        part = _PARTS.get(name, _of_vite)(data)
        if part:
            found[f"{name}[tests]"] = digest(part)
    return found


def _of_package(data: bytes) -> bytes:
    """What a ``package.json`` says of tests: the keys of frameworks, and scripts that run them."""
    try:
        tables = msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return data
    told: dict[str, object] = {key: tables[key] for key in _TEST_KEYS if key in tables}
    scripts = tables.get("scripts")
    if isinstance(scripts, dict):
        told |= {f"scripts.{name}": text for name, text in scripts.items() if _SCRIPT.fullmatch(str(name))}
    return msgspec.json.encode(told, order="deterministic") if told else b""


def _of_cargo(data: bytes) -> bytes:
    """What a ``Cargo.toml`` says of targets of tests, of their harness and of the program that builds beforehand."""
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return data
    told: dict[str, object] = {key: tables[key] for key in ("test", "bench") if key in tables}
    for table, keys in _CARGO_KEYS:
        inner = tables.get(table)
        if isinstance(inner, dict):
            told |= {f"{table}.{key}": inner[key] for key in keys if key in inner}
    profiles = tables.get("profile")
    if isinstance(profiles, dict):
        told |= {f"profile.{key}": value for key, value in profiles.items() if key in ("test", "dev")}
    return repr(sorted(told.items())).encode() if told else b""


def _of_maven(data: bytes) -> bytes:
    """What a ``pom.xml`` says of the plugins that run tests."""
    return "\n".join(_SUREFIRE.findall(data.decode("utf-8", "replace"))).encode()


def _of_vite(data: bytes) -> bytes:
    """All of a configuration of vite's that says something of tests: it is a program."""
    return data if _VITE.search(data.decode("utf-8", "replace")) else b""


_PARTS: Mapping[str, Callable[[bytes], bytes]] = {
    "package.json": _of_package,
    "Cargo.toml": _of_cargo,
    "pom.xml": _of_maven,
}


def fingerprints(root: Path, conventions: Conventions) -> dict[str, str]:
    """Test file, or part of a file that configures tests -> sha256, for everything below ``root``; links by target."""
    found: dict[str, str] = {}
    for path in _files(root, conventions):
        name = path.relative_to(root).as_posix()
        if conventions.is_test(name):
            found[name] = _digest(path)
        elif path.name in conventions.shared:
            folder = name.removesuffix(path.name)
            found |= {f"{folder}{key}": told for key, told in conventions.parts(path.parent).items()}
    return dict(sorted(found.items()))


def is_built(path: str, is_test: Callable[[str], bool]) -> bool:
    """Whether a file, relative to the project, lies where builds put what they make: a compiled test is no source."""
    parts = path.split("/")
    return any(_is_of_builds("/".join(parts[:end]), is_test) for end in range(1, len(parts)))


def _is_of_builds(folder: str, is_test: Callable[[str], bool]) -> bool:
    return folder.rpartition("/")[2] in _BUILT and not is_test(f"{folder}/any")


def _files(root: Path, conventions: Conventions) -> Iterator[Path]:
    count = 0
    for folder, subfolders, names in os.walk(root):
        inside = Path(folder).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in IGNORED_FOLDERS and not _is_of_builds(f"{prefix}{name}", conventions.is_test)
        )
        for name in sorted(names):
            count += 1
            yield Path(folder, name)
        if count > _MOST_FILES:
            return


def _digest(path: Path) -> str:
    if path.is_symlink():
        return digest(b"link " + os.fsencode(os.readlink(path)))
    try:
        return digest(read_ordinary(path, limit_bytes=256_000_000))
    except OSError as error:
        return digest(f"unreadable {error.errno}".encode())
