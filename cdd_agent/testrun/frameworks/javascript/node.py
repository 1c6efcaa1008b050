"""``node --test``: its events, one a line, by a reporter of our own.

Its JUnit report names no files, leaves out why a group failed and escapes titles twice. A reporter may be a ``data:``
address, so that there is no file to install, and none that the tests could change.
"""

import shlex
from pathlib import Path
from urllib.parse import quote

import msgspec

from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.frameworks.framework import Ended, Finding, Framework, Results
from cdd_agent.testrun.frameworks.javascript.files import is_nodes_test
from cdd_agent.testrun.frameworks.javascript.manifests import MANIFEST, Call, Tool, calls, read_manifest
from cdd_agent.testrun.frameworks.javascript.reports import events, written
from cdd_agent.testrun.frameworks.javascript.selection import select, spelled, titles

_TOOL = Tool(name="node")
_RESULT = "node.jsonl"
_VALUED = frozenset(
    {"--import", "--loader", "--experimental-loader", "--require", "-r", "--env-file", "--conditions", "-C"}
)
_UNQUOTED = frozenset("*?{}[],!")
_CHOICE = 'for last do :; done; case $last in -*) exec node {options} "$@" {paths};; *) exec node {options} "$@";; esac'
"""The script's own paths are run only if no others are asked for: those are what the arguments end with."""


def _find(folder: Path) -> Finding | None:
    found = read_manifest(folder)
    call = next(calls(found[0], _TOOL), None) if found else None
    if call is None:
        return None
    return Finding(manifest=folder / MANIFEST, argv=_argv(call), why=call.why("node --test"))


def _argv(call: Call) -> tuple[str, ...]:
    """The script's command; paths with patterns are expanded by a shell, as they are for the script."""
    options: list[str] = []
    paths: list[str] = []
    for word in call.arguments:
        is_value = bool(options) and options[-1] in _VALUED
        (options if word.startswith("-") or is_value else paths).append(word)
    prefix = ("env", *call.variables) if call.variables else ()
    if not paths:
        return (*prefix, "node", *options)
    script = _CHOICE.format(options=shlex.join(options), paths=" ".join(map(_raw, paths)))
    return (*prefix, "sh", "-c", script, "node")


def _raw(path: str) -> str:
    """A path for a shell, in which only patterns are not taken as they are."""
    return "".join(sign if sign in _UNQUOTED else shlex.quote(sign) for sign in path)


def _arguments(targets: tuple[str, ...], results: Path) -> tuple[str, ...]:
    """All titles on the way to a test are told, as one of a group is not asked for unless the group is."""
    selection = select(targets)
    named = (f"--test-name-pattern={titles(selection.names)}",) if selection.names else ()
    return (
        f"--test-reporter=data:text/javascript,{quote(events.REPORTER)}",
        f"--test-reporter-destination={results / selection.result(_RESULT)}",
        *named,
        *map(spelled, selection.paths),
    )


def _read(ended: Ended) -> Results:
    path, is_selected = written.found_result(ended, _RESULT)
    try:
        text = read_ordinary(path, limit_bytes=written.LIMIT_BYTES).decode()
        found = events.results(text, ended, is_selected=is_selected) if text else None
    except FileNotFoundError:
        found = None
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        return Results(problem=f"The results that node --test wrote cannot be read: {error}")
    if found is None:
        return Results(problem=written.unwritten(ended, "node --test"))
    return written.unexplained(ended, found, tool="node --test")


NODE = Framework(
    name="node",
    looked_for="a script with node --test in a package.json",
    find=_find,
    arguments=_arguments,
    read=_read,
    is_test=is_nodes_test,
    variables=(("NO_COLOR", "1"),),
)
