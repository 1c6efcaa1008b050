"""How many steps a search for a fault takes, with the tools of a generation and without.

Faults are planted in libraries that are rebuilt from their graphs, and in the example ml-library: one alteration in one
function, which the tests notice. A scripted searcher gets the failures as a model does, and stops when it has been
shown the whole altered function. It knows nothing but what the tools return:

- *with*: the section "Where to look" (one step), then the code of each place in it, then of the names that those call.
- *without*: files and names in the failures and in the tests, with Grep for definitions and Read; then the names that
  those call. It reads whole files, or 100 lines from a definition on.

ZeroRepo (arXiv 2509.16198) reports 5.8 steps with its graph and 8.5 without, for a model, in far larger repositories.
"""

import ast
import builtins
import hashlib
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cdd_agent.agent.tools import Tool, make_file_tools, make_search_tools
from cdd_agent.clock import SystemClock
from cdd_agent.evidence.clean_copy import ProductChange
from cdd_agent.evidence.mutation import build_mutants
from cdd_agent.generation.layout import Layout
from cdd_agent.generation.localize import MOST_QUERIES, LocalizationLog, Localizer, Round, phrase_query
from cdd_agent.generation.package_files import read_package
from cdd_agent.generation.search import GraphSearch
from cdd_agent.symbols.index import Index
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tickets.graph import Graph
from cdd_agent.tickets.graph_file import read_graph
from cdd_agent.workspace.files import Workspace
from pytest_tdd_agent.codec import load
from pytest_tdd_agent.report import SuiteReport, list_failing
from tests.bench.generation import EXAMPLE, measure
from tests.libraries.catalog import REBUILT
from tests.libraries.rebuild import Rebuilding
from tests.libraries.workshop import Workshop, lay_plugins

LIBRARIES = {"cachetools": 7, "humanize": 7, "tinydb": 6}
"""Library -> faults that are planted in it."""
FAULTS_OF_EXAMPLE = 10
MOST_STEPS = 40
"""A searcher that has not found the fault by then counts as so many steps."""
WINDOW = 100


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A repository with its graph."""

    name: str
    project: Path
    graph: Graph
    layout: Layout
    run: Callable[[Path], None]
    """Runs the tests and writes a report."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An altered function, and the failures that it causes."""

    name: str
    lines: tuple[str, ...]
    """As Read and ViewCode show them."""
    report: SuiteReport

    def is_in(self, text: str) -> bool:
        """Return whether a tool has shown the whole function."""
        return all(line in text for line in self.lines)


@dataclass(kw_only=True)
class Searcher:
    """Calls tools until one shows the fault."""

    fault: Fault
    tools: dict[str, Tool]
    steps: int = 0
    characters: int = 0
    has_found: bool = False
    _seen: set[object] = field(default_factory=set)

    def call(self, name: str, **fields: str | int | bool) -> str:
        """Return the answer of a tool; nothing for a call that was made before, or after the end."""
        key = (name, *sorted(fields.items()))
        if self.has_found or self.steps >= MOST_STEPS or key in self._seen:
            return ""
        self._seen.add(key)
        self.steps += 1
        text = self.tools[name].run(fields).text
        self.note(text)
        return text

    def note(self, text: str) -> None:
        """Count a text that it is shown."""
        self.characters += len(text)
        self.has_found = self.has_found or self.fault.is_in(text)


def search_with_tools(fault: Fault, round: Round) -> Searcher:
    """Follow the section "Where to look", then dependencies."""
    searcher = Searcher(fault=fault, tools={tool.spec.name: tool for tool in round.make_tools()}, steps=1)
    where = round.describe_where()
    searcher.note(where)
    waiting: list[tuple[str, str]] = re.findall(r"^- `([^`]+)` \(([^:)]+):\d+\)", where, re.MULTILINE)
    waiting += [(node, "") for node in re.findall(r"^\d+\. .* \((\S+)\) \[", where, re.MULTILINE)]
    while waiting and not searcher.has_found and searcher.steps < MOST_STEPS:
        name, path = waiting.pop(0)
        fields = {"place": path, "definition": name} if path else {"place": name}
        text = searcher.call("ViewCode", **fields)
        code = "\n".join(line for line in text.splitlines() if re.match(r" *\d+\t", line))
        waiting += [(each, "") for each in list_called(code)]
    return searcher


