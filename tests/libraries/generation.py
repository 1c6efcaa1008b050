"""``python -m tests.libraries.generation``: ``cdd generate --tests`` rebuilds libraries from graphs, node by node.

The recording answers each node with the true bodies. Afterwards the library's own tests run on the result. Exit status
is 1 if a test that passed with the library does not pass.
"""

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cdd_agent.generation.data_files import copy_data, find_data_folder
from cdd_agent.generation.layout import SOURCES
from cdd_agent.generation.package_files import read_package
from cdd_agent.generation.plan import GenerationPlan
from cdd_agent.runs.graph_nodes import MAX_IDENTICAL_FAILURES
from cdd_agent.tickets.graph import Node
from cdd_agent.tickets.graph_file import encode_graph
from cdd_agent.untrusted.python_source import decode
from tests.libraries.catalog import REBUILT, Library
from tests.libraries.rebuild import SHOWN, Rebuilding, list_functions, restore_bodies
from tests.libraries.workshop import Workshop, lay_plugins

TIMEOUT_S = 3_000
CALLS = 10
"""The most tool calls of a turn."""
FOLDER = Path(tempfile.gettempdir()) / "cdd-generated"
"""Where the results stay: outside of this repository."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of generating a library."""

    nodes: int
    status: int
    tests: int
    """Those that pass with the library."""
    lost: tuple[str, ...]
    """Those of them that do not pass with the result."""
    said: str
    """The last lines of the command."""


def record(rebuilding: Rebuilding, path: Path) -> None:
    """Write a recording whose turns hand in the true body of each node."""
    plan = GenerationPlan(graph=rebuilding.graph, layout=rebuilding.layout, source=path)
    turns, before = list[dict[str, object]](), rebuilding.skeleton
    for node, files in rebuilding.rebuild():
        turns += list_turns(node, replace(rebuilding, skeleton=before), plan=plan)
        before = dict(files)
    path.write_text(json.dumps(turns), encoding="utf-8")


def list_turns(node: Node, rebuilding: Rebuilding, *, plan: GenerationPlan) -> Iterator[dict[str, object]]:
    """Yield a turn for each attempt at a node, with an edit for each of its functions.

    The skeleton of ``rebuilding`` has the bodies of the nodes before this one.
    """
    calls: list[dict[str, object]] = []
    for file in dict.fromkeys(each.file_path for each in node.definitions):
        path = plan.layout.map_path(file)
        text = new = rebuilding.skeleton[path.removeprefix(f"{SOURCES}/")].decode()
        original = decode(rebuilding.package.sources[file.removeprefix(f"{SOURCES}/")])
        for each in node.definitions:
            new = restore_bodies(new, original, definition=each) if each.file_path == file else new
        # From the end, so that the lines above are as they were.
        calls += [edit(path, old, new=now) for old, now in reversed([*pair(text, new)])]
    given = {"implementation_files": [], "summary": "The true body."}
    calls.append({"type": "tool_use", "name": "CompleteImplementation", "input": given})
    title = plan.layout.title_of(node)
    for attempt in range(1, 1 + MAX_IDENTICAL_FAILURES):
        for first in range(0, len(calls), CALLS):
            when = f"^Work: generate {plan.slug} {re.escape(title)} green attempt {attempt}$"
            yield {"when": when, "content": calls[first : first + CALLS]}


def edit(path: str, old: str, *, new: str) -> dict[str, object]:
    """Return a call of the tool Edit."""
    given = {"file_path": path, "old_string": old, "new_string": new}
    return {"type": "tool_use", "name": "Edit", "input": given}


