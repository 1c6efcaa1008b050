"""A repository that brings along everything git can be made to run, each leaving a mark; commands to try on it."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HOOKS = (
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "prepare-commit-msg",
    "reference-transaction",
    "sendemail-validate",
)

CONFIGURED = (
    "alias.l",
    "core.alternateRefsCommand",
    "core.askPass",
    "core.editor",
    "core.fsmonitor",
    "core.gitProxy",
    "core.pager",
    "core.sshCommand",
    "credential.helper",
    "diff.external",
    "diff.driven.command",
    "diff.shown.textconv",
    "filter.single.clean",
    "filter.single.smudge",
    "filter.lasting.process",
    "filter.a=b.clean",
    "gc.recentObjectsHook",
    "gpg.program",
    "gpg.ssh.defaultKeyCommand",
    "interactive.diffFilter",
    "merge.driven.driver",
    "pager.log",
    "remote.origin.uploadpack",
    "sequence.editor",
    "submodule.inner.update",
    "trailer.signed.command",
    "uploadpack.packObjectsHook",
)
"""Keys whose value is a program."""

FLAGS = {
    "commit.gpgSign": "true",
    "log.showSignature": "true",
    "protocol.ext.allow": "always",
    "core.hooksPath": "hooks-of-the-repository",
}

ATTRIBUTES = """\
*.single filter=single
*.lasting filter=lasting
*.odd filter=a=b
*.included filter=included
*.driven diff=driven merge=driven
*.shown diff=shown
*.tree filter=tree
"""

FILES = ("a.single", "b.lasting", "c.odd", "d.included", "e.driven", "f.shown", "g.txt", "h.tree")

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("add", "g.txt"),
    ("blame", "f.shown"),
    ("branch", "new-branch"),
    ("cat-file", "blob", "HEAD:a.single"),
    ("check-attr", "filter", "--", "a.single"),
    ("check-ignore", "--no-index", "--", "a.ignored"),
    ("check-ref-format", "--branch", "main"),
    ("checkout-index", "--force", "--all"),
    ("clean", "-ffdxq", "--", "nothing"),
    ("commit", "--quiet", "--allow-empty", "-m", "made"),
    ("commit-tree", "HEAD^{tree}", "-m", "made"),
    ("config", "--list"),
    ("diff", "HEAD"),
    ("diff-files", "--patch"),
    ("diff-index", "--patch", "HEAD"),
    ("diff-tree", "-r", "--patch", "HEAD~1", "HEAD"),
    ("fetch", "ext::touch marks/protocol.ext"),
    ("for-each-ref",),
    ("grep", "-e", "x"),
    ("hash-object", "-w", "a.single"),
    ("index-pack", "--stdin", "--strict"),
    ("log", "--patch", "-2"),
    ("ls-files", "--others", "--exclude-standard"),
    ("ls-tree", "-r", "HEAD"),
    ("merge", "--quiet", "--no-ff", "-m", "merged", "other"),
    ("merge-base", "--is-ancestor", "HEAD~1", "HEAD"),
    ("merge-file", "--quiet", "-p", "a.single", "a.single", "a.single"),
    ("merge-tree", "--write-tree", "HEAD", "other"),
    ("notes", "--ref=n", "add", "--force", "-m", "note", "HEAD"),
    ("notes", "--ref=n", "merge", "--quiet", "--strategy=cat_sort_uniq", "HEAD"),
    ("remote", "get-url", "--push", "--all", "origin"),
    ("pack-objects", "--revs", "--quiet", "--stdout"),
    ("patch-id", "--stable"),  # by which a note finds its commit after a rebase; reads only what it is given
    ("read-tree", "HEAD"),
    ("reset", "--quiet"),
    ("restore", "--source=HEAD~1", "--worktree", "--", "."),
    ("rev-list", "--all"),
    ("rev-parse", "--show-toplevel"),
    ("show", "HEAD"),
    ("show-ref",),
    ("status", "--porcelain"),
    ("submodule", "--quiet", "update"),
    ("symbolic-ref", "-m", "why", "HEAD", "refs/heads/main"),
    ("update-index", "--add", "a.single", "b.lasting", "c.odd", "d.included"),
    ("update-ref", "refs/cdd/made", "HEAD"),
    ("var", "GIT_COMMITTER_IDENT"),
    ("version",),
    ("worktree", "add", "--quiet", "--detach", "linked"),
    ("write-tree",),
)
"""Every kind of command that the program runs, and some that it may come to run."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """The repository and the folder of its marks."""

    root: Path

    @property
    def marks(self) -> set[str]:
        """The things that were run since they were last cleared."""
        return {path.name for path in (self.root / "marks").iterdir()}

    def ready(self) -> None:
        """Clear the marks, and make every file look changed to git, as half of the programs run only then."""
        shutil.rmtree(self.root / "marks")
        (self.root / "marks").mkdir()
        for name in (*FILES, "inner/a.single"):
            path = self.root / name
            path.write_text(f"{path.read_text() if path.exists() else ''}x\n")
        for lock in (self.root / ".git").rglob("*.lock"):
            lock.unlink()


def plant(folder: Path) -> Hostile:
    """Make the repository in ``folder``: first its history, then what it would like to be run."""
    root = folder / "hostile"
    (root / "marks").mkdir(parents=True)
    plain(root, "init", "--quiet", "--initial-branch=main")
    inner = root / "inner"
    inner.mkdir()
    plain(inner, "init", "--quiet", "--initial-branch=main")
    for place, names in ((inner, ("a.single",)), (root, FILES)):
        for name in names:
            (place / name).write_text("x\n")
        (place / ".git/info").mkdir(exist_ok=True)
        (place / ".git/info/attributes").write_text(ATTRIBUTES)
        plain(place, "config", "user.name", "Mallory")
        plain(place, "config", "user.email", "mallory@example.org")
        plain(place, "add", *names)
        plain(place, "commit", "--quiet", "-m", "first")
    (root / ".git/info/exclude").write_text("marks\nprograms\nhooks-of-the-repository\n*.ignored\n")
    plain(root, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    (root / ".gitmodules").write_text('[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n')
    plain(root, "add", ".gitmodules")
    plain(root, "commit", "--quiet", "-m", "submodule")
    for branch, text in (("other", "theirs\n"), ("main", "ours\n")):
        plain(root, "checkout", "--quiet", "-B", branch)
        (root / "e.driven").write_text(text)
        plain(root, "commit", "--quiet", "-am", f"of {branch}")
        if branch == "other":
            plain(root, "checkout", "--quiet", "main")
    _sign(root)
    plain(inner, "commit", "--quiet", "--allow-empty", "-m", "another than the outer one names")
    _arm(root)
    return Hostile(root)


def _arm(root: Path) -> None:
    """Plant the programs, in hooks, configuration, an included file, and the submodule's own configuration."""
    for folder in (root / ".git/hooks", root / "hooks-of-the-repository"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in HOOKS:
            _program(root, f"hook.{name}", at=folder / name)
    included = root / ".git/included"
    included.write_text(f'[filter "included"]\n\tclean = {_program(root, "filter.included.clean")}\n')
    values = {"include.path": str(included), **FLAGS}
    for key in CONFIGURED:
        bang = "!" if key.startswith(("alias", "credential", "submodule")) else ""
        values[key] = f"{bang}{_program(root, key)}"
    with (root / ".git/config").open("a") as stream:  # thirty times `git config` would take longer than all the rest
        for key, value in values.items():
            section, _, rest = key.partition(".")
            subsection, _, name = rest.rpartition(".")
            heading = f'[{section} "{subsection}"]' if subsection else f"[{section}]"
            stream.write(f'{heading}\n\t{name} = "{value}"\n')
    plain(root, "config", "extensions.worktreeConfig", "true")
    plain(root, "config", "--worktree", "filter.tree.clean", _program(root, "filter.of-the-work-tree"))
    plain(root / "inner", "config", "filter.single.clean", _program(root, "filter.of-the-submodule"))
    plain(root / "inner", "config", "core.fsmonitor", _program(root, "fsmonitor.of-the-submodule"))


def _program(root: Path, name: str, *, at: Path | None = None) -> str:
    """A program that leaves the mark ``name``; one of a filter passes its input on."""
    path = at or root / "programs" / name.replace("=", "-is-")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\ntouch "{root}/marks/{name}"\n{"cat" if name.startswith("filter") else "exit 0"}\n')
    path.chmod(0o755)
    return str(path)


def _sign(root: Path) -> None:
    """Put a commit on the branch that says it is signed: whoever shows the signature has it checked."""
    told = plain(root, "cat-file", "commit", "HEAD").stdout.replace(
        b"\n\n", b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n none\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (root / ".git/signed").write_bytes(told)
    made = plain(root, "hash-object", "-t", "commit", "-w", ".git/signed").stdout.decode().strip()
    plain(root, "update-ref", "HEAD", made)


def plain(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """``git ARGUMENTS`` as anybody would run it."""
    return run_plain(folder, arguments, check=True)


def run_plain(folder: Path, arguments: Sequence[str], *, check: bool = False) -> subprocess.CompletedProcess[bytes]:
    """The same; a failure is told, or raised if it is ``check``\\ ed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=environment | {"GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=check,
    )
