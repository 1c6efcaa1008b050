"""The user's decisions about what a repository brings, stored in the user's own folder.

A repository's settings, interpreter and hooks take effect only after the user has seen exactly that content and
approved it. A decision belongs to one folder on this machine (real path, device and inode), one subject and one content
(sha256). A changed file is a new question, and neither a copy of the project nor a link to it inherits the decision. No
file of a project can declare itself trusted.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.storage import exclusive_lock, read_ordinary, write_atomic

Subject: TypeAlias = Literal[
    "settings",
    "test command",
    "framework",
    "interpreter",
    "hooks",
    "push hooks",
    "agent hooks",
    "own command",
    "ignored files",
    "command",
    "records",
]

SCHEMA = 1
MAX_SIZE_BYTES = 4_000_000
MOST_KEPT = 32
"""The number of decisions about one subject of one project; the oldest are dropped first."""
MOST_COMMANDS_KEPT = 500
"""The same for commands."""
_MAX_COMMAND_CHARACTERS = 300
"""How much of a command is stored beside its digest, so that the user recognizes it."""

_SUBJECTS: Mapping[Subject, tuple[str, str, str]] = {
    "settings": ("settings", "have", "cdd uses the defaults"),
    "test command": ("test command", "has", "cdd uses other files to find out how the tests run"),
    "framework": ("test framework", "has", "cdd asks again"),
    "interpreter": ("interpreter", "has", "the tests need another one, named by CDD_PYTHON"),
    "hooks": ("commit hooks", "have", "cdd commits without them"),
    "push hooks": ("push hooks", "have", "cdd does not push"),
    "agent hooks": ("hooks", "have", "they do not run"),
    "own command": ("slash command", "has", "nothing is sent to the agent"),
    "ignored files": ("list of ignored files", "has", "runs get none of them"),
    "command": ("command", "has", "it does not run"),
    "records": ("records", "have", "cdd does not read them"),
}
"""Subject -> its name, the verb that follows the name, and the effect of declining it."""


class NotApproved(UsageError):
    """The user has not decided about something that the repository brings, and cannot be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something that a repository brings and that takes effect only if the user approves it."""

    subject: Subject
    source: str
    """Its path as the user would type it: ``.cdd/config.yaml``."""
    shown: tuple[str, ...]
    """The content as lines, not cleaned yet."""
    content: bytes
    """Everything that counts: other content is another offer."""

    @property
    def name(self) -> str:
        """The subject in words: ``settings``, ``commit hooks``."""
        return _SUBJECTS[self.subject][0]

    @property
    def without(self) -> str:
        """The effect of declining it: a clause."""
        return _SUBJECTS[self.subject][2]

    @property
    def digest(self) -> str:
        """The sha256 of subject and content."""
        return hashlib.sha256(f"{self.subject}\0".encode() + self.content).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The user's decision about one content."""

    project: str
    device: int
    inode: int
    subject: Subject
    sha256: str
    approved: bool
    shown: str = ""
    """The text of a command with its keys masked, or the source of another offer; for display only."""

    @property
    def scope(self) -> tuple[str, int, int, Subject]:
        """Folder and subject of the decision."""
        return self.project, self.device, self.inode, self.subject


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    schema: int
    decisions: tuple[Decision, ...] = ()


