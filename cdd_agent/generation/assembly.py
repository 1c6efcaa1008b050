"""The files around the code of a generated repository. README and pyproject.toml are written here. Pure.

Names and texts come from the graph, from its specification and from models, so they are cleaned and bounded.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from cdd_agent.errors import format_count
from cdd_agent.generation.generation_report import (
    CHECKPOINT,
    GRAPH,
    REPORT,
    TEST_RESULTS,
    escape_markdown,
    export_graph,
    write_checkpoint,
    write_junit,
    write_report,
)
from cdd_agent.generation.layout import SOURCES, Layout
from cdd_agent.generation.outcome import GenerationOutcome
from cdd_agent.generation.requirements import (
    Environment,
    Requirements,
    find_requirements,
    list_development,
    list_required,
)
from cdd_agent.tickets.graph import Graph, Node, NodeId
from cdd_agent.untrusted.text import clean, fence, shorten
from pytest_tdd_agent.report import SuiteReport

_LONGEST = 300
_LONGEST_OVERVIEW = 4_000
_LONGEST_EXAMPLE = 2_000
_MOST_EXAMPLES = 5
_COMMANDS = ("cli", "entry_point", "command")
"""Types of nodes that are commands."""
_COMMAND_MODULES = ("__main__", "cli", "main")


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """Everything from which the files around the code are made."""

    graph: Graph
    layout: Layout
    outcome: GenerationOutcome
    files: Mapping[str, str]
    """Path -> text of the code, without tests."""
    environment: Environment
    """That of the interpreter with which the tests ran."""
    specification: str = ""
    """The text of the file that ``nl_spec_path`` in the graph's metadata names."""
    report: SuiteReport | None = None
    """The last run of all tests."""

    @cached_property
    def info(self) -> "ProjectInfo":
        """What README and pyproject.toml say."""
        return describe_project(self.graph, self.layout, specification=self.specification)

    @cached_property
    def requirements(self) -> Requirements:
        """The packages that the repository needs."""
        return find_requirements(
            self.files,
            self.environment,
            listed=list_required(self.graph),
            first_party={self.layout.package, *(path.split("/")[1].removesuffix(".py") for path in self._sources)},
        )

    @property
    def _sources(self) -> Iterator[str]:
        return (path for path in self.files if path.startswith(f"{SOURCES}/"))

    @cached_property
    def completed(self) -> GenerationOutcome:
        """The record with the packages that the graph does not list, and the warnings of the assembly."""
        warnings = dict.fromkeys((*self.outcome.warnings, *self.info.warnings, *self.requirements.warnings))
        missing = dict.fromkeys((*self.outcome.missing_packages, *self.requirements.unlisted))
        return replace(self.outcome, warnings=tuple(warnings), missing_packages=tuple(missing))

    def write(self) -> Mapping[str, bytes]:
        """Return path -> content, sorted by path."""
        lines = self.requirements.lines
        python = self.environment.python or "3.9"
        texts = {
            "README.md": write_readme(self.info, self.graph, layout=self.layout, outcome=self.completed),
            "pyproject.toml": write_pyproject(self.info, self.layout, requirements=lines, python=python),
            "requirements.txt": "".join(f"{line}\n" for line in lines),
            "requirements-dev.txt": "".join(f"{line}\n" for line in list_development(self.environment)),
            REPORT: write_report(self.completed),
        }
        files = {path: text.encode("utf-8", "replace") for path, text in texts.items()}
        files[GRAPH] = export_graph(self.graph, self.completed)
        files[CHECKPOINT] = write_checkpoint(self.completed)
        if self.report is not None:
            files[TEST_RESULTS] = write_junit(self.report)
        return dict(sorted(files.items()))


# The project


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectInfo:
    """What README and pyproject.toml say about a repository."""

    name: str
    """Of the distribution."""
    title: str
    description: str
    """One line."""
    overview: str
    """Markdown of the specification."""
    authors: tuple[str, ...] = ()
    license: str = ""
    version: str = "0.1.0"
    scripts: Mapping[str, str] = field(default_factory=dict)
    """Command -> ``module:function``."""
    warnings: tuple[str, ...] = ()
    """One for each placeholder."""


