"""One project: its folder, its user's environment, and a run of ``cdd green`` with what must hold after it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cdd_agent.git.landing import Landings
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import RunTrees

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv" / "projects"
LONGEST_S = 300
_STEP = re.compile(r"@N\b")
_LOCAL = (("protocol.file.allow", "always"), ("uploadpack.allowFilter", "true"))
"""Lets folders be submodules, and be cloned in part."""
_APART = {".git", ".cdd"}
_UNCHECKED = (
    *("cdd could not create a clean copy", "The tests need more than a clean copy", "cannot run in a clean copy"),
    *("The targets need files that git ignores", "Not verified: "),
)
"""Beginnings of what cdd says where a clean copy shows nothing."""

Files = Mapping[str, tuple[str, int, int]]
"""Path -> digest of the content or target of a link, mode, and time of the last change."""


class Missing(Exception):
    """Something that a project needs is not on this machine."""


@dataclass(kw_only=True)
class Place:
    """A project that was laid out, and where its user works in it."""

    folder: Path
    """What belongs to it: the work tree, the home, and whatever else was made for it."""
    tree: Path
    """The top of the user's work tree."""
    inside: str = "."
    """The folder in it where cdd is started."""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What the user's shell has."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "COLUMNS": "200",
            **self.variables,
        }

    def start(self, *argv: str, at: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a program as the user does, and return how it ended."""
        return subprocess.run(
            argv,
            cwd=at or self.tree,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )

    def run(self, *argv: str, at: Path | None = None) -> str:
        """Run a program that must succeed; return what it printed."""
        ended = self.start(*argv, at=at)
        if ended.returncode:
            raise Missing(f"{' '.join(argv)[:60]}: {(ended.stderr or ended.stdout).strip()[-200:]}")
        return ended.stdout

    def git(self, *arguments: str) -> str:
        """What git prints at the top of the work tree."""
        return self.run("git", *arguments)

    def cdd(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the program in the folder where the user works."""
        return self.start(sys.executable, "-m", "cdd_agent", *arguments, at=self.tree / self.inside)

    def write(self, files: Mapping[str, str], *, step: int, newline: str = "\n") -> None:
        """Put files into the work tree as they are for a step."""
        for name, text in files.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(at_step(text, step), newline=newline)

    def digest(self) -> Files:
        """The user's files outside git's and cdd's folders."""
        return dict(self._digest())

    def _digest(self) -> Iterator[tuple[str, tuple[str, int, int]]]:
        for here, folders, names in os.walk(self.tree):
            folders[:] = [name for name in folders if name not in _APART]
            for name in (*names, *folders):
                path = Path(here, name)
                about = path.lstat()
                if path.is_dir() and not path.is_symlink():
                    yield f"{path.relative_to(self.tree)}/", ("", about.st_mode, 0)
                elif name not in _APART:
                    content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
                    digest = hashlib.sha256(content).hexdigest()
                    yield str(path.relative_to(self.tree)), (digest, about.st_mode, about.st_mtime_ns)


def measure(place: Place) -> tuple[float, float]:
    """The seconds that it takes to make a used run tree ready again, and to land its last commit."""
    user, private = Repository(place.tree), place.tree / ".cdd"
    head = user.read_head()
    assert head is not None
    base = CommitId(user.objects.require(f"{head}^").id)
    (name,) = os.listdir(private / "worktrees")
    began = time.monotonic()
    RunTrees(user, private / "worktrees").tree(name).reset(head)
    is_ready = time.monotonic()
    Landings(user, private / "landing").land(base, expected=head, base=head, result=base)
    return is_ready - began, time.monotonic() - is_ready


def at_step(text: str, step: int) -> str:
    """The text of a file, with the number of the step."""
    return _STEP.sub(str(step), text)


def lay(folder: Path) -> Place:
    """An empty repository with a user."""
    shutil.rmtree(folder, ignore_errors=True)
    place = Place(folder=folder, tree=folder / "project")
    for each in (place.tree, folder / "home", folder / "tmp"):
        each.mkdir(parents=True)
    for key, value in (
        ("user.name", "Ada"),
        ("user.email", "ada@example.org"),
        ("init.defaultBranch", "main"),
        *_LOCAL,
    ):
        place.run("git", "config", "--global", key, value)
    place.git("init", "-q")
    return place


def approve(place: Place, *, level: str) -> None:
    """Approve what the repository brings, as its user does once."""
    shown = place.cdd("--sandbox", level, "trust")
    for digest in re.findall(r"\b[0-9a-f]{64}\b", shown.stdout):
        place.cdd("--sandbox", level, "trust", "--digest", digest)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is asked of a run: the test that fails, and the one file that the model writes."""

    number: int
    test: str
    """As typed in the user's folder."""
    code: str
    """As above."""
    text: str
    options: tuple[str, ...] = ()


def carry_out(place: Place, step: Step, *, level: str) -> tuple[list[str], float]:
    """Run ``cdd green`` for a step: what went wrong, in order of weight, and the seconds it took."""
    recording = place.folder / "recording.json"
    content = [
        {"type": "tool_use", "name": "Read", "input": {"file_path": step.code}},
        {"type": "tool_use", "name": "Write", "input": {"file_path": step.code, "content": step.text}},
        {"type": "tool_use", "name": "CompleteImplementation", "input": {"implementation_files": [step.code]}},
    ]
    recording.write_text(json.dumps([{"content": content}]))
    own = os.path.normpath(Path(place.inside, step.code))
    before, status, head = place.digest(), place.git("status", "--porcelain"), place.git("rev-parse", "HEAD").strip()
    branch = place.start("git", "symbolic-ref", "HEAD").stdout
    began, made = time.monotonic(), ("--out", str(place.folder / "artifact.json"))
    ended = place.cdd("--sandbox", level, "--replay", str(recording), "green", "--yes", *made, *step.options, step.test)
    took = time.monotonic() - began
    wrong = []
    if ended.returncode:
        said = [line.strip() for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        wrong.append(f"exit {ended.returncode}: {' | '.join(said[-6:])}")
    else:
        landed = place.git("log", "--format=%s", f"{head}..HEAD").splitlines()
        changed = place.git("diff", "--name-only", "-z", head, "HEAD").split("\0")[:-1]
        results = json.loads(Path(made[1]).read_text())["test_results"]
        if results["failed"] or results["errors"]:
            failing = [each for each in results["test_details"] if each["status"] in ("failed", "error")]
            wrong.append(f"fails in the run tree: {failing[0]['name']}: {failing[0]['message'].strip()[:120]!r}")
        if len(landed) != 1 or changed != [own]:
            wrong.append(f"landed {landed}, which change {changed}")
    if place.start("git", "symbolic-ref", "HEAD").stdout != branch:
        wrong.append("another branch")
    after = place.digest()
    differing = sorted(path for path in {*before, *after} - {own} if before.get(path) != after.get(path))
    if differing:
        wrong.append(f"{len(differing)} other files changed: {', '.join(differing[:5])}")
    if (now := place.git("status", "--porcelain")) != status:
        wrong.append(f"git status: {status!r} became {now!r}")
    if unchecked := [text for text in _UNCHECKED if text in ended.stdout + ended.stderr]:
        wrong.append(f"not checked in a clean copy: {unchecked[0]}")
    if "Traceback" in ended.stderr:
        wrong.append(f"a traceback: {ended.stderr[-300:]}")
    return wrong, took
