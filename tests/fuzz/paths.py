"""Paths made to get out of a project, or at what is private in it; and a race between a check and an opening.

What counts as an escape is judged by what the files hold and by a second reading of the names, written apart from the
program's.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cdd_agent.errors import UsageError
from cdd_agent.workspace.files import ConfinedFolder, Workspace
from tests.fuzz.figures import Figures

_GUARDED = (b"OUTSIDE", b"PRIVATE", b"SECRET")
"""What the files hold that nobody may read; everything else in the tree holds something else."""

_NAMES = (
    *("src", "a.py", "new.py", "alias", "out", "up", "into-git", "dangling", "loop", "notes.txt", "tickets", "one"),
    *(".git", "config", "hooks", "pre-commit", ".cdd", "config.yaml", ".env", ".env.example", "id_rsa", "store.git"),
    *(".hg", "hgrc", ".gitattributes", "execution-state.json"),
    *("sitecustomize.py", "evil.pth", ".gitmodules", ".venv", "lib", "pyvenv.cfg", "outside.txt", "secret.txt"),
)
_ODD = (
    *(
        "..",
        "..",
        "..",
        ".",
        "",
        "...",
        "~",
        "~root",
        "$HOME",
        "%2e%2e",
        "%2e%2e%2f",
        "..%c0%af",
        "\u2024\u2024",
        "\uff0e\uff0e",
    ),
    *("\0", "\n", "\r", "\t", " ", "\x7f", "\u202e", "\ud800", "\udcff", "\U000e0041", "-", "--output=x", "*", "?"),
    *("C:", "C:\\", "file:", "\\\\host", "..\\..", "con", "GIT~1", ".git::$INDEX_ALLOCATION", "n" * 255, "n" * 300),
)
_SEPARATORS = ("/", "/", "/", "/", "//", "/./", "\\", "\u2215", "\uff0f", "\0", "")
_UNSEEN = ("\u200b", "\u200d", "\ufeff", "\u2060", "\u00ad", "\U000e0067", "\ufe0f")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """A project, with a folder of a like name and secrets beside it."""

    top: Path
    root: Path
    workspace: Workspace
    confined: ConfinedFolder
    """Opens without the workspace's judgment."""


def run(count: int, seed: int, *, make: Callable[[Path], Workspace] = Workspace) -> Figures:
    """``count`` paths through naming, reading and writing; bad is every one that got out or at what is guarded."""
    with tempfile.TemporaryDirectory(prefix="cdd-fuzz-") as folder:
        ground = _laid(Path(folder).resolve(), make)
        before = _kept(ground)
        bad, example = 0, ""
        times: list[float] = []
        for index in range(count):
            path = _path(Random((seed << 32) + index), ground)
            started = time.thread_time()
            why = _escape(path, ground, writes=index % 997 == 0)
            times.append(time.thread_time() - started)
            if why is not None:
                bad, example = bad + 1, example or f"seed {seed}, index {index}: {path!r} {why}"
        if _kept(ground) != before:
            bad, example = bad + 1, example or f"seed {seed}: a file that is guarded was changed"
    times.sort()
    p99_s = times[int(len(times) * 0.99)] if times else 0.0
    return Figures(tried=count, bad=bad, example=example, slowest_s=times[-1] if times else 0.0, p99_s=p99_s)


