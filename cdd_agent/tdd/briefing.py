"""The parts of a first message about the past: the files of a step, and an earlier, refused try at it.

The files are shown as they were when the step began, whole if they fit, else the parts that matter, and then the
changes since. So the first part is the same for all attempts of the step, and the server can read it from its cache.

A refused try leaves its changes, the reasons, and the agent's words. They are kept in the state as text, because
checkpoints and reports of the try are deleted when the step begins again.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cdd_agent.errors import CddError, UsageError
from cdd_agent.evidence.clean_copy import find_layout, read_sources
from cdd_agent.git.commits import commit_tree
from cdd_agent.git.repository import CommitId, Entry, ObjectReader
from cdd_agent.model.conversation import CHARACTERS_PER_TOKEN, Marks
from cdd_agent.tdd.context import Context, Phase, WorkItem
from cdd_agent.tdd.instructions import format_failures
from cdd_agent.tdd.locks import remove_write_leftovers
from cdd_agent.tdd.recovery import StepRecovery
from cdd_agent.tdd.step import load_report
from cdd_agent.tdd.verdict import list_test_files
from cdd_agent.untrusted.keys import mask
from cdd_agent.untrusted.python_source import split_lines
from cdd_agent.untrusted.text import cut_end
from cdd_agent.work.state import InterruptedWork, RefusedTry, RunState, record_interruption
from cdd_agent.work.wording import has_quoted
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.outline import list_definitions, outline_project, show_parts

_SHARE = 2
"""A file that needs more than this part of the room left is shown in parts."""
_OUTLINE_SHARE = 4
"""Of ``context_tokens``; the outline is beside them."""
_WORD = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFiles:
    """Files in the text of a request."""

    text: str
    whole: frozenset[str] = frozenset()
    """The files that are shown completely, relative to the project."""
    absent: frozenset[str] = frozenset()
    """Those that do not exist yet."""


def show_step_files(item: WorkItem, start: CommitId | None, *, context: Context, marks: Marks) -> ShownFiles:
    """Return the files and tests of ``item`` as they are in ``start``, within the budget of the policy."""
    listed = dict.fromkeys((*list_test_files(item), *item.sources, *item.extra_files))
    names = [name for name in listed if _is_readable(name, context.workspace)]
    tree = context.workplace.tree
    found: Mapping[str, str] = {}
    if start is not None and names:
        project = find_layout(tree, context.suite).project
        found = read_sources(tree, project=project, tree=start, paths=names)
    return show_files(
        {name: found.get(name) for name in names},
        words=find_words(item, found),
        limit=context.policy.context_tokens * CHARACTERS_PER_TOKEN,
        marks=marks,
    )


def outline_files(start: CommitId | None, *, context: Context, marks: Marks) -> str:
    """Return an outline of the project as it was when the step began, the same for all attempts of this process.

    So the server can read the beginning of later requests from its cache.
    """
    if (start or "") not in context.outlines:
        limit = context.policy.context_tokens * CHARACTERS_PER_TOKEN // _OUTLINE_SHARE
        outline = outline_project(context.workspace, limit=limit) if limit else ""
        context.outlines.clear()
        context.outlines[start or ""] = outline
    outline = context.outlines[start or ""]
    return f"The files of the project:\n\n{marks.wrap(outline, source='outline')}" if outline else ""


def find_words(item: WorkItem, sources: Mapping[str, str]) -> set[str]:
    """Return the words of a step and of its tests: definitions of a long file that have one as their name matter."""
    tests = (_find_test(test, sources) for test in item.tests)
    return set(_WORD.findall("\n".join((item.title, item.goal, *item.tests, *tests))))


def show_files(files: Mapping[str, str | None], *, words: Iterable[str], limit: int, marks: Marks) -> ShownFiles:
    """Return ``files``, path -> text or None, in ``limit`` characters; the first ones have more room."""
    parts, whole, room, wanted = [], set(), limit, frozenset(words)
    for name, source in files.items():
        if source is None:
            parts.append(f"`{name}` does not exist yet.")
            continue
        text = mask(source).text.encode("utf-8", "backslashreplace").decode()
        if "\0" in text:
            continue
        is_last = name == list(files)[-1]
        if len(text) <= (room if is_last else room // _SHARE):
            whole.add(name)
            shown = f"`{name}`:\n{marks.wrap(text.rstrip(), source=name, exact=True)}"
        elif room <= 0:
            parts.append(f"`{name}` is not shown: Read it.")
            continue
        else:
            outline = show_parts(name, text, names=wanted, limit=room // _SHARE)
            shown = (
                f"`{name}`, in parts (outline with lines, beginning, what the step seems to need; Read has the rest):\n"
            )
            shown += marks.wrap(outline, source=name, exact=True)
        parts.append(shown)
        room -= len(shown)
    absent = frozenset(name for name, source in files.items() if source is None)
    return ShownFiles(text="\n\n".join(parts), whole=frozenset(whole), absent=absent)


def _find_test(test: str, sources: Mapping[str, str]) -> str:
    """Return the text of a test, given as a node id or as a file; empty if it is not written yet."""
    path, *names = test.partition("[")[0].split("::")
    text = sources.get(path, "")
    if not names:
        return text
    lines = split_lines(text)
    found = (each for each in list_definitions(path, text) if each.name == names[-1])
    return "\n".join(line for each in found for line in lines[each.first - 1 : each.last])


def _is_readable(name: str, workspace: Workspace) -> bool:
    try:
        return workspace.resolve_readable(name) == name and (workspace.is_file(name) or not workspace.exists(name))
    except UsageError:
        return False


MAX_DIFF_CHARACTERS = 12_000
"""Of the changes of one phase."""
_MAX_FILE_BYTES = 200_000
_CONTEXT_LINES = 3


def format_diff(objects: ObjectReader, before: str, *, after: str) -> str:
    """Return the unified diff between two commits or trees, with keys masked, and cut if it is long."""
    parts = []
    for path, (old, new) in objects.compare(before, after).items():
        texts = [_read_lines(objects, entry) for entry in (old, new)]
        if None in texts:
            parts.append(f"{path}: a large or binary file changed")
            continue
        names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
        lines = difflib.unified_diff(texts[0] or [], texts[1] or [], *names, n=_CONTEXT_LINES, lineterm="")
        kind = "mode changed"
        if not old:
            kind = "created"
        elif not new:
            kind = "deleted"
        parts.append("\n".join(lines) or f"{path}: {kind}")
    return cut_end(mask("\n".join(parts)).text, MAX_DIFF_CHARACTERS)


def is_cut(diff: str) -> bool:
    """Return whether ``format_diff`` left something out."""
    return len(diff) > MAX_DIFF_CHARACTERS


def _read_lines(objects: ObjectReader, entry: Entry | None) -> list[str] | None:
    """Return the lines of a file, none of a missing one, or None if they cannot be shown."""
    found = objects.read(entry.id) if entry is not None else None
    data = found.data if found is not None else b""
    if len(data) > _MAX_FILE_BYTES or b"\0" in data:
        return None
    return data.decode("utf-8", "backslashreplace").splitlines()


def describe_refusal(recovery: StepRecovery) -> RefusedTry | None:
    """Return what the last try at the step leaves for the next one; None if its last attempt was not refused."""
    step, context = recovery.step, recovery.context
    last = step.attempts[-1] if step.attempts else None
    if last is None or last.is_open:
        return None
    report, reasons = load_report(last, root=context.records.folder), last.reasons
    return RefusedTry(
        phase=last.phase,
        reasons=reasons,
        failures="" if report is None else format_failures(report, rank=lambda nodeid: not has_quoted(reasons, nodeid)),
        words=last.words,
        diffs=_list_diffs(recovery),
    )


def save_interruption(recovery: StepRecovery, *, words: str = "") -> InterruptedWork | None:
    """Save the files of the attempt that is under way, and return its work.

    If no attempt is under way, return the work that the step has saved. None: the attempt has changed nothing.
    """
    step, context, before = recovery.step, recovery.context, recovery.find_attempt()
    # The tree may be gone; an earlier version may have made the attempt in the user's own files.
    has_files = context.workplace.run_tree.is_on(recovery.refs.read_tip())
    if before is None or step.phase is None or not has_files:
        return step.interrupted
    recovery.refs.freeze_ignore_rules()
    remove_write_leftovers(context.workplace.tree)  # the file that the model was writing is not its work
    # A test run that was interrupted too may have left files.
    files = context.find_files_before_tests() or context.snapshots.take_unsaved().commit
    tree = context.workplace.tree
    diff = format_diff(tree.objects, before, after=files)
    if not diff:
        return None
    ref = recovery.free_ref("interrupted")
    made = commit_tree(tree, files, parent=before, message=f"{step.phase}, interrupted")
    context.repository.refs.set(ref, made)
    words = words or (step.interrupted.words if step.interrupted is not None else "")
    return InterruptedWork(phase=step.phase, files=ref, diff=diff, words=words)


def keep_interruption(state: RunState, recovery: StepRecovery) -> RunState:
    """Return ``state`` with the work of the attempt that was killed, if one was; else ``state`` itself."""
    try:
        work = save_interruption(recovery)
    except (CddError, OSError):  # the run tree may be damaged, and is made again
        return state
    return (
        state if work == recovery.step.interrupted else record_interruption(state, recovery.step.step_number, work=work)
    )


def _list_diffs(recovery: StepRecovery) -> dict[Phase, str]:
    """Return phase -> the changes of its last attempt that made some."""
    diffs: dict[Phase, str] = {}
    snapshots, objects = recovery.context.snapshots, recovery.context.workplace.tree.objects
    for attempt in recovery.step.attempts:
        before = snapshots.find(recovery.baseline_ref(attempt.phase))
        after = snapshots.find(attempt.checkpoint)
        if before is None or after is None:
            continue
        if diff := format_diff(objects, before.commit, after=after.commit):
            diffs[attempt.phase] = diff
    return diffs