def describe_project(graph: Graph, layout: Layout, *, specification: str = "") -> ProjectInfo:
    """Return what the metadata of a graph and its specification (Markdown) say, with placeholders for the rest."""
    values = {key: shorten(clean(value), _LONGEST) for key, value in graph.metadata.items() if isinstance(value, str)}
    headings = re.findall(r"^#\s+(.+?)\s*#*$", clean(specification), re.MULTILINE)
    overview = _read_overview(specification)
    description = values.get("description") or _read_sentence(overview)
    authors = _list_texts(graph.metadata.get("authors")) or _list_texts(graph.metadata.get("author"))
    authors = authors or tuple(re.findall(r"^[*_\s-]*Authors?[*_]*:[*_]*\s*(.+?)\s*$", clean(specification), re.M)[:1])
    title = shorten(headings[0], _LONGEST) if headings else values.get("name") or layout.package
    warnings = []
    if not description:
        description = f"The library {layout.package}."
        warnings.append("The graph has no description; README.md and pyproject.toml have a placeholder.")
    if not authors:
        warnings.append("The graph names no author; pyproject.toml has none.")
    if not values.get("license"):
        warnings.append("The graph names no license; pyproject.toml has none.")
    return ProjectInfo(
        name=layout.package.replace("_", "-"),
        title=title,
        description=description,
        overview=overview or description,
        authors=authors,
        license=values.get("license", ""),
        version=values.get("version", "") if re.fullmatch(r"\d+(\.\d+)*", values.get("version", "")) else "0.1.0",
        scripts=_find_scripts(graph, layout),
        warnings=tuple(warnings),
    )


def _list_texts(value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple):
        return ()
    return tuple(shorten(clean(each), _LONGEST) for each in found if isinstance(each, str) and each.strip())


def _read_overview(specification: str) -> str:
    """Return the text before the first heading, or below it if it comes first."""
    lines = list[str]()
    for line in clean(specification).splitlines():
        if re.match(r"#{1,6}\s", line):
            if "".join(lines).strip():
                break
            continue
        lines.append(line)
    if sum(line.lstrip().startswith("```") for line in lines) % 2:  # an open block would swallow what follows
        lines.append("```")
    text = "\n".join(lines).strip()
    return text if len(text) <= _LONGEST_OVERVIEW else f"{text[:_LONGEST_OVERVIEW].rstrip()}..."


def _read_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    found = re.match(r".+?[.!?](?=\s|$)", paragraph)
    return shorten(found[0] if found else paragraph, _LONGEST)


def _find_scripts(graph: Graph, layout: Layout) -> dict[str, str]:
    """Return the commands of a graph: those of its metadata, else its functions that are commands."""
    given = graph.metadata.get("scripts")
    target = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
    if isinstance(given, dict):
        texts = {str(name): str(value) for name, value in given.items()}
        return {n: value for n, value in texts.items() if re.fullmatch(r"[\w.-]+", n) and target.fullmatch(value)}
    main, others = dict[str, str](), dict[str, str]()
    for node in graph.leaves:
        if "." in node.name or not node.file_path:
            continue
        module = layout.module_of(node.file_path)
        if node.name == "main" and module.rpartition(".")[2] in _COMMAND_MODULES:
            main.setdefault(layout.package.replace("_", "-"), f"{module}:main")
        elif node.type in _COMMANDS:
            others.setdefault(node.name.replace("_", "-"), f"{module}:{node.name}")
    return {**others, **main}


def write_pyproject(
    info: ProjectInfo, layout: Layout, *, requirements: Sequence[str] = (), python: str = "3.9", has_readme: bool = True
) -> str:
    """Return pyproject.toml. ``python``: the version with which the tests ran."""
    version = ".".join(python.split(".")[:2])
    classifiers = ["Development Status :: 3 - Alpha", "Programming Language :: Python :: 3"]
    classifiers.append(f"Programming Language :: Python :: {version}")
    lines = ["[build-system]", 'requires = ["setuptools>=70.1"]', 'build-backend = "setuptools.build_meta"', ""]
    lines += ["[project]", f"name = {quote_toml(info.name)}", f"version = {quote_toml(info.version)}"]
    lines += [f"description = {quote_toml(info.description)}", *(['readme = "README.md"'] if has_readme else [])]
    lines += [f"requires-python = {quote_toml(f'>={version}')}"]
    if info.license:
        lines.append(f"license = {{text = {quote_toml(info.license)}}}")
    if info.authors:
        lines.append(f"authors = [{', '.join(map(_write_author, info.authors))}]")
    lines += _write_list("classifiers", sorted(classifiers))
    if requirements:
        lines += _write_list("dependencies", requirements)
    if info.scripts:
        lines += ["", "[project.scripts]"]
        lines += [f"{quote_toml(name)} = {quote_toml(target)}" for name, target in sorted(info.scripts.items())]
    if all(real == f"{SOURCES}/{layout.package}.py" for _, real in layout.rows):
        lines += ["", "[tool.setuptools]", f'package-dir = {{"" = "{SOURCES}"}}', f'py-modules = ["{layout.package}"]']
    else:
        lines += ["", "[tool.setuptools.packages.find]", f'where = ["{SOURCES}"]']
    return "\n".join(lines) + "\n"