def pair(text: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield the functions of two forms of a module that have the same definitions, each with enough before it."""
    before, after = ([*list_functions(ast.parse(each).body)] for each in (text, new))
    lines, now = text.split("\n"), new.split("\n")
    for (_, old), (_, other) in zip(before, after, strict=True):
        spans = [(each.lineno, each.end_lineno or 0) for each in (old, other)]
        (first, last), (start, end) = spans
        if lines[first - 1 : last] == now[start - 1 : end]:
            continue
        more = 0
        while text.count("\n".join(lines[first - 1 - more : last])) > 1 and first - 1 - more > 0:
            more += 1
        yield (
            "\n".join(lines[first - 1 - more : last]),
            "\n".join(lines[first - 1 - more : first - 1] + now[start - 1 : end]),
        )


def find_tests(workshop: Workshop) -> Path:
    """Return the folder or file with the tests of a library."""
    folders = (workshop.project / place for place in ("own_tests", "tests", "test", "testing"))
    files = sorted(workshop.project.glob("test*.py"))
    return next(path for path in (*folders, *files) if path.exists())


def examine(library: Library, *, sandbox: str, jobs: int) -> Finding:
    """Generate a library, and run its tests on both."""
    workshop = Workshop(library)
    workshop.prepare()
    original = workshop.take_package()
    name = library.import_name
    path = original / name if (original / name).is_dir() else original / f"{name}.py"
    rebuilding = Rebuilding.of(read_package(str(path), search=()), original)
    out = FOLDER / library.name
    shutil.rmtree(out, ignore_errors=True)
    graph, recording = workshop.folder / f"{name}.json", workshop.folder / "recording.json"
    graph.write_bytes(encode_graph(rebuilding.graph))
    copy_data(rebuilding.graph, rebuilding.package, to=find_data_folder(graph))
    record(rebuilding, recording)
    variables = {**os.environ, "PYTHONPATH": str(workshop.site), "XDG_STATE_HOME": str(workshop.folder / "state")}
    variables |= {
        f"GIT_{who}_{what}": "cdd@example.invalid" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    command = [sys.executable, "-m", "cdd_agent", "--replay", str(recording), "--sandbox", sandbox, "generate"]
    options = ["--tests", str(find_tests(workshop)), "--yes", "--no-review", "--anyway", "--jobs", str(jobs)]
    done = subprocess.run(
        [*command, str(graph), "--out", str(out), *options],
        cwd=Path(__file__).parents[2],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    (workshop.folder / "out" / "generate.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    own = ("own_tests",) if (workshop.project / "own_tests").exists() else ()
    runs = [
        workshop.pytest(where.name, "-p", "no:pytest_tdd_agent", *own, first=where) for where in (original, out / "src")
    ]
    before, after = (run.outcomes for run in runs)
    passed = [test for test, outcome in before.items() if outcome == "passed"]
    return Finding(
        nodes=len(rebuilding.graph.leaves),
        status=done.returncode,
        tests=len(passed),
        lost=tuple(test for test in passed if after.get(test) != "passed"),
        said="\n".join((done.stdout + done.stderr).strip().splitlines()[-4:]),
    )


def main(arguments: list[str]) -> int:
    """Generate the libraries, or those named, and print a table; 1 if a test is lost."""
    options = argparse.ArgumentParser(prog="python -m tests.libraries.generation")
    options.add_argument("--sandbox", default="auto", help="the level of the sandbox (default: auto)")
    options.add_argument("--jobs", type=int, default=1, help="agents at once (default: 1)")
    options.add_argument("names", nargs="*", help="of libraries (default: all)")
    chosen = options.parse_args(arguments)
    lay_plugins()
    print(f"{'library':<24} {'nodes':>6} {'tests':>6} {'lost':>6} {'exit':>5} {'seconds':>8}")
    status = 0
    for library in (each for each in REBUILT if not chosen.names or each.name in chosen.names):
        began = time.monotonic()
        found = examine(library, sandbox=chosen.sandbox, jobs=chosen.jobs)
        took = time.monotonic() - began
        print(
            f"{library.pin:<24} {found.nodes:>6} {found.tests:>6} {len(found.lost):>6} {found.status:>5} {took:>8.0f}",
            flush=True,
        )
        for line in (*found.lost[:SHOWN], *(found.said.splitlines() if found.lost or found.status else ())):
            print(f"    {line[:300]}")
        status |= bool(found.lost or not found.tests)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