def race(opens: int, seed: int = 0) -> Figures:
    """Open ``opens`` times what another process keeps swapping for links; bad is every opening that followed one.

    The notes say how often an opening of what ``realpath`` found harmless was fooled by the same race.
    """
    with tempfile.TemporaryDirectory(prefix="cdd-race-") as folder:
        ground = _laid(Path(folder).resolve(), Workspace)
        names = ("swapped/secret.txt", "swapped.txt", "swapped/deep/secret.txt")
        swapper = subprocess.Popen([sys.executable, "-c", _SWAPPER, str(ground.root)], stdout=subprocess.PIPE)
        try:
            assert swapper.stdout is not None
            if not swapper.stdout.readline():
                return Figures(tried=0, cannot="this C library has no renameat2")
            opened = fooled = bad = 0
            for index in range(opens):
                name = names[(index + seed) % len(names)]
                reader: Callable[[str], bytes] = ground.confined.read if index % 2 else ground.workspace.read
                data = _read(reader, name)
                opened += data is not None
                bad += _is_guarded(data)
                fooled += _is_guarded(_read(lambda path: _naive(ground.root, path), name))
                if index % 50 == 0:
                    _write(ground.workspace, "swapped/new.txt")
            if swapper.poll() is not None:
                return Figures(tried=0, cannot="this file system cannot exchange two names")
        finally:
            swapper.kill()
            swapper.communicate()
        folders = [ground.root / name for name in os.listdir(ground.root) if not (ground.root / name).is_symlink()]
        allowed = next(
            folder for folder in folders if (folder / "deep" / "secret.txt").exists() and folder.name != ".git"
        )
        strays = [path for path in ground.top.rglob("new.txt") if path.parent != allowed]
    return Figures(
        tried=opens,
        bad=bad + len(strays),
        example=f"seed {seed}: {bad} openings read, {len(strays)} writes went through a link" if bad or strays else "",
        notes=(f"{opened} openings read the file; realpath and open was fooled {fooled} times",),
    )


_SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
exchange = ctypes.CDLL(None, use_errno=True).renameat2
pairs = []
for name, target in (
    ("swapped", "../beside"), ("swapped.txt", "../beside/secret.txt"), ("swapped", ".git"), ("swapped.txt", ".env")
):
    link = f"{len(pairs)}.link"
    os.symlink(target, link)
    pairs.append((name.encode(), link.encode()))
print("ready", flush=True)
while True:
    for name, link in pairs:
        for _ in range(2):
            if exchange(-100, name, -100, link, 2):
                sys.exit(f"renameat2: {ctypes.get_errno()}")