def search_without_tools(fault: Fault, workspace: Workspace, *, window: int) -> Searcher:
    """Read the files that the failures name, and grep for definitions. ``window`` lines are read; 0: whole files."""
    glob, grep = make_search_tools(workspace)
    read, *_ = make_file_tools(workspace, lambda _: None)
    searcher = Searcher(fault=fault, tools={"Grep": grep, "Read": read, "Glob": glob})
    text = format_failures(fault.report)
    shown = list[str]()

    def open_at(path: str, line: int) -> None:
        fields = {"offset": max(line - 1, 1), "limit": window} if window else {}
        shown.append(searcher.call("Read", file_path=path, **fields))

    for path, line in dict.fromkeys(reversed(re.findall(r"\b(src/[\w/.]+\.py):(\d+)", text))):
        open_at(path, max(int(line) - window // 2, 1))
    failing = "\n".join(re.findall(r"^[>E] .*$", text, re.MULTILINE))
    named = [name for name in re.findall(r"[A-Za-z_]\w+", text) if len(name) > 2]
    waiting, known = order_builtins_last((*list_called(failing), *list_called(text), *named)), set[str]()
    while waiting and not searcher.has_found and searcher.steps < MOST_STEPS:
        name = waiting.pop(0)
        if name in known:
            continue
        known.add(name)
        hits = searcher.call("Grep", pattern=rf"(def|class) {re.escape(name)}\b", path="src")
        for path, line in re.findall(r"^(src/[^:]+):(\d+):", hits, re.MULTILINE)[:5]:
            open_at(path, int(line))
        waiting += [each for page in shown for each in list_called(find_body(page, name)) if each not in known]
    return searcher


def list_called(text: str) -> list[str]:
    """Return the names before a parenthesis, in order, those that Python has after the others."""
    return order_builtins_last(re.findall(r"([A-Za-z_]\w+)\s*\(", text))


def order_builtins_last(names: Iterable[str]) -> list[str]:
    """Return the names without duplicates; a repository may define one that Python has too."""
    return sorted(dict.fromkeys(names), key=lambda name: hasattr(builtins, name))


def find_body(page: str, name: str) -> str:
    """Return the lines of a definition in numbered lines."""
    lines = [line.partition("\t")[2] for line in page.splitlines()]
    starts = [at for at, line in enumerate(lines) if re.match(rf"\s*(async )?(def|class) {re.escape(name)}\b", line)]
    found = []
    for start in starts:
        indent = len(lines[start]) - len(lines[start].lstrip())
        for line in lines[start + 1 :]:
            if line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            found.append(line)
    return "\n".join(found)


def plant(ground: Ground, *, count: int) -> Iterator[Fault]:
    """Yield faults, in an order that depends on names alone; the repository has each until the next is asked for."""
    out = ground.project.parent / "fault.json"
    ground.run(out)
    before = {*list_failing(load(out))}
    leaves = sorted(ground.graph.leaves, key=lambda node: hashlib.sha256(str(node.id).encode()).digest())
    found = 0
    for node in leaves:
        definition = node.definitions[0]
        path = ground.layout.map_path(definition.file_path)
        file = ground.project / path
        original = file.read_text(encoding="utf-8")
        altered = alter(path, original, definition.name)
        if found == count or altered is None:
            continue
        file.write_text(altered, encoding="utf-8")
        try:
            out.unlink(missing_ok=True)
            ground.run(out)
            report = load(out) if out.exists() else None
            if report is None or report.collect_errors:
                continue
            new = {*list_failing(report)} - before
            if not new:
                continue
            failing = replace(report, tests=tuple(case for case in report.tests if case.nodeid in new))
            place = find_lines(altered, definition.name)
            assert place is not None
            first, last = place
            shown = altered.splitlines()
            lines = tuple(f"{number:>6}\t{shown[number - 1]}" for number in range(first, last + 1))
            found += 1
            yield Fault(name=f"{ground.name}: {definition.name}", lines=lines, report=failing)
        finally:
            file.write_text(original, encoding="utf-8")


def alter(path: str, text: str, name: str) -> str | None:
    """Return a source with one alteration in a function or class; None if there is none."""
    place = find_lines(text, name)
    if place is None:
        return None
    lines = text.splitlines(keepends=True)
    # Placeholders, so that a comparison of lines cannot take a similar function for this one.
    indent = re.match(r"\s*", lines[place[0] - 1])
    assert indent is not None
    holes = [f"{indent[0]}hole_{number} = {number}\n" for number in range(place[0], place[1] + 1)]
    without = "".join((*lines[: place[0] - 1], *holes, *lines[place[1] :]))
    made = build_mutants([ProductChange(path=path, old=without, new=text)]).chosen
    return next((mutant.texts[path] for mutant in made if not mutant.functions), None)


def find_lines(text: str, name: str) -> tuple[int, int] | None:
    """Return the first and last line of a function with a qualified name, without its decorators."""

    def find(body: list[ast.stmt], parts: list[str]) -> tuple[int, int] | None:
        for each in body:
            if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and each.name == parts[0]:
                if len(parts) > 1:
                    return find(each.body, parts[1:])
                return None if isinstance(each, ast.ClassDef) else (each.lineno, each.end_lineno or each.lineno)
        return None

    return find(ast.parse(text).body, name.split("."))


def make_library(name: str) -> Ground:
    """Unpack a library, and put its package below ``src``."""
    workshop = Workshop(next(each for each in REBUILT if each.name == name))
    workshop.prepare()
    original = workshop.take_package()
    module = workshop.library.import_name
    path = original / module if (original / module).is_dir() else original / f"{module}.py"
    rebuilding = Rebuilding.of(read_package(str(path), search=()), original)
    source = workshop.project / "src"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(original, source)

    def run(out: Path) -> None:
        workshop.pytest("fault", "-p", "pytest_tdd_agent", f"--tdd-agent-report={out}", first=source)

    return Ground(name=name, project=workshop.project, graph=rebuilding.graph, layout=rebuilding.layout, run=run)


def make_example(folder: Path) -> Ground:
    """Generate the example ml-library."""
    measure(folder, jobs=1)
    graph = read_graph(EXAMPLE / "graph.json")[0]

    def run(out: Path) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--tdd-agent-report={out}"]
        subprocess.run(command, cwd=folder / "out", capture_output=True, check=False)

    return Ground(name="ml-library", project=folder / "out", graph=graph, layout=Layout.of(graph, "graph"), run=run)


def search(ground: Ground, fault: Fault) -> list[Searcher]:
    """Let each searcher look for a fault."""
    graph, log = ground.graph, ground.project.parent / "localization.json"
    log.unlink(missing_ok=True)
    workspace = Workspace(ground.project)
    round = Round(
        localizer=Localizer(graph, ground.layout, search=lambda: GraphSearch(graph)),
        node=graph.leaves[0],
        number=1,
        log=LocalizationLog(log, clock=SystemClock()),
        definitions=Index(ground.project),
        workspace=workspace,
        status_of=lambda _: "passed",
        report=fault.report,
        is_test=lambda path: not path.startswith("src/"),
    )
    owners = [each.node for each in round.find_suspects() if each.node is not None]
    # The node that is generated when its tests fail; here, the first that the failures name.
    best = [each.node for each in round.localizer.search.find(phrase_query(fault.report))]
    round = replace(round, node=graph.by_id[next(iter((*owners, *best)), graph.leaves[0].id)])
    return [
        search_with_tools(fault, round),
        search_without_tools(fault, workspace, window=0),
        search_without_tools(fault, workspace, window=WINDOW),
    ]


HOW = ("with graph and symbols", "without, whole files", f"without, {WINDOW} lines at a time")


def show(folder: Path) -> bool:
    """Print the figures; no bar depends on them."""
    print(f"\nlocalization: steps until the planted fault is shown, at most {MOST_STEPS}")
    lay_plugins()
    grounds = [(make_library(name), count) for name, count in LIBRARIES.items()]
    print_figures("faults in libraries", [row for ground in grounds for row in try_all(*ground)])
    print_figures("faults in ml-library", try_all(make_example(folder), FAULTS_OF_EXAMPLE))
    rounds = count_recorded_rounds()
    print(f"  ml-library as recorded: {len(rounds)} nodes repaired, in {statistics.mean(rounds):.1f} rounds on average")
    return True


def print_figures(title: str, rows: list[list[Searcher]]) -> None:
    """Print the means of each way to search; each row has the searchers of one fault."""
    print(f"  {len(rows)} {title}")
    for how, searchers in zip(HOW, zip(*rows, strict=True), strict=True):
        steps = [each.steps if each.has_found else MOST_STEPS for each in searchers]
        figures = (
            f"{statistics.mean(steps):.1f} steps (median {statistics.median(steps):g})",
            f"{statistics.mean(-(-each // MOST_QUERIES) for each in steps):.2f} rounds",
            f"{statistics.mean(each.characters for each in searchers):,.0f} characters",
            f"{sum(each.has_found for each in searchers)} of {len(searchers)} found",
        )
        print(f"    {how}: {', '.join(figures)}")


def count_recorded_rounds() -> list[int]:
    """Return the attempts after the first one of each node of the example that needs some, whatever its tools."""
    last: dict[str, int] = {}
    text = (EXAMPLE / "recording.yaml").read_text(encoding="utf-8")
    for title, number in re.findall(
        r"^- when: '\^Work: generate ml-library (\S+) green attempt (\d+)", text, re.MULTILINE
    ):
        last[title] = max(last.get(title, 1), int(number))
    return [number - 1 for number in last.values() if number > 1]


def try_all(ground: Ground, count: int) -> list[list[Searcher]]:
    """Return the searchers of each fault of a repository."""
    found = []
    for fault in plant(ground, count=count):
        found.append(search(ground, fault))
        shown = ", ".join(f"{each.steps}{'' if each.has_found else ' not found'}" for each in found[-1])
        print(f"    {fault.name}: {shown}")
    return found
