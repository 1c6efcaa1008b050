"""The adapter that runs hooks in the sandbox, and the places of an agent's run in which hooks have a say."""

import contextlib
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import msgspec

from cdd_agent.agent.blocks import FileBlock
from cdd_agent.agent.loop import AgentRun
from cdd_agent.agent.tools import BLOCKED_TOOL, Tool, ToolOutput
from cdd_agent.config.settings import CONFIG_FILE
from cdd_agent.config.trust import NotApproved, Offer
from cdd_agent.errors import GateClosed, UsageError
from cdd_agent.events import Emit, Notice
from cdd_agent.hooks import HookCommand, HookEvent, HookReply, Hooks, HookSettings, describe_hooks, parse_reply
from cdd_agent.model.conversation import JSON, Conversation, HearUser, Marks
from cdd_agent.sandbox.port import ISOLATING_LEVELS, Access, Command, Result, Sandbox
from cdd_agent.storage import read_ordinary
from cdd_agent.testrun.access import SHOWN_PRIVATE
from cdd_agent.untrusted.text import format_line
from cdd_agent.workspace.files import Workspace

MAX_SCRIPT_BYTES = 1_000_000
MAX_BLOCKED_STOPS = 3
"""How often hooks can make an agent continue that says it is done."""
_DURING_WORK: frozenset[HookEvent] = frozenset({"PreToolUse", "PostToolUse", "FileChanged", "GateClosed", "Stop"})
_OUTPUT_BYTES = 256_000
_SHOWN_TRANSCRIPT = SHOWN_PRIVATE / "transcript"
"""Where a hook finds the folder of the transcript, in which it reads nothing else."""
_RUN = 'exec sh -c "$1" <"$2/input" >"$2/output" 2>"$2/errors"'
_PROJECT_VARIABLE = re.compile(r"^(?:\$\{?CLAUDE_PROJECT_DIR\}?|\.)/")


def offer_hooks(hooks: HookSettings, root: Path) -> Offer | None:
    """Return the hooks for the user's approval, with the files of the project that their commands name."""
    if not hooks:
        return None
    scripts = {name: content for name, content in _read_scripts(hooks, root)}
    digests = {name: sha256(content).hexdigest() for name, content in scripts.items()}
    shown = list(describe_hooks(hooks))
    for name, content in scripts.items():
        shown += [f"{name}:", *(f"  {line}" for line in content.decode("utf-8", "replace").splitlines())]
    content = msgspec.json.encode([hooks, digests], order="sorted")
    return Offer(subject="agent hooks", source=f"hooks in {CONFIG_FILE}", shown=tuple(shown), content=content)


