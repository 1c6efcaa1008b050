"""The memory of a refused try at a step, for the next one: its changes, the reasons, and the agent's words.

It is kept in the state as text, because checkpoints and reports of the try are deleted when the step begins again.
"""

import difflib

from cdd_agent.git.repository import Entry, ObjectReader
from cdd_agent.model.conversation import Marks
from cdd_agent.tdd.context import Phase, format_bullets, format_failures
from cdd_agent.tdd.step import StepRecovery, load_report
from cdd_agent.untrusted.keys import mask
from cdd_agent.work.handoff import phase_name
from cdd_agent.work.state import RefusedTry, StepExecution

MAX_DIFF_CHARACTERS = 12_000
"""Of the changes of one phase."""
_MAX_FILE_BYTES = 200_000
_CONTEXT_LINES = 3
_CUT = "\n[... "
_ORDER: tuple[Phase, ...] = ("plan", "red", "green", "refactor")
INTERRUPTED = "interrupted"
"""The code of a try that ended before its gate."""


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
        parts.append(
            "\n".join(lines) or f"{path}: {'created' if not old else 'deleted' if not new else 'mode changed'}"
        )
    text = mask("\n".join(parts)).text
    more = len(text) - MAX_DIFF_CHARACTERS
    return text if more <= 0 else f"{text[:MAX_DIFF_CHARACTERS]}{_CUT}{more} more characters]"


def is_cut(diff: str) -> bool:
    """Return whether ``format_diff`` left something out."""
    return _CUT in diff


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
    if last is None or last.verdict == "open":
        return None
    report = load_report(last, root=context.repository.root)
    named = " ".join(last.reasons)
    return RefusedTry(
        phase=last.phase,
        reasons=last.reasons,
        failures="" if report is None else format_failures(report, rank=lambda nodeid: nodeid not in named),
        words=last.words,
        diffs=_list_diffs(recovery),
    )


def describe_interruption(recovery: StepRecovery, *, words: str = "") -> RefusedTry | None:
    """Return what an interrupted attempt leaves, from the present files; None if it had changed none."""
    step, context = recovery.step, recovery.context
    last = recovery.checkpoints.find_last()
    if last is None or step.phase is None:
        return None
    diff = format_diff(context.workplace.tree.objects, last.commit, after=context.snapshots.take_unsaved().commit)
    if not diff:
        return None
    reason = f"{INTERRUPTED}: it ended before the gate could judge it"
    return RefusedTry(phase=step.phase, reasons=(reason,), words=words, diffs={step.phase: diff})


def _list_diffs(recovery: StepRecovery) -> dict[Phase, str]:
    """Return phase -> the changes of its last attempt that made some."""
    diffs: dict[Phase, str] = {}
    snapshots, objects = recovery.context.snapshots, recovery.context.workplace.tree.objects
    for attempt in recovery.step.attempts:
        before = snapshots.find(recovery.baseline_ref(attempt.phase))
        after = snapshots.find(attempt.checkpoint) if attempt.checkpoint else None
        if before is None or after is None:
            continue
        if diff := format_diff(objects, before.commit, after=after.commit):
            diffs[attempt.phase] = diff
    return diffs


def format_refusal(step: StepExecution, phase: Phase, *, marks: Marks) -> str:
    """Return what an attempt at ``phase`` has to know of an earlier try at the step; empty if it is settled."""
    refusal = step.refusal
    if refusal is None or _ORDER.index(phase) > _ORDER.index(refusal.phase):
        return ""
    where, is_same = phase_name(refusal.phase), phase == refusal.phase
    parts = [
        f"An earlier try at this step was refused in {where} and undone:",
        marks.wrap(format_bullets(refusal.reasons), source=f"gate, {where}"),
    ]
    if refusal.reasons[0].startswith(f"{INTERRUPTED}:"):
        parts = [f"An earlier attempt at {where} was interrupted, and its changes were undone."]
    if refusal.kept is not None and phase == "red":
        parts.append(
            "So the step is back in RED, once. Compare that claim with the acceptance criteria, and write the test "
            "that they require. If the earlier test was right, write it again."
        )
    if refusal.words:
        parts.append(f"The last words of that attempt:\n{marks.wrap(refusal.words, source='earlier attempt')}")
    if refusal.failures and is_same:
        parts.append(f"The failures at its end:\n{marks.wrap(refusal.failures, source='tests')}")
    if diff := refusal.diffs.get(phase, ""):
        parts.append(f"{_name_diff(refusal, phase)}:\n{marks.wrap(diff, source='earlier attempt')}")
    return "\n\n".join(parts)


def _name_diff(refusal: RefusedTry, phase: Phase) -> str:
    if refusal.kept is not None and phase == "green":
        return "The code of that attempt, kept aside. Take over what fits the new test"
    if phase != refusal.phase:
        return f"What its {phase_name(phase)} had changed"
    return "What it had changed. Do not repeat what was refused"


def format_guidance(step: StepExecution, phase: Phase, *, marks: Marks) -> str:
    """Return the user's guidance for an attempt, or what the reviewer wants to be different in a step that landed."""
    if not step.guidance:
        return ""
    text = marks.wrap(step.guidance, source="the user")
    if not step.iterates:
        return f"The user's guidance for this step. Follow it, unless it contradicts the rules of the phase:\n{text}"
    parts = [f"Your earlier change has landed. The reviewer wants this to be different:\n{text}"]
    if phase == "red":
        parts.append(
            "If it asks for new behavior, write the test that fails for lack of it. If not, change nothing and call "
            "CompleteImplementation: the step continues with REFACTOR, in which you can change the code."
        )
    return "\n\n".join(parts)