def quote_toml(text: str) -> str:
    r"""Return a text as a TOML string.

    >>> print(quote_toml('a "b" \\ \x7f'))
    "a \"b\" \\ "
    """
    # Without ASCII escapes, which JSON writes as pairs of surrogates; TOML has none.
    return json.dumps(clean(text), ensure_ascii=False)


def _write_list(key: str, values: Sequence[str]) -> list[str]:
    return [f"{key} = [", *(f"    {quote_toml(value)}," for value in values), "]"]


def _write_author(author: str) -> str:
    found = re.fullmatch(r"(.*?)\s*<([^<>\s]+@[^<>\s]+)>", author)
    if not found:
        return f"{{name = {quote_toml(author)}}}"
    name = f"name = {quote_toml(found[1])}, " if found[1] else ""
    return f"{{{name}email = {quote_toml(found[2])}}}"


# README


def write_readme(info: ProjectInfo, graph: Graph, *, layout: Layout, outcome: GenerationOutcome) -> str:
    """Return README.md. Examples are those of nodes that passed."""
    passed = {node.id for node in outcome.nodes if node.status == "passed"}
    total = outcome.counts.total()
    proved = f"{outcome.proved} of {format_count(total, 'node')} {'is' if total == 1 else 'are'} proved by tests."
    report = "[the report](docs/generation_report.md)"
    run = "pytest tests/" if outcome.given_tests is None else "pytest"
    sections = [
        f"# {escape_markdown(info.title)}",
        info.overview,
        f"This repository was generated from {_link_graph(outcome)}. {proved} See {report}.",
        "## Installation",
        fence("pip install -e .", language="sh"),
        "## Usage",
        *_write_usage(info, graph, layout=layout, passed=passed),
        "## Modules",
        "\n".join(_list_modules(graph, layout)),
        "## Tests",
        fence(f"pip install -r requirements-dev.txt\n{run}", language="sh"),
    ]
    return "\n\n".join(sections) + "\n"


def _link_graph(outcome: GenerationOutcome) -> str:
    return f"[a planning graph]({outcome.graph_path})"


def _write_usage(info: ProjectInfo, graph: Graph, *, layout: Layout, passed: Collection[NodeId]) -> Iterator[str]:
    for command in sorted(info.scripts):
        yield fence(f"{command} --help", language="sh")
    examples = [node for node in graph.leaves if node.id in passed and node.example.strip()]
    for node in examples[:_MOST_EXAMPLES]:
        example = clean(node.example).strip("\n")
        if len(example) <= _LONGEST_EXAMPLE:
            yield fence(_add_import(example, node, layout=layout), language="python")
    if not examples:
        yield fence(f"import {layout.package}", language="python")


def _add_import(example: str, node: Node, *, layout: Layout) -> str:
    """Return the example with an import of what it shows, unless it has imports."""
    name = node.name.partition(".")[0]
    if not node.file_path or re.search(r"^\s*(>>> )?(import|from)\s", example, re.MULTILINE):
        return example
    prompt = ">>> " if example.lstrip().startswith(">>>") else ""
    return f"{prompt}from {layout.module_of(node.file_path)} import {name}\n{example}"


def _list_modules(graph: Graph, layout: Layout) -> Iterator[str]:
    """Yield a table: each module, its purpose, and its public names."""
    purposes, names = dict[str, str](), dict[str, list[str]]()
    for node in graph.nodes:
        if node.node_type == "composite" and node.file_path:
            purposes.setdefault(layout.module_of(node.file_path), _read_sentence(clean(node.docstring).strip()))
        for each in node.definitions:
            found = names.setdefault(layout.module_of(each.file_path), [])
            if not each.name.startswith("_") and "." not in each.name and each.name not in found:
                found.append(each.name)
    yield "| Module | Purpose | Contents |"
    yield "|--------|---------|----------|"
    for module in sorted(names):
        contents = ", ".join(f"`{name}`" for name in names[module])
        yield f"| `{module}` | {escape_markdown(purposes.get(module, ''))} | {contents} |"
