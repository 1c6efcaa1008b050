"""Whether what a repository brings may take effect: the user's decisions, kept in the user's folder.

A repository's settings, interpreter and hooks are somebody else's until the user has seen that very content and said
yes. A decision belongs to one folder on this machine (real path, device and inode), one subject and one content
(sha256): a changed file is asked about again, and neither a copy of the project nor a link to it takes the decision
along. No file of a project is ever asked whether it is to be trusted.
"""

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.storage import exclusive, read_ordinary, write_atomic

Subject: TypeAlias = Literal["settings", "test command", "framework", "interpreter", "hooks", "command"]

SCHEMA = 1
MAX_SIZE_BYTES = 4_000_000
"""Of the file of decisions."""
MOST_KEPT = 32
"""Decisions about one subject of one project; the oldest go first."""
MOST_COMMANDS_KEPT = 500
"""The same of commands."""
_SHOWN = 300
"""Characters of a command that are kept beside its digest, for the user to know it again."""

_SINGULAR = frozenset({"test command", "framework", "interpreter", "command"})
_NAMES: Mapping[Subject, str] = {
    "settings": "settings",
    "test command": "test command",
    "framework": "test framework",
    "interpreter": "interpreter",
    "hooks": "commit hooks",
    "command": "command",
}
_WITHOUT: Mapping[Subject, str] = {
    "settings": "the defaults are used instead",
    "test command": "how tests are run is found out by other files",
    "framework": "it is asked about again",
    "interpreter": "the tests need another one, named by CDD_PYTHON",
    "hooks": "commits are made without them",
    "command": "it does not run",
}