class Approvals:
    """The user's decisions about one project."""

    def __init__(
        self, project: Path, *, environment: Mapping[str, str] = os.environ, decided_by: str = "cdd trust"
    ) -> None:
        """Find the user's folder in ``environment``. ``decided_by`` is the command for decisions, for messages."""
        self._project = project.resolve()
        self.decided_by = decided_by
        self._folder = find_user_folder(environment)

    @property
    def path(self) -> Path:
        """The file with the decisions about all projects."""
        return self._folder / "approvals.json"

    @property
    def folder(self) -> Path | None:
        """The user's folder, or None if it is inside the project."""
        return None if self._folder.resolve().is_relative_to(find_top(self._project)) else self._folder

    def find_decision(self, offer: Offer) -> bool | None:
        """Return the user's decision about exactly this content, or None."""
        return {known.sha256: known.approved for known in self._list(offer.subject)}.get(offer.digest)

    def has_changed(self, offer: Offer) -> bool:
        """Return whether the user has decided about other content of the same thing."""
        known = [each for each in self._list(offer.subject) if each.shown in ("", offer.source) or not _has_many(offer)]
        return any(each.sha256 != offer.digest for each in known)

    def list_decisions(self) -> tuple[Decision, ...]:
        """Return the last decision about each thing of this project, those about commands last."""
        return tuple({(each.subject, each.shown): each for name in _SUBJECTS for each in self._list(name)}.values())

    def list_commands(self) -> tuple[str, ...]:
        """Return the stored texts of the commands that the user allowed, oldest first."""
        return tuple(known.shown for known in self._list("command") if known.approved)

    def record(self, offer: Offer, *, approved: bool) -> None:
        """Store a decision.

        Raises ``EnvironmentMissing`` if the user's folder is inside the project, ``UsageError`` while another process
        stores a decision, and ``OSError`` if the file cannot be written.
        """
        self._require_outside()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shown = offer.source
        if offer.subject == "command":
            from cdd_agent.untrusted.keys import mask

            shown = mask("\n".join(offer.shown)).text[:_MAX_COMMAND_CHARACTERS]
        with exclusive_lock(self._folder / "approvals.lock", purpose="Another decision", wait_s=10):
            here = os.stat(self._project)
            new = Decision(
                project=str(self._project),
                device=here.st_dev,
                inode=here.st_ino,
                subject=offer.subject,
                sha256=offer.digest,
                approved=approved,
                shown=shown,
            )
            decisions = self._read()
            same = [known for known in decisions if known.scope == new.scope]
            most = MOST_COMMANDS_KEPT if _has_many(offer) else MOST_KEPT
            dropped = {id(known) for known in same if known.sha256 == new.sha256} | set(map(id, same[: 1 - most]))
            kept = [*(known for known in decisions if id(known) not in dropped), new]
            kept.sort(key=lambda known: known.subject != "command")
            while len(_encode(kept)) > MAX_SIZE_BYTES and len(kept) > 1:
                del kept[: len(kept) // 2]  # old commands, as long as there are many
            write_atomic(self.path, _encode(kept), mode=0o600)

    def forget(self, only: Decision | None = None) -> int:
        """Drop all decisions about this path, whatever folder was there, or ``only`` those about one thing.

        Returns their number.
        """
        self._require_outside()
        if not self.path.exists():
            return 0
        with exclusive_lock(self._folder / "approvals.lock", purpose="Another decision", wait_s=10):
            decisions = self._read()
            if only is None:
                others = tuple(known for known in decisions if known.project != str(self._project))
            else:
                about = (only.scope, only.shown)
                others = tuple(known for known in decisions if (known.scope, known.shown) != about)
            if others != decisions:
                write_atomic(self.path, _encode(others), mode=0o600)
        return len(decisions) - len(others)

    def _list(self, subject: Subject) -> tuple[Decision, ...]:
        here = os.stat(self._project)
        scope = (str(self._project), here.st_dev, here.st_ino, subject)
        return tuple(known for known in self._read() if known.scope == scope)

    def _read(self) -> tuple[Decision, ...]:
        self._require_outside()
        name, again = f"The file of your approvals, {self.path},", f"decide again: {self.decided_by}"
        try:
            data = read_ordinary(self.path, limit_bytes=MAX_SIZE_BYTES)
            found = os.lstat(self.path)
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PermissionError(errno.EPERM, "other users own it or may write to it", str(self.path))
        except FileNotFoundError:
            return ()
        except OSError as error:
            hint = f"chmod 600 {self.path}, or move it away and {again}"
            raise EnvironmentMissing(f"{name} cannot be trusted: {error.strerror or error}.", hint=hint) from error
        try:
            file = msgspec.json.decode(data, type=_Decisions)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            hint = f"move it away, mv {self.path} {self.path}.damaged, and {again}"
            raise EnvironmentMissing(f"{name} is damaged: {error}.", hint=hint) from error
        if file.schema != SCHEMA:
            hint = f"use the newer cdd that wrote it, or move the file away and {again}"
            raise EnvironmentMissing(f"{name} has schema {file.schema}; this cdd knows {SCHEMA}.", hint=hint)
        return file.decisions

    def _require_outside(self) -> None:
        # A project that contains the user's folder could bring its own approvals.
        if self.folder is None:
            raise EnvironmentMissing(
                f"Your approvals, {self._folder}, would be inside the project {find_top(self._project)}, "
                "which could bring its own.",
                hint="set XDG_STATE_HOME to a folder outside the project",
            )


def _has_many(offer: Offer) -> bool:
    """Return whether a project has several things of this subject."""
    return offer.subject in ("command", "own command")


Ask: TypeAlias = Callable[[Offer, bool], bool]
"""Asks the user about an offer. The flag says that the user has decided about other content before."""


class Trust:
    """Decides whether an offer takes effect, and asks the user if possible."""

    def __init__(
        self,
        approvals: Approvals,
        *,
        ask: Ask | None,
        report: Callable[[str], None],
        brings: Callable[[Path], bool] = lambda _: True,
    ) -> None:
        """``ask`` is None if nobody can be asked. ``report`` shows a message to the user.

        ``brings`` tells whether the repository brings a program; one that git does not track is the user's own.
        """
        self.approvals = approvals
        self.brings = brings
        self._ask = ask
        self._report = report
        self._reported: set[str] = set()

    def allows(self, offer: Offer | None) -> bool:
        """Return whether the offer takes effect; None always does.

        A declined offer is reported once. Raises ``NotApproved`` if the user has not decided and cannot be asked.
        """
        if offer is None:
            return True
        answer = self.approvals.find_decision(offer)
        if answer is None:
            changed = self.approvals.has_changed(offer)
            if self._ask is None:
                command = self.approvals.decided_by
                since = "changed since you decided" if changed else "not been approved"
                has = _SUBJECTS[offer.subject][1]
                raise NotApproved(
                    f"The repository's {offer.name} ({offer.source}) {has} {since}, and cdd cannot ask you here.",
                    hint=f"in a terminal: {command}; in a script, after reading it: {command} --digest {offer.digest}",
                )
            answer = self._ask(offer, changed)
            self.approvals.record(offer, approved=answer)
        if not answer and offer.digest not in self._reported:
            self._reported.add(offer.digest)
            what = f"You declined the repository's {offer.name}: {offer.without}."
            self._report(f"{what} To decide again: {self.approvals.decided_by}")
        return answer

    def find_choice(self, subject: Subject, among: tuple[str, ...]) -> str | None:
        """Return what the user chose among exactly these, or None."""
        if self.approvals.folder is None:
            return None
        return next((each for each in among if self.approvals.find_decision(_choice(subject, each, among=among))), None)

    def save_choice(self, subject: Subject, chosen: str, *, among: tuple[str, ...]) -> bool:
        """Store what the user chose, and return whether that is possible."""
        if self.approvals.folder is None:
            return False
        self.approvals.record(_choice(subject, chosen, among=among), approved=True)
        return True


def _choice(subject: Subject, chosen: str, *, among: tuple[str, ...]) -> Offer:
    content = "\0".join((chosen, *sorted(among))).encode()  # with other alternatives, the choice is a new one
    return Offer(subject=subject, source=", ".join(among), shown=(chosen,), content=content)


def offer_interpreter(project: Path, python: Path, *, is_named_by_project: bool = False) -> Offer | None:
    """Return the offer that must be approved before ``python`` runs for ``project``, or None.

    An approval is needed for an interpreter in the work tree, for one that is reached through it by a link, and for one
    that a file of the repository names. The environment that runs cdd itself needs none.
    """
    top, here = find_top(project), project.absolute()
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
    program = digest_file(target) if target.is_relative_to(top) else str(target)
    return Offer(
        subject="interpreter",
        source=source,
        shown=(f"{source} runs {target}", *about.decode("utf-8", "replace").splitlines()),
        content=b"\0".join((*map(os.fsencode, (source, os.path.relpath(named, top), program)), about)),
    )


def is_reached_through(project: Path, python: Path) -> bool:
    """Return whether ``python`` is in the work tree of ``project``, directly or through a link in either direction."""
    path = Path(os.path.abspath(python))
    places = (path, path.parent.resolve() / path.name, path.resolve())
    return any(place.is_relative_to(folder) for place in places for folder in (find_top(project), project.absolute()))


def digest_file(path: Path) -> str:
    """Return the sha256 of a file, or ``unreadable``. A pipe or device counts as empty."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(handle).st_mode)
            return (hashlib.file_digest(stream, "sha256") if is_file else hashlib.sha256()).hexdigest()
    except OSError:
        return "unreadable"


def find_user_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for data of the user, which may not exist yet."""
    state_home = Path(environment.get("XDG_STATE_HOME", ""))
    home = Path(environment.get("HOME") or Path.home())
    return (state_home if state_home.is_absolute() else home / ".local" / "state") / "cdd"


def load_secret(environment: Mapping[str, str]) -> bytes:
    """Return the user's secret, for marks and signatures; another one each time if it cannot be saved."""
    path, made = find_user_folder(environment) / "marks", secrets.token_bytes(32)
    try:
        kept = read_ordinary(path, limit_bytes=len(made))
    except FileNotFoundError:
        kept = b""
    except OSError:
        return made
    if len(kept) == len(made):
        return kept
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, made, mode=0o600)
    return made


def find_top(project: Path) -> Path:
    """Return the nearest folder upwards that has a ``.git``, or ``project`` itself."""
    # git is not asked, because the repository's own configuration could change its answer.
    real = project.resolve()
    return next((folder for folder in (real, *real.parents) if os.path.lexists(folder / ".git")), real)


def _encode(decisions: Iterable[Decision]) -> bytes:
    file = _Decisions(schema=SCHEMA, decisions=tuple(decisions))
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"