def _read_scripts(hooks: HookSettings, root: Path) -> Iterator[tuple[str, bytes]]:
    commands = (hook.command for groups in hooks.values() for group in groups for hook in group.hooks)
    words = (_PROJECT_VARIABLE.sub("", word) for command in commands for word in _split(command))
    for word in sorted(set(words)):
        try:
            # A path outside of the project belongs to the user; only what the repository brings needs approval.
            if not (root / word).resolve().is_relative_to(root.resolve()):
                continue
            yield word, read_ordinary(root / word, limit_bytes=MAX_SCRIPT_BYTES, through_links=True)
        except (OSError, ValueError):  # no file, or an option
            continue


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxedHooks:
    """Runs the hooks of the settings in the sandbox."""

    settings: HookSettings
    project: Path
    """The user's project, which is read-only for hooks around the agent's work."""
    root: Path
    """The folder in which the agent works, for the hooks of its work."""
    sandbox: Sandbox
    make_access: Callable[[], Access]
    """Returns the access of the hooks of its work."""
    variables: Mapping[str, str]
    session: str
    """The ticket, or the name of the run."""
    transcript: Path
    """The journal of ``session``."""
    emit: Emit
    approved: Offer
    """The hooks, with the scripts as the user approved them."""
    allows: Callable[[Offer], bool]
    """Asks the user about changed scripts; raises ``NotApproved`` if nobody can be asked."""

    def run(self, event: HookEvent, fields: Mapping[str, object], *, subject: str = "") -> HookReply:
        """Run the hooks that match ``subject`` in order; see ``Hooks``."""
        groups = [group for group in self.settings.get(event, ()) if group.matches(subject)]
        joint = HookReply()
        for hook in (hook for group in groups for hook in group.hooks):
            self._require_approved(event)
            reply = self._run_hook(hook, event, fields=fields)
            name = f"The hook {format_line(hook.command)}"
            if reply.message:
                self.emit(Notice(text=f"{name}: {reply.message}"))
            if reply.stop:
                hint = "do what it asks for and continue, or change the hooks in .cdd/config.yaml"
                raise GateClosed(f"{name} stopped the run: {reply.stop}", hint=hint)
            context = "\n\n".join(filter(None, (joint.context, reply.context)))
            joint = HookReply(block=reply.block, context=context)
            if reply.block:
                self.emit(Notice(text=f"{name} blocked {event}{subject and f' {subject}'}: {reply.block}"))
                break
        return joint

    def _find_folder(self, event: HookEvent) -> Path:
        # Before and after a step there may be no run tree.
        return self.root if event in _DURING_WORK else self.project

    def _require_approved(self, event: HookEvent) -> None:
        # The model may have changed a script in its tree.
        folder = self._find_folder(event)
        offer = offer_hooks(self.settings, folder)
        with contextlib.suppress(NotApproved):
            if offer is not None and (offer.digest == self.approved.digest or self.allows(offer)):
                return
        before, now = (msgspec.json.decode(each.content)[1] if each else {} for each in (self.approved, offer))
        changed = ", ".join(sorted(name for name in {*before, *now} if before.get(name) != now.get(name)))
        raise UsageError(
            f"{changed} in {folder} is not as you approved it, and a hook in {CONFIG_FILE} names it. No hook runs.",
            hint="in a terminal cdd asks you about the new content; or restore the file; or, if it is no script, let "
            "the command find it without its name",
        )

    def _run_hook(self, hook: HookCommand, event: HookEvent, *, fields: Mapping[str, object]) -> HookReply:
        root = self._find_folder(event)
        access = self.make_access() if event in _DURING_WORK else Access(read_only=(self.project,))
        with tempfile.TemporaryDirectory(prefix="cdd-hook-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            transcript = Path(str(fields.get("transcript_path", self.transcript)))
            access = replace(
                access,
                read_write=(*access.read_write, folder),
                read_only=(*access.read_only, *filter(Path.exists, [transcript])),
                shown_at={**access.shown_at, transcript.parent: _SHOWN_TRANSCRIPT},
            )
            given = {
                "session_id": self.session,
                "cwd": self._show(root, access),
                "hook_event_name": event,
                **fields,
                "transcript_path": self._show(transcript, access),
            }
            (folder / "input").write_text(json.dumps(given), encoding="utf-8")
            try:
                result = self._execute(hook, folder, access=access, root=root)
            except OSError as error:
                return HookReply(message=f"cannot be started: {error.strerror or error}")
            if result.timed_out:
                return HookReply(message=f"was ended after {hook.timeout:g} s and is ignored")
            output, errors = (_read(folder / each) for each in ("output", "errors"))
            return parse_reply(event, exit_status=result.exit_status, output=output, errors=errors)

    def _execute(self, hook: HookCommand, folder: Path, *, access: Access, root: Path) -> Result:
        command = Command(
            argv=("sh", "-c", _RUN, "hook", hook.command, str(folder)),
            cwd=root,
            access=access,
            variables={**self.variables, "CLAUDE_PROJECT_DIR": str(root)},
            timeout_s=hook.timeout,
        )
        return self.sandbox.run(command)

    def _show(self, path: Path, access: Access) -> str:
        """Return the path at which programs in the sandbox find ``path``."""
        if self.sandbox.level in ISOLATING_LEVELS:
            for folder in (path, *path.parents):
                if folder in access.shown_at:
                    return str(access.shown_at[folder] / path.relative_to(folder))
        return str(path)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_OUTPUT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


RecordFile: TypeAlias = Callable[[str, bool], None]
"""Saves that the agent has written a file, and whether it is new."""


def watch_tools(
    tools: Iterable[Tool], *, hooks: Hooks, workspace: Workspace, record_file: RecordFile = lambda *_: None
) -> tuple[Tool, ...]:
    """Return the tools with PreToolUse before each call, and FileChanged and PostToolUse after it."""

    def watch(tool: Tool) -> Tool:
        def run(fields: Mapping[str, JSON]) -> ToolOutput:
            name, path = tool.spec.name, str(fields.get("file_path", ""))
            call = {"tool_name": name, "tool_input": dict(fields)}
            before = hooks.run("PreToolUse", call, subject=name)
            if before.block:
                return ToolOutput(text=f"Not run. A hook of the user blocked it: {before.block}", is_error=True)
            is_new = tool.use == "changes" and not _has_file(workspace, path)
            output = tool.run(fields)
            replies = [before]
            for changed in output.changed or (path,) if tool.use == "changes" and not output.is_error else ():
                record_file(changed, is_new)  # first: a hook of the user cannot prevent it
                replies.append(_report_change(changed, hooks=hooks, is_new=is_new))
            response = {"success": not output.is_error, "content": output.text}
            replies.append(hooks.run("PostToolUse", {**call, "tool_response": response}, subject=name))
            said = _format_replies(replies)
            return replace(output, text=f"{output.text}\n\n{said}") if said else output

        return replace(tool, run=run)

    return tuple(map(watch, tools))


def _report_change(path: str, *, hooks: Hooks, is_new: bool) -> HookReply:
    changed = {"file_path": path, "event": "add" if is_new else "change"}
    return hooks.run("FileChanged", changed, subject=Path(path).name)


def _format_replies(replies: Sequence[HookReply]) -> str:
    said = [f"A hook objects: {reply.block}" for reply in replies if reply.block]
    said += [f"A hook adds: {reply.context}" for reply in replies if reply.context]
    return "\n\n".join(said)


def _has_file(workspace: Workspace, path: str) -> bool:
    try:
        return workspace.exists(path)
    except UsageError:  # the tool refuses such a path
        return False


def run_until_stop(run: Callable[[], AgentRun], conversation: Conversation, *, hooks: Hooks) -> AgentRun:
    """Return the result of ``run``, repeated while a hook for Stop blocks an agent that says it is done."""
    result = run()
    for number in range(MAX_BLOCKED_STOPS):
        is_blocked = result.ended_by is not None and result.ended_by.name == BLOCKED_TOOL
        if result.end not in ("answered", "completed") or is_blocked:
            break
        fields = {"stop_hook_active": number > 0, "last_assistant_message": result.text}
        reply = hooks.run("Stop", fields)
        if not reply.block:
            break
        why = Marks(conversation.token).wrap(reply.block, source="a hook of the user")
        conversation.say(f"You are not done yet. A check of the user's project objects:\n\n{why}\n\nContinue.")
        result = run()
    return result


class BlockHooks:
    """The hooks around the files that the answers of a model without tools contain."""

    def __init__(self, hooks: Hooks, workspace: Workspace, *, record_file: RecordFile = lambda *_: None) -> None:
        """Run nothing."""
        self._hooks = hooks
        self._workspace = workspace
        self._record_file = record_file
        self._new = set[str]()

    def check(self, block: FileBlock) -> str:
        """Return why a hook for PreToolUse blocks a file, or nothing."""
        if not _has_file(self._workspace, block.path):
            self._new.add(block.path)
        return self._hooks.run("PreToolUse", _describe_write(block), subject="Write").block

    def report(self, blocks: Sequence[FileBlock]) -> str:
        """Run FileChanged and PostToolUse for the written files, and return the objections with all context.

        Without an objection the text is empty, because the model has nothing to answer.
        """
        objections = []
        for block in blocks:
            is_new = block.path in self._new
            self._record_file(block.path, is_new)
            changed = _report_change(block.path, hooks=self._hooks, is_new=is_new)
            self._new.discard(block.path)
            response: dict[str, JSON] = {"success": True, "content": f"wrote {block.path}"}
            call = {**_describe_write(block), "tool_response": response}
            replies = (changed, self._hooks.run("PostToolUse", call, subject="Write"))
            if any(reply.block for reply in replies):
                objections.append(f"{block.path}: {_format_replies(replies)}")
        return "\n\n".join(objections)


def _describe_write(block: FileBlock) -> dict[str, JSON]:
    return {"tool_name": "Write", "tool_input": {"file_path": block.path, "content": block.content}}


def hear_prompts(hear: HearUser, *, hooks: Hooks) -> tuple[str, ...]:
    """Return what the user says to a working model, without what a hook blocks; the user gets its reason."""
    said = []
    for words in hear():
        reply = hooks.run("UserPromptSubmit", {"prompt": words})
        if not reply.block:  # else the hook's notice has told the user
            said.append(format_prompt(words, reply))
    return tuple(said)


def submit_prompt(words: str, hooks: Hooks, *, marks: Marks | None = None) -> str:
    """Return the user's ``words`` with what hooks for UserPromptSubmit add; raise ``UsageError`` if one blocks them."""
    reply = hooks.run("UserPromptSubmit", {"prompt": words})
    if reply.block:
        raise UsageError(f"A hook blocked your message: {reply.block}", hint="rephrase it, or change the hook")
    return format_prompt(words, reply, marks=marks)


def format_prompt(words: str, reply: HookReply, *, marks: Marks | None = None) -> str:
    """Return the user's ``words`` with what the hooks add; ``marks`` are put around the addition."""
    if not reply.context:
        return words
    context = reply.context if marks is None else marks.wrap(reply.context, source="a hook of the user")
    return f"{words}\n\nA hook of the user adds:\n{context}"