class NotApproved(UsageError):
    """Something of the repository's would take effect, the user has not decided about it, and nobody can be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that a repository brings and that takes effect only if the user approves it."""

    subject: Subject
    source: str
    """Where it is, as the user would look at it: ``.cdd/config.yaml``."""
    shown: tuple[str, ...]
    """What would take effect, in lines; not cleaned yet."""
    content: bytes
    """All of it that counts: another content is another offer."""

    @property
    def name(self) -> str:
        """``settings``, ``commit hooks``: what a person calls the subject."""
        return _NAMES[self.subject]

    @property
    def without(self) -> str:
        """What happens if it is declined, as a clause."""
        return _WITHOUT[self.subject]

    @property
    def digest(self) -> str:
        """sha256 of subject and content."""
        return hashlib.sha256(f"{self.subject}\0".encode() + self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the user said about one content."""

    project: str
    device: int
    inode: int
    subject: Subject
    sha256: str
    approved: bool
    shown: str = ""
    """Of a command, its text, its keys masked; nothing rests on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    """The file, oldest first."""

    schema: int
    decisions: tuple[Decision, ...] = ()


class Approvals:
    """The user's decisions about one project."""

    def __init__(
        self, project: Path, *, environment: Mapping[str, str] = os.environ, decided_by: str = "cdd trust"
    ) -> None:
        """Nothing is read yet. ``environment`` says where the user's folder is, ``decided_by`` how to decide."""
        self._project = project.resolve()
        self.decided_by = decided_by
        self._folder = user_folder(environment)

    @property
    def path(self) -> Path:
        """The file that holds the decisions about all projects."""
        return self._folder / "approvals.json"

    @property
    def folder(self) -> Path | None:
        """The user's folder, for what else belongs to the user; None if the project holds it."""
        return None if self._folder.resolve().is_relative_to(top_of(self._project)) else self._folder

    def decision(self, offer: Offer) -> bool | None:
        """What the user said about this very content here; None if nothing."""
        said = [kept.approved for kept in self._here(offer.subject) if kept.sha256 == offer.digest]
        return said[-1] if said else None

    def has_changed(self, offer: Offer) -> bool:
        """Whether the user has decided about another content of the same subject here."""
        return any(kept.sha256 != offer.digest for kept in self._here(offer.subject))

    def commands(self) -> tuple[str, ...]:
        """The commands that the user has allowed here, oldest first, as far as their text is kept."""
        return tuple(kept.shown for kept in self._here("command") if kept.approved)

    def record(self, offer: Offer, *, approved: bool) -> None:
        """Keep a decision; also for what the program itself wrote into the project at the user's command.

        Raises ``EnvironmentMissing`` if the user's folder is the project's, ``UsageError`` while another decision is
        being kept, and ``OSError`` if the file cannot be written.
        """
        self._require_outside()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with exclusive(self._folder / "approvals.lock", purpose="Another decision", wait_s=10):
            here = os.stat(self._project)
            made = Decision(
                project=str(self._project),
                device=here.st_dev,
                inode=here.st_ino,
                subject=offer.subject,
                sha256=offer.digest,
                approved=approved,
                shown=_masked(offer.shown) if offer.subject == "command" else "",
            )
            known = self._read()
            same = [kept for kept in known if _place(kept) == _place(made)]
            most = MOST_COMMANDS_KEPT if offer.subject == "command" else MOST_KEPT
            dropped = {id(kept) for kept in same if kept.sha256 == made.sha256} | set(map(id, same[: 1 - most]))
            self._write(_fitting((*(each for each in known if id(each) not in dropped), made)))

    def forget(self) -> int:
        """Drop all decisions about what lies at this path, also about what lay there before; how many there were."""
        self._require_outside()
        if not self.path.exists():
            return 0
        with exclusive(self._folder / "approvals.lock", purpose="Another decision", wait_s=10):
            known = self._read()
            others = tuple(kept for kept in known if kept.project != str(self._project))
            if others != known:
                self._write(others)
        return len(known) - len(others)

    def _write(self, decisions: tuple[Decision, ...]) -> None:
        """Put the file in place; only under the lock."""
        write_atomic(self.path, _encoded(decisions), mode=0o600)

    def _here(self, subject: Subject) -> tuple[Decision, ...]:
        """The decisions about a subject of this folder, oldest first."""
        here = os.stat(self._project)
        place = (str(self._project), here.st_dev, here.st_ino, subject)
        return tuple(kept for kept in self._read() if _place(kept) == place)

    def _read(self) -> tuple[Decision, ...]:
        """All decisions; raises ``EnvironmentMissing`` for a file that others may have written, or that is damaged."""
        self._require_outside()
        try:
            data = read_ordinary(self.path, limit_bytes=MAX_SIZE_BYTES)
            found = os.lstat(self.path)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PermissionError(errno.EPERM, "Others own it, or may write to it", str(self.path))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise EnvironmentMissing(
                f"The file of your approvals, {self.path}, cannot be relied on: {error.strerror or error}.",
                hint=f"make it yours alone, chmod 600 {self.path}, or move it away and decide anew: {self.decided_by}",
            ) from error
        try:
            file = msgspec.json.decode(data, type=_Decisions)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EnvironmentMissing(
                f"The file of your approvals, {self.path}, is damaged: {error}.",
                hint=f"move it away, mv {self.path} {self.path}.damaged, and decide anew: {self.decided_by}",
            ) from error
        if file.schema != SCHEMA:
            raise EnvironmentMissing(
                f"The file of your approvals, {self.path}, is of schema {file.schema}; this cdd knows {SCHEMA}.",
                hint=f"use the newer cdd that wrote it, or move the file away and decide anew: {self.decided_by}",
            )
        return file.decisions

    def _require_outside(self) -> None:
        """Raise ``EnvironmentMissing`` if the project itself holds the user's folder, and so could vote for itself."""
        if self.folder is None:
            raise EnvironmentMissing(
                f"Your approvals would lie in {self._folder}, inside the project {top_of(self._project)}, "
                "which could bring its own.",
                hint="set XDG_STATE_HOME to a folder outside the project",
            )


Ask: TypeAlias = Callable[[Offer, bool], bool]
"""Shows an offer to the user and returns the answer; the flag says that another content was decided about before."""


class Trust:
    """Decides whether an offer takes effect, asking the user where one is there."""

    def __init__(self, approvals: Approvals, *, ask: Ask | None, tell: Callable[[str], None]) -> None:
        """``ask`` None: nobody is there. ``tell`` takes what a person should know."""
        self.approvals = approvals
        self._ask = ask
        self._tell = tell
        self._told: set[str] = set()

    def allows(self, offer: Offer | None) -> bool:
        """Whether the offer takes effect; nothing offered takes effect as it is.

        A declined one is told once. Raises ``NotApproved`` if the user has not decided and nobody can be asked.
        """
        if offer is None:
            return True
        answer = self.approvals.decision(offer)
        if answer is None:
            changed = self.approvals.has_changed(offer)
            if self._ask is None:
                raise _nobody_to_ask(offer, changed=changed, command=self.approvals.decided_by)
            answer = self._ask(offer, changed)
            self.approvals.record(offer, approved=answer)
        if not answer and offer.digest not in self._told:
            self._told.add(offer.digest)
            verb = "is" if offer.subject in _SINGULAR else "are"
            said = f"The repository's {offer.name} {verb} declined: {offer.without}."
            self._tell(f"{said} {self.approvals.decided_by} asks again.")
        return answer

    def chosen(self, subject: Subject, among: tuple[str, ...]) -> str | None:
        """Which of these the user has chosen here, of these very ones; None if nothing was, or nothing can be kept."""
        if self.approvals.folder is None:
            return None
        return next((each for each in among if self.approvals.decision(_choice(subject, each, among=among))), None)

    def choose(self, subject: Subject, chosen: str, *, among: tuple[str, ...]) -> bool:
        """Keep which of these the user has chosen, for as long as they are the same; whether that can be kept."""
        if self.approvals.folder is None:
            return False
        self.approvals.record(_choice(subject, chosen, among=among), approved=True)
        return True


def _choice(subject: Subject, chosen: str, *, among: tuple[str, ...]) -> Offer:
    """One of several as an offer; what it was chosen among counts too."""
    content = "\0".join((chosen, *sorted(among))).encode()
    return Offer(subject=subject, source=", ".join(among), shown=(chosen,), content=content)


def _nobody_to_ask(offer: Offer, *, changed: bool, command: str) -> NotApproved:
    """The error that says what waits for a decision, and both ways to make it."""
    has = "has" if offer.subject in _SINGULAR else "have"
    since = f"{has} changed since you decided" if changed else f"{has} not been approved"
    return NotApproved(
        f"The repository's {offer.name} ({offer.source}) {since}, and nobody is there to ask.",
        hint=f"in a terminal: {command}; in a script, once you have read it: {command} --digest {offer.digest}",
    )


def interpreter_offer(project: Path, python: Path, *, is_named_by_project: bool = False) -> Offer | None:
    """What has to be approved before ``python`` is run for ``project``; None for what the project has no hand in.

    The repository has a hand in an interpreter that lies in the work tree, or is reached through it, wherever a link
    leads from there, and in one that a file of it names. The environment that runs this very program needs no
    approval: it is running.
    """
    top, here = top_of(project), project.absolute()
    path = Path(os.path.abspath(python))
    named, target = path.parent.resolve() / path.name, path.resolve()
    is_inside = is_reached_through(here, path)
    if not (is_inside or is_named_by_project) or named.parent.parent == Path(sys.prefix).resolve():
        return None
    source = os.path.relpath(path, here) if is_inside else str(path)
    try:
        about = read_ordinary(named.parent.parent / "pyvenv.cfg", limit_bytes=MAX_SIZE_BYTES)
    except OSError:
        about = b""
    program = _digest_of(target) if target.is_relative_to(top) else str(target)
    return Offer(
        subject="interpreter",
        source=source,
        shown=(f"{source} runs {target}", *about.decode("utf-8", "replace").splitlines()),
        content=b"\0".join(
            (os.fsencode(source), os.fsencode(os.path.relpath(named, top)), os.fsencode(program), about)
        ),
    )


def is_reached_through(project: Path, python: Path) -> bool:
    """Whether ``python`` lies in the work tree of ``project``, or a link in it leads there, or one leads into it."""
    path = Path(os.path.abspath(python))
    places = (path, path.parent.resolve() / path.name, path.resolve())
    return any(place.is_relative_to(folder) for place in places for folder in (top_of(project), project.absolute()))


def _digest_of(path: Path) -> str:
    """sha256 of a plain file, of nothing for a pipe and its like; or that it cannot be read."""
    digest = hashlib.sha256()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                while block := stream.read(1 << 20):
                    digest.update(block)
    except OSError:
        return "unreadable"
    return digest.hexdigest()


def user_folder(environment: Mapping[str, str]) -> Path:
    """Where the program keeps what belongs to the user and to no project; not made yet."""
    told = Path(environment.get("XDG_STATE_HOME", ""))
    home = Path(environment.get("HOME") or Path.home())
    return (told if told.is_absolute() else home / ".local" / "state") / "cdd"


def top_of(project: Path) -> Path:
    """The nearest folder upwards that has a ``.git``, as the file system says and not git; else ``project``."""
    real = project.resolve()
    return next((folder for folder in (real, *real.parents) if os.path.lexists(folder / ".git")), real)


def _encoded(decisions: tuple[Decision, ...]) -> bytes:
    """The file of them."""
    return msgspec.json.format(msgspec.json.encode(_Decisions(schema=SCHEMA, decisions=decisions))) + b"\n"


def _fitting(decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """All of them, or, if the file would be too large to be read, all but the older half of the commands."""
    kept = decisions
    while len(_encoded(kept)) > MAX_SIZE_BYTES:
        commands = [each for each in kept if each.subject == "command"]
        if not commands:
            break
        dropped = set(map(id, commands[: (len(commands) + 1) // 2]))
        kept = tuple(each for each in kept if id(each) not in dropped)
    return kept


def _masked(lines: tuple[str, ...]) -> str:
    """A command as it is kept, without the keys that it may hold."""
    from cdd_agent.untrusted.keys import mask

    return mask("\n".join(lines)).text[:_SHOWN]


def _place(decision: Decision) -> tuple[str, int, int, Subject]:
    """What a decision is about, its content left aside."""
    return decision.project, decision.device, decision.inode, decision.subject
