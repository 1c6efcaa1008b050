"""Check that the sources of a change can be read, before the other checks read them.

The change may not make a source unreadable, or add one that is: with an unknown encoding, with one that makes Python
run other characters than the file shows, or nested more than ten thousand levels deep. A source that could not be read
before is reported as not verified.
"""

import os
from collections.abc import Callable, Collection, Iterable

from cdd_agent.evidence.clean_copy import CheckRequest, Findings, find_layout, note, read_through_links, refuse
from cdd_agent.evidence.mutation import TimedRuns
from cdd_agent.testrun.foreign import learn_syntax, make_syntax_check
from cdd_agent.untrusted.python_source import PYTHON, decode, explain_unreadable, find_syntax_error, parse
from cdd_agent.untrusted.text import format_line
from pytest_tdd_agent.sources import UnreadableSource, find_encoding


def check_request(request: CheckRequest, *, runs: TimedRuns) -> Findings:
    """Return what of a change and of the tests for it cannot be read."""
    paths = [change.path for change in request.changes]
    findings = check_sources(paths, before=request.red, after=request.green, runs=runs)
    tests = _read(request.tests, tree=request.red, runs=runs)
    learn_syntax(map(decode, filter(None, tests.values())), suite=runs.suite)
    for path, content in tests.items():
        if why := explain_unreadable(content or b""):
            findings += note("readable", "unread", path=path, why=why)
    return findings


def check_sources(paths: Collection[str], *, before: str, after: str, runs: TimedRuns) -> Findings:
    """Return why one of these files, which a change may have altered, cannot be read.

    ``paths`` are relative to the project, ``before`` and ``after`` are trees. The trees of code that only the
    project's Python can parse are known afterwards.
    """
    findings = Findings()
    if not runs.suite.conventions.is_python:
        return findings
    old, new = (_read(paths, tree=tree, runs=runs) for tree in (before, after))
    learn_syntax(map(decode, filter(None, (*old.values(), *new.values()))), suite=runs.suite)
    find_error = make_syntax_check(runs.suite)
    for path, content in new.items():
        if content is None and (path not in old or old[path] is not None):
            findings += refuse("unreadable_source", "link_leads_out", path=path)
        elif content is not None and content != old.get(path):
            findings += judge_source(path, before=old.get(path), after=content, find_error=find_error)
    return findings


def judge_source(
    path: str, *, before: bytes | None, after: bytes, find_error: Callable[[bytes], str | None] = find_syntax_error
) -> Findings:
    """Judge the bytes of a source before and after a change; with ``before`` None, the source is new.

    ``find_error`` returns why the project's Python cannot parse a source.
    """
    was, why = explain_unreadable(before or b""), explain_unreadable(after)
    if why and was:
        return note("readable", "unread", path=path, why=why)
    if why:
        return refuse("unreadable_source", path=path, why=why)
    if parse(decode(after)) is None:
        error = find_error(after)
        if error is None:
            return note("readable", "unread_foreign", path=path)
        if before is not None and not was and _has_code(before):
            return refuse("unreadable_source", "not_python", path=path, error=format_line(error))
    encoding = find_encoding(after)
    if not encoding.startswith("utf-8") and encoding != _find_encoding(before or b""):
        return note("readable", "encoding", outcome="review", path=path, encoding=encoding)
    return Findings()


def _has_code(content: bytes) -> bool:
    tree = parse(decode(content))
    return tree is not None and bool(tree.body)


def _find_encoding(content: bytes) -> str:
    try:
        return find_encoding(content)
    except UnreadableSource:
        return ""


def _read(paths: Iterable[str], *, tree: str, runs: TimedRuns) -> dict[str, bytes | None]:
    """Return the Python files among ``paths`` that are in a tree -> their bytes; None: a link out of it."""
    repository, project = runs.repository, find_layout(runs.repository, runs.suite).project
    full = {path: os.path.normpath(os.path.join(project, path)) for path in paths if path.endswith(PYTHON)}
    there = {path: each for path, each in full.items() if repository.objects.find_entry(tree, each) is not None}
    return {path: read_through_links(repository, tree, path=each) for path, each in there.items()}