"""
"""Swaps a folder and a file for links by exchanging the two names, so that one of them is always there."""


def _laid(top: Path, make: Callable[[Path], Workspace]) -> _Ground:
    root = top / "app"
    for path, content in {
        "app/src/a.py": "x = 1",
        "app/tickets/one/execution-state.json": "{}",
        "app/.env.example": "KEY=",
        "app/swapped/secret.txt": "inside",
        "app/swapped/deep/secret.txt": "inside",
        "app/swapped.txt": "inside",
        "app/.hg/hgrc": "",
        "app/.git/config": "PRIVATE",
        "app/.git/hooks/pre-commit": "PRIVATE",
        "app/.git/secret.txt": "PRIVATE",
        "app/.git/deep/secret.txt": "PRIVATE",
        "app/.cdd/config.yaml": "PRIVATE",
        "app/.env": "SECRET",
        "app/id_rsa": "SECRET",
        "app-evil/x": "OUTSIDE",
        "app-evil/a.py": "OUTSIDE",
        "beside/secret.txt": "OUTSIDE",
        "beside/deep/secret.txt": "OUTSIDE",
        "outside.txt": "OUTSIDE",
    }.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(content)
    links = {"alias": "src", "out": "../beside", "up": "..", "into-git": ".git", "dangling": "../new", "loop": "loop"}
    for name, target in {**links, "notes.txt": ".env", "proc": "/proc/self/root"}.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    return _Ground(top=top, root=root, workspace=make(root), confined=ConfinedFolder(root))


def _kept(ground: _Ground) -> dict[str, bytes]:
    """Everything outside the project and everything guarded in it, by path."""
    found = {}
    for folder, _, names in os.walk(ground.top):
        for name in names:
            path = Path(folder) / name
            inside = path.is_relative_to(ground.root)
            if path.is_symlink() or not path.is_file():
                continue
            if not inside or _is_off_limits(path.relative_to(ground.root).as_posix()):
                found[str(path)] = path.read_bytes()
    return found


def _path(random: Random, ground: _Ground) -> str:
    """A path of names that are there and odd ones, some spelled otherwise."""
    kind = random.random()
    if kind < 0.05:
        return "".join(chr(random.choice((random.randrange(32, 127), random.randrange(0x11000)))) for _ in range(8))
    parts = [
        _spelled(random, random.choice(_ODD if random.random() < 0.25 else _NAMES)) for _ in range(random.randint(1, 5))
    ]
    path = parts[0]
    for part in parts[1:]:
        path += random.choice(_SEPARATORS) + part
    if kind < 0.25:
        start = (
            str(ground.root),
            f"{ground.root}-evil",
            f"{ground.root}/..",
            "/proc/self/cwd",
            "/etc",
            "//",
            "./",
            "/",
        )
        path = f"{random.choice(start)}/{path}"
    return path


def _spelled(random: Random, name: str) -> str:
    match random.randrange(12):
        case 0:
            return name.upper()
        case 1:
            return "".join(random.choice((letter.upper(), letter.lower())) for letter in name)
        case 2:
            return name + random.choice((".", " ", ". ", "..", "\t", ":x"))
        case 3:
            at = random.randint(0, len(name))
            return name[:at] + random.choice(_UNSEEN) + name[at:]
        case 4:
            return "".join(
                chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" and random.random() < 0.3 else letter
                for letter in name
            )
        case 5:
            return unicodedata.normalize(random.choice(("NFD", "NFKD")), name)
    return name


def _escape(path: str, ground: _Ground, *, writes: bool) -> str | None:
    """How ``path`` got at what it may not; None if it did not."""
    workspace = ground.workspace
    try:
        if workspace.is_file(path) and _is_guarded(workspace.read(path)):
            return "was read"
    except UsageError:
        pass
    data = _read(ground.confined.read, path)
    if data is not None and _GUARDED[0] in data:
        return "was opened outside"
    try:
        name = workspace.resolve_writable(path)
    except UsageError:
        return None
    try:
        place = os.path.realpath(ground.root / name)
    except ValueError:
        return f"may be written at {name!r}, which is no path"
    if not Path(place).is_relative_to(ground.root) or ".." in name.split("/") or os.path.isabs(name):
        return f"may be written outside, at {name!r}"
    if _is_off_limits(name) or _is_off_limits(os.path.relpath(place, ground.root)):
        return f"may be written although it is guarded: {name!r}"
    if writes:
        _write(workspace, path)
    return None


_FOLDERS = {".git", ".cdd", ".hg", ".venv", "git~1"}
_FILES = re.compile(
    r"\.git(?:attributes|modules)|pyvenv\.cfg|.*\.pth|(site|user)customize\b.*|\.env|id_rsa|execution-state\.json.*"
)


def _is_off_limits(name: str) -> bool:
    """Whether a file system that looks past case, width and what cannot be seen could mean something guarded."""
    parts = []
    for part in name.split("/"):
        seen = re.sub("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]", "", part)
        parts.append(unicodedata.normalize("NFKC", seen).lower().split(":")[0].rstrip(". \t"))
    return not _FOLDERS.isdisjoint(parts) or _FILES.fullmatch(parts[-1]) is not None


def _is_guarded(data: bytes | None) -> bool:
    return data is not None and any(word in data for word in _GUARDED)


def _read(read: Callable[[str], bytes], path: str) -> bytes | None:
    try:
        return read(path)
    except (UsageError, OSError):
        return None


def _naive(root: Path, path: str) -> bytes:
    """What a program reads that looks first and opens then."""
    place = os.path.realpath(root / path)
    if not Path(place).is_relative_to(root) or Path(place).is_relative_to(root / ".git"):
        raise FileNotFoundError
    return (root / path).read_bytes()


def _write(workspace: Workspace, path: str) -> None:
    try:
        workspace.write(path, b"written")
    except UsageError:
        return
