"""The files of a step, as an attempt shows them to the model: whole if they fit, else the parts that matter.

They are shown as they were when the step began, followed by the changes since. So the first part is the same for all
attempts of the step, and the server can read it from its cache.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cdd_agent.errors import UsageError
from cdd_agent.evidence.clean_copy import find_layout, read_sources
from cdd_agent.git.repository import CommitId
from cdd_agent.model.conversation import CHARACTERS_PER_TOKEN, Marks
from cdd_agent.tdd.context import Context, WorkItem
from cdd_agent.tdd.verdict import list_test_files
from cdd_agent.untrusted.keys import mask
from cdd_agent.workspace.files import Workspace
from cdd_agent.workspace.outline import list_definitions, show_parts

_SHARE = 2
"""A file that needs more than this part of the room left is shown in parts."""
_WORD = re.compile(r"[^\W\d]\w{2,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFiles:
    """Files in the text of a request."""

    text: str
    whole: frozenset[str] = frozenset()
    """The files that are shown completely, relative to the project."""


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
    return ShownFiles(text="\n\n".join(parts), whole=frozenset(whole))


def _find_test(test: str, sources: Mapping[str, str]) -> str:
    """Return the text of a test, given as a node id or as a file; empty if it is not written yet."""
    path, *names = test.partition("[")[0].split("::")
    text = sources.get(path, "")
    if not names:
        return text
    lines = text.splitlines()
    found = (each for each in list_definitions(path, text) if each.name == names[-1])
    return "\n".join(line for each in found for line in lines[each.first - 1 : each.last])


def _is_readable(name: str, workspace: Workspace) -> bool:
    try:
        return workspace.resolve_readable(name) == name and (workspace.is_file(name) or not workspace.exists(name))
    except UsageError:
        return False
