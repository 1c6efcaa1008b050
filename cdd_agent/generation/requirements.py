"""Finds the packages that a generated repository needs, for requirements.txt and requirements-dev.txt. Pure."""

import ast
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from cdd_agent.tickets.graph import Graph
from cdd_agent.untrusted.python_source import list_imports, parse, with_deep_stack
from cdd_agent.untrusted.text import clean, shorten

DEVELOPMENT = ("black", "mypy", "pytest")
"""The packages that developers of a generated repository need."""
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_CLAUSE = r"(?:===|==|~=|!=|<=|>=|<|>) *[A-Za-z0-9][A-Za-z0-9.*+!_-]*"
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])? *"
    r"(?:\[ *[A-Za-z0-9_-]+(?: *, *[A-Za-z0-9_-]+)* *\] *)?"
    rf"(?:{_CLAUSE}(?: *, *{_CLAUSE})*)?"
    r"(?: *; *[a-z_]+ *[<>=!]=? *(?:\"[\w. ]*\"|'[\w. ]*'))?",
    re.ASCII,
)
"""A requirement as pip reads it, without addresses and options, and with one marker at most."""
_LONGEST = 300


class Environment(msgspec.Struct, frozen=True):
    """The packages of an interpreter."""

    python: str = ""
    """Its version, such as ``3.11.4``."""
    standard: tuple[str, ...] = ()
    """Import names of its standard library; empty for a version that does not tell."""
    packages: dict[str, tuple[str, ...]] = {}
    """Import name -> the distributions that provide it."""
    versions: dict[str, str] = {}
    """Normalized name of a distribution -> its version."""


QUESTION = """\
import json, re, sys
from importlib import metadata
versions = {}
for each in metadata.distributions():
    name = each.metadata["Name"]
    if name:
        versions.setdefault(re.sub("[-_.]+", "-", name).lower(), each.version)
packages = getattr(metadata, "packages_distributions", dict)()
print(json.dumps({
    "python": "%d.%d.%d" % sys.version_info[:3],
    "standard": sorted(getattr(sys, "stdlib_module_names", ())),
    "packages": {name: sorted(set(found)) for name, found in packages.items()},
    "versions": versions,
}))
"""
"""Python 3.8 code that prints an ``Environment``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The packages that a repository needs besides the standard library."""

    lines: tuple[str, ...]
    """For requirements.txt, sorted."""
    listed: tuple[str, ...] = ()
    """Those of ``lines`` whose packages the graph lists."""
    warnings: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    """Import names that the code uses, and whose packages the graph does not list."""


def normalize_name(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_requirements(
    files: Mapping[str, str], environment: Environment, *, listed: Iterable[str], first_party: Collection[str]
) -> Requirements:
    """Return the requirements of the Python files (path -> text) and those that the graph lists.

    ``listed``: lines as in requirements.txt. ``first_party``: import names of the repository itself.
    """
    lines, warnings = dict[str, str](), list[str]()
    for text in listed:
        line = shorten(clean(text), _LONGEST)
        if not _REQUIREMENT.fullmatch(line):
            warnings.append(f"The graph requires {line!r}, which is not a package with versions; it is left out.")
            continue
        name = normalize_name(read_name(line))
        is_bare = line == read_name(line)
        lines.setdefault(name, _pin(line, environment, warnings=warnings) if is_bare else line)
    given = (*lines.values(),)
    standard = {*environment.standard} or {*sys.stdlib_module_names}
    unlisted = list[str]()
    for module in sorted({each for text in files.values() for each in find_modules(text)}):
        if module in standard or module in first_party:
            continue
        known = sorted(environment.packages.get(module, ()))
        distributions = known or [module]
        if not _REQUIREMENT.fullmatch(distributions[0]):
            warnings.append(f"The code imports {module}, which no package can provide.")
            unlisted.append(module)
            continue
        if any(normalize_name(each) in lines for each in distributions):
            continue
        unlisted.append(module)
        if len(known) > 1:
            warnings.append(f"{module} is provided by {', '.join(known)}; requirements.txt has {known[0]}.")
        lines[normalize_name(distributions[0])] = _pin(distributions[0], environment, warnings=warnings)
    return Requirements(
        lines=tuple(line for _, line in sorted(lines.items())),
        listed=given,
        warnings=tuple(warnings),
        unlisted=tuple(unlisted),
    )


def list_development(environment: Environment) -> tuple[str, ...]:
    """Return the lines of requirements-dev.txt."""
    return ("-r requirements.txt", *(_pin(name, environment, warnings=[]) for name in DEVELOPMENT))


def list_required(graph: Graph) -> tuple[str, ...]:
    """Return the requirements that a graph lists, in its metadata and in its nodes, each once."""
    general = graph.metadata.get("requirements")
    texts = [str(each) for each in general] if isinstance(general, list | tuple) else []
    return tuple(dict.fromkeys((*texts, *(text for node in graph.nodes for text in node.requirements))))


def read_name(requirement: str) -> str:
    """Return the name of the distribution of a requirement; empty if it has none."""
    found = _NAME.match(requirement)
    return found[1] if found else ""


def _pin(name: str, environment: Environment, *, warnings: list[str]) -> str:
    """Return a requirement that allows the installed version and those that are compatible with it."""
    version = environment.versions.get(normalize_name(name), "")
    found = re.match(r"(?:\d+!)?(\d+)(?:\.(\d+))?", version)
    if not found or "!" in found[0]:
        warnings.append(f"{name} is not installed, so its version is not pinned; check that it is the right package.")
        return name
    major, minor = int(found[1]), int(found[2] or 0)
    return f"{name}>={major}.{minor},<{major + 1}" if major else f"{name}>=0.{minor},<0.{minor + 1}"


@with_deep_stack
def find_modules(text: str) -> frozenset[str]:
    """Return the top-level names of the modules that a source imports anywhere, without relative imports."""
    tree = parse(text)
    found = (each for node in (ast.walk(tree) if tree is not None else ()) for each in list_imports(node))
    return frozenset(each.module.partition(".")[0] for each in found) - {""}
