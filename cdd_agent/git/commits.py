"""Make, find and undo commits without touching anything else that the user staged.

Also collects the hooks that a commit would run, because the user must approve them first.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from cdd_agent.config.trust import Offer
from cdd_agent.errors import EnvironmentMissing, GateClosed, UsageError, join_first
from cdd_agent.git.hardening import GitSetting, list_disabled_filters
from cdd_agent.git.repository import (
    CommitId,
    Entry,
    Repository,
    format_paths,
    private_index,
    read_files,
    resolve_revision,
)
from cdd_agent.git.runner import Call, GitError, GitRefused, GitUnable, read_state
from cdd_agent.storage import read_ordinary
from cdd_agent.tickets.ticket import list_ticket_paths
from cdd_agent.untrusted import paths
from cdd_agent.work.wording import explain

CARRIED = "uncommitted changes that a run took along"
"""Message of a commit of them."""
MAX_SUBJECT = 72
"""Characters of a subject that git's own tools show, and of the lines below it."""
TRACE = "GIT_TRACE2_EVENT"
"""The variable that names the file in which git notes the programs that it starts."""
MESSAGE_HOOKS = ("prepare-commit-msg", "commit-msg")
"""The hooks that judge the message of a commit. The others judge its files."""
_TRACE_BYTES = 10_000_000
_BREAK = re.compile(r"(?<=[\s_/:.,;-])(?=[^\s_/:.,;-])")
"""A place where a line may be broken: before a word, or within a path or a name."""
_LIST_ITEM = re.compile(r"\s*(?:[-*+]\s+|\d{1,3}[.)]\s+)?(?:\[[ x]\]\s+|[AMD]\s(?=\S+$))?")
_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_BYTES = 1024


class MessageRefused(GateClosed):
    """A hook of the user refused the message of a commit, which cdd writes and the model cannot change."""


def cut_subject(text: str, *, end: str = "") -> str:
    """Return ``text`` with ``end`` as a subject of at most ``MAX_SUBJECT`` characters, cut before a word if possible.

    >>> cut_subject("feat: " + "take ten percent off " * 5, end=" (1 of 2 pass)")
    'feat: take ten percent off take ten percent off take ten… (1 of 2 pass)'
    """
    room = MAX_SUBJECT - len(end)
    if len(text) > room:
        at = _find_break(text, most=room - 1)
        text = text[: at if at > room // 2 else room - 1].rstrip() + "…"
    return text + end


def wrap(text: str) -> str:
    """Return ``text`` with lines of at most ``MAX_SUBJECT`` characters; further lines are indented like their item.

    A word that is too long, such as a path or the name of a test, is broken too: hooks refuse longer lines.
    """
    return "\n".join(part for line in text.splitlines() for part in _wrap_line(line.rstrip()))


def _wrap_line(line: str) -> Iterator[str]:
    item = _LIST_ITEM.match(line)
    indent = " " * min(len(item[0]), MAX_SUBJECT // 2) if item else ""
    while len(line) > MAX_SUBJECT:
        at = _find_break(line, most=MAX_SUBJECT, least=len(indent) + 1)
        yield line[:at].rstrip()
        line = indent + line[at:].lstrip()
    yield line


def _find_break(text: str, *, most: int, least: int = 1) -> int:
    """Return where to break ``text`` after at most ``most`` characters: before a word, or else in a long one."""
    places = [match.start() for match in _BREAK.finditer(text[: most + 1], least)]
    words = [place for place in places if text[place - 1].isspace()]
    near = [place for place in words if place > most // 2] or [place for place in places if place > most // 2]
    return max(near or words, default=most)


def require_identity(repository: Repository) -> None:
    """Raise ``EnvironmentMissing`` unless git knows the name and email for commits."""
    try:
        for who in ("GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"):
            repository.runner.run(Call(verb="var", arguments=(who,), signs=True))
    except GitError as error:
        raise EnvironmentMissing(
            "git does not know your name and email.",
            hint="git config user.name 'Your Name' && git config user.email you@example.org",
        ) from error


def require_base(repository: Repository) -> CommitId:
    """Return HEAD; raises ``EnvironmentMissing`` without a commit or an identity for new commits."""
    require_identity(repository)
    head = repository.read_head()
    if head is None:
        raise EnvironmentMissing(
            "This repository has no commits, so cdd could not undo its work.",
            hint="make one: git commit --allow-empty -m start",
        )
    return head


def commit_paths(
    repository: Repository,
    message: str,
    *,
    paths: Iterable[str],
    entries: Mapping[str, Entry | None] | None = None,
    allow_empty: bool = False,
) -> CommitId:
    """Commit ``paths`` only, with the content in ``entries`` or else in the work tree, and update the index for them.

    An entry None is a deleted file. Returns HEAD if nothing changed, unless ``allow_empty``. Signing and approved hooks
    take part; raises ``GateClosed`` with their output if they refuse, ``MessageRefused`` if they refuse the message,
    and ``GitUnable`` if a file needs a filter that cdd does not run.
    """
    paths = tuple(paths)
    _require_convertible(repository, paths)
    for path, why in repository.explain_fixed(paths).items():
        raise GitUnable(f"{path} cannot be committed. {explain(why)}", hint="change it yourself, and commit it")
    head = repository.read_head()
    with private_index() as index:
        has_changed = _stage_in_run_tree(repository, paths, entries=entries, base=head, index=index)
        is_of_run = has_changed is not None
        if has_changed is None:
            tree = _write_tree(repository, paths, entries=entries, base=head, index=index)
            has_changed = head is None or tree != repository.objects.require(f"{head}^{{tree}}").id
        if head is not None and not allow_empty and not has_changed:
            refresh_index(repository, paths)
            return head
        try:
            empty = ("--allow-empty",) if allow_empty else ()
            repository.git(
                "commit",
                ("--quiet", *empty, "-F", "-"),
                stdin=message.encode(),
                variables={**index, TRACE: f"{index['GIT_INDEX_FILE']}.trace"},
                hooks=True,
            )
        except GitRefused as error:
            raise _explain_refusal(
                error, trace=Path(f"{index['GIT_INDEX_FILE']}.trace"), repository=repository
            ) from error
        if is_of_run:
            new = repository.location.git_dir / "index.cdd"
            os.replace(shutil.copy2(index["GIT_INDEX_FILE"], new), new.with_name("index"))
    if not is_of_run:
        refresh_index(repository, paths)
    commit = repository.read_head()
    if commit is None:
        raise GitError("git commit reported success, but HEAD does not name a commit.", hint="run: git status")
    if is_of_run and offer_hooks(repository) is None:  # a hook may have staged more after the commit
        note_clean_index(repository, commit)
    return commit


def _explain_refusal(error: GitRefused, *, trace: Path, repository: Repository) -> GateClosed:
    hook = ""
    with contextlib.suppress(OSError, ValueError):  # the folder of temporary files may be full
        hook = find_refusing_hook(read_ordinary(trace, limit_bytes=_TRACE_BYTES).decode("utf-8", "replace"))
    if hook not in MESSAGE_HOOKS:
        return GateClosed(
            f"git refused the commit. {error.happened}", hint="fix what the hook reports, then retry the step"
        )
    message = repository.location.git_dir / "COMMIT_EDITMSG"
    return MessageRefused(
        f"Your hook {hook} refused the message of the commit, which cdd writes. {error.happened}",
        hint=f"see the message: cat {message}; let the hook accept it, then run the same command again: cdd commits "
        "the tested work without asking the model",
    )


def find_refusing_hook(trace: str) -> str:
    """Return the name of the hook that failed last, from the events that git has written; empty if none has."""
    failed, started = "", dict[object, str]()
    for line in trace.splitlines():
        event = json.loads(line)
        # A git that a hook calls writes into the same file. Its id begins with the id of its parent and a slash.
        if not isinstance(event, dict) or "/" in str(event.get("sid")):
            continue
        if event.get("event") == "child_start" and event.get("child_class") == "hook":
            started[event.get("child_id")] = str(event.get("hook_name"))
        elif event.get("event") == "child_exit" and event.get("code") != 0:
            failed = started.get(event.get("child_id"), failed)
    return failed


def note_clean_index(repository: Repository, commit: CommitId) -> None:
    """Note that the index of a run tree holds the files of ``commit`` and no others."""
    repository.clean_index = read_state(repository.location.git_dir / "index"), commit


def _stage(
    repository: Repository,
    paths: Iterable[str],
    *,
    entries: Mapping[str, Entry | None] | None,
    index: Mapping[str, str],
) -> None:
    if entries is None:
        repository.stage(paths, index=index)
    else:
        repository.stage_entries({path: entries[path] for path in paths}, index=index)


def _write_tree(
    repository: Repository,
    paths: Iterable[str],
    *,
    entries: Mapping[str, Entry | None] | None = None,
    base: CommitId | None,
    index: Mapping[str, str],
) -> str:
    if base is not None:
        read_files(repository, resolve_revision(repository, base), index=index)
    _stage(repository, paths, entries=entries, index=index)
    return repository.write_tree(index)


def _stage_in_run_tree(
    repository: Repository,
    paths: tuple[str, ...],
    *,
    entries: Mapping[str, Entry | None] | None,
    base: CommitId | None,
    index: Mapping[str, str],
) -> bool | None:
    """Stage the paths in a copy of a run tree's index, which holds ``base``; return whether they differ from it.

    None: it holds other files too, or is a user's.
    """
    if base is None or repository.source == repository.root:
        return None
    own = repository.location.git_dir / "index"
    is_clean = repository.clean_index == (read_state(own), base)
    shutil.copy2(own, index["GIT_INDEX_FILE"])
    _stage(repository, paths, entries=entries, index=index)
    if is_clean and entries is not None:
        return any(entries[path] != repository.objects.find_entry(base, path) for path in paths)
    changed = repository.objects.compare(base, repository.write_tree(index))
    return bool(changed) if changed.keys() <= set(paths) else None


def commit_aside(repository: Repository, paths: Iterable[str], *, parent: CommitId, message: str) -> CommitId:
    """Return a commit of the current content of ``paths`` on ``parent``, on no branch."""
    with private_index() as index:
        return commit_tree(
            repository, _write_tree(repository, paths, base=parent, index=index), parent=parent, message=message
        )


def commit_tree(repository: Repository, tree: str, *, parent: CommitId, message: str) -> CommitId:
    """Return a commit of cdd, on no branch; ``tree`` may name a commit."""
    parent_id, tree_id = resolve_revision(repository, parent), repository.objects.require(f"{tree}^{{tree}}").id
    return repository.write_commit(tree_id, message=message, parent=parent_id)


def reapply(repository: Repository, commit: CommitId, *, tree: str, parent: CommitId) -> CommitId:
    """Return a commit with the message and author of ``commit``, on no branch; it is signed if the user signs."""
    shown = repository.git("log", ("-1", "--format=%an%x00%ae%x00%aI%x00%B"), resolve_revision(repository, commit))
    name, email, date, message = shown.split("\0", 3)
    author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
    sign = list_sign_options(repository)
    arguments = (tree, ("-p",), resolve_revision(repository, parent), (*sign, "-F", "-"))
    stdin = message.rstrip("\n").encode("utf-8", "surrogateescape") + b"\n"
    return CommitId(repository.git("commit-tree", *arguments, stdin=stdin, variables=author, hooks=bool(sign)).strip())


def commit_merge(repository: Repository, message: str, *, tree: str, parents: tuple[CommitId, CommitId]) -> CommitId:
    """Return a merge commit of cdd, on no branch; it is signed if the user signs. The user's branch comes first."""
    sign = list_sign_options(repository)
    arguments = (tree, ("-p",), parents[0], ("-p",), parents[1], (*sign, "-F", "-"))
    stdin = message.encode("utf-8", "surrogateescape")
    return CommitId(repository.git("commit-tree", *arguments, stdin=stdin, hooks=bool(sign)).strip())


def list_sign_options(repository: Repository) -> tuple[str, ...]:
    """Return the options of ``git commit-tree`` that sign a commit, if the user signs commits."""
    settings = {setting.key: setting.value for setting in repository.runner.configuration_of_commits()}
    return ("-S",) if settings.get("commit.gpgsign", "").lower() in ("true", "yes", "on", "1") else ()


def list_warnings(repository: Repository) -> Iterator[str]:
    """Yield what the user should know about this repository before cdd works in it."""
    for name in list_disabled_filters(repository.runner.configuration()):
        yield (
            f"cdd does not run the filter {name!r}, because only this repository's own configuration names it, or "
            "because it starts a program by a relative path, and does not commit files that need it."
        )
    if pointers := list_pointers(repository):
        yield (
            f"Git LFS has not downloaded {join_first(pointers, most=3)}: tests and checkpoints see pointers "
            "instead of the content. To download it: git lfs pull"
        )


def list_pointers(repository: Repository) -> tuple[str, ...]:
    """Return the files in Git LFS whose content is not in the work tree."""
    # The pathspec selects by attribute, which literal pathspecs would not understand.
    variables = {"GIT_LITERAL_PATHSPECS": "0"}
    pointers = []
    for name in repository.git("ls-files", ("-z", "--"), ":(attr:filter=lfs)", variables=variables).split("\0"):
        with contextlib.suppress(OSError):  # a longer file than a pointer is content
            if read_ordinary(repository.root / name, limit_bytes=_POINTER_BYTES).startswith(_POINTER):
                pointers.append(name)
    return tuple(pointers)


def refresh_index(repository: Repository, paths: Iterable[str]) -> None:
    """Make the user's index agree with HEAD for ``paths``, and only for them; git notes the times of all files."""
    if listed := format_paths(paths):  # without paths, git would reset all of them
        # Before git 2.36, --quiet left out the times.
        repository.git("reset", ("--no-quiet", "--pathspec-from-file=-", "--pathspec-file-nul"), stdin=listed)


def find_by_trailer(repository: Repository, key: str, *, value: str, since: CommitId | None) -> CommitId | None:
    """Return the newest commit after ``since`` whose trailer ``key`` is ``value``."""
    head = repository.read_head()
    if head is None or head == since:
        return None
    span = "HEAD" if since is None else f"{resolve_revision(repository, since)}..HEAD"
    log = repository.git("log", (f"--format=%H %(trailers:key={key},valueonly,separator=%x2C)",), span)
    for line in log.splitlines():
        commit, _, trailer = line.partition(" ")
        if trailer.strip() == value:
            return CommitId(commit)
    return None


def _require_convertible(repository: Repository, paths: Iterable[str]) -> None:
    disabled = list_disabled_filters(repository.runner.configuration())
    for path, name in repository.read_attribute("filter", paths).items() if disabled else ():
        if name in disabled:
            raise GitUnable(
                f"{path} needs the filter {name!r}, which only this repository's own configuration names, or whose "
                "program has a relative path. cdd does not run such a filter, and does not commit the file without it.",
                hint="if you trust it, add it to your own configuration, with an absolute path: git lfs install, or: "
                f'git config --global filter.{name}.clean "$(git config filter.{name}.clean)"',
            )


def list_own_uncommitted(repository: Repository, *, project: Path | None = None) -> tuple[str, ...]:
    """Return staged, changed and untracked paths in git's order.

    Left out are nested repositories, cdd's own settings, environments that no rule of git ignores, and the tickets of
    ``project``.
    """
    found, nested = repository.list_uncommitted(), repository.list_nested()
    left_out = tuple({folder for path in found if (folder := _find_environment(path))})
    left_out += () if project is None else list_ticket_paths(project, root=repository.root)
    return tuple(
        path for path in found if path not in nested and ".cdd" not in path.split("/") and not path.startswith(left_out)
    )


def _find_environment(path: str) -> str:
    """Return the folder, with a slash, that ``path`` marks as a virtual or conda environment, or an empty text."""
    names = path.split("/")
    marks = (index for index, name in enumerate(names) if index and name in paths.ENVIRONMENT_MARKS)
    return "".join(f"{name}/" for name in names[: next(marks, 0)])


def require_undisturbed(repository: Repository, changed: Sequence[str]) -> None:
    """Raise ``UsageError`` if there are uncommitted paths in ``changed``, or an operation is in progress."""
    require_finished(repository)
    if changed:
        shown = join_first(changed, most=10, separator="\n  ")
        raise UsageError(
            f"This project has uncommitted changes:\n  {shown}\nNothing was touched.",
            hint="commit or stash them, or run with --allow-dirty: the tests see them, and no commit holds them",
        )


def require_finished(repository: Repository, *, has_conflicts: bool | None = None) -> None:
    """Raise ``UsageError`` while a merge, rebase or the like, or a rollback by cdd, is in progress."""
    # The first commit would conclude a merge.
    unfinished = repository.find_unfinished(has_conflicts=has_conflicts)
    if unfinished is not None:
        operation, command = unfinished
        raise UsageError(
            f"In this project {operation} is in progress.\nNothing was touched.", hint=f"end it first: {command}"
        )


COMMIT_HOOKS = (
    *("pre-auto-gc", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit"),
    *("post-index-change", "post-rewrite", "reference-transaction"),
)
"""All hooks that ``git commit`` can run."""
PUSH_HOOKS = ("pre-push", "reference-transaction")
"""All hooks that ``git push`` can run."""

_SHOWN_LINES = 6
_SHOWN_NAMES = 8
_MOST_FILES = 2_000
_SHOWN_BYTES = 4_000
_MOST_HOOK_BYTES = 1_000_000
"""Size of a hook in which names of other files are searched."""
_LIMIT_BYTES = 200_000_000
"""Total size of all hook files; a hook may be a self-contained program."""


def may_run_hooks(
    repository: Repository, names: Sequence[str] = COMMIT_HOOKS, *, allows: Callable[[Offer | None], bool]
) -> bool:
    """Return whether the hooks ``names`` of the repository may run, asking ``allows``."""
    return allows(offer_hooks(repository, names))


def offer_hooks(repository: Repository, hooks_of_git: Sequence[str] = COMMIT_HOOKS) -> Offer | None:
    """Return the repository's hooks for approval, by default those of a commit; None for none, or only the user's own.

    The user's own hooks are those in a folder that the user's git configuration names, outside the repository. Programs
    that a hook calls are not included, except files beside it in the work tree and the settings of common hook runners.
    """
    settings = repository.runner.configuration_of_commits()
    folder = _find_hook_folder(settings, repository)
    files = [] if folder is None else [folder / name for name in hooks_of_git]
    hooks = [path for path in files if path.is_file() and os.access(path, os.X_OK)]
    # Newer versions of git also run hooks that the configuration names, without a file.
    named = [
        f"{each.key} = {each.value}" for each in settings if each.is_from_repository and each.key.startswith("hook.")
    ]
    if not hooks and not named:
        return None
    contents: dict[Path, bytes] = {}
    for path in dict.fromkeys((*hooks, *_list_hook_inputs(repository, folder=folder))):
        contents[path] = _read_hook_file(path, limit_bytes=_LIMIT_BYTES - sum(map(len, contents.values())))
    names = {path: _format_path(path, repository) for path in contents}
    shown = [line for path in hooks for line in (names[path], *_excerpt(contents[path]))]
    inputs = list(names.values())[len(hooks) :]
    digests = [f"{names[path]}\0{hashlib.sha256(data).hexdigest()}" for path, data in contents.items()]
    return Offer(
        subject="push hooks" if hooks_of_git is PUSH_HOOKS else "hooks",
        source=_format_path(folder, repository) if folder is not None and hooks else "git's configuration",
        shown=(*shown, *named, *((f"configured by {join_first(inputs, most=_SHOWN_NAMES)}",) if inputs else ())),
        content="\n".join((*digests, *named)).encode("utf-8", "surrogateescape"),
    )


def _find_hook_folder(settings: Sequence[GitSetting], repository: Repository) -> Path | None:
    """Return the folder of hooks, or None if it is the user's own."""
    configured = [each for each in settings if each.key == "core.hookspath" and each.scope != "command"]
    if not configured:
        return repository.location.common_dir / "hooks"
    folder = (repository.root / os.path.expanduser(configured[-1].value)).resolve()
    inside = any(folder.is_relative_to(own) for own in (repository.root.resolve(), repository.location.common_dir))
    return folder if inside or configured[-1].is_from_repository else None


_HOOK_FOLDERS = (".git-hooks", ".githooks", ".husky", ".lefthook", ".lefthook-local")
"""Folders of commit hooks and the files that hooks read."""

_LEFTHOOK = product(
    ("lefthook", ".lefthook", ".config/lefthook"), ("", "-local"), (".json", ".jsonc", ".toml", ".yaml", ".yml")
)
_HOOK_FILES = (
    *(".huskyrc", ".huskyrc.js", ".huskyrc.json", ".huskyrc.yaml", ".huskyrc.yml", ".local-overcommit.yml"),
    *(".overcommit.yml", ".pre-commit-config.yaml", "captainhook.json", "husky.config.js", "prek.toml"),
    *map("".join, _LEFTHOOK),
)
"""Settings of common hook runners."""


def _list_hook_inputs(repository: Repository, *, folder: Path | None) -> list[Path]:
    """Return the settings of hook runners, and all files beside the hooks if these are part of the work tree."""
    root = repository.root.resolve()
    is_inside = folder is not None and folder.is_relative_to(root) and not folder.is_relative_to(root / ".git")
    found = [root / name for name in _HOOK_FILES if (root / name).is_file()]
    for top in dict.fromkeys((*(root / name for name in _HOOK_FOLDERS), *((folder,) if is_inside else ()))):
        for inside, _, names in os.walk(str(top)):
            found += [Path(inside, name) for name in sorted(names) if Path(inside, name).is_file()]
            if len(found) > _MOST_FILES:
                raise GitUnable(
                    f"{top} holds more than {_MOST_FILES} files, too many to approve as commit hooks.",
                    hint="keep hooks in a separate folder, or turn them off: git config core.hooksPath /dev/null",
                )
    return found


@dataclass(frozen=True, kw_only=True)
class GitPrograms:
    """The files of a work tree that git may start when the user commits, switches branches or pulls."""

    folder: str | None
    """The folder of hooks, relative to the work tree; None if it is elsewhere."""
    texts: tuple[str, ...]
    """What hooks, the settings of hook runners and git's configuration say."""

    def names(self, path: str) -> bool:
        """Return whether the file ``path`` is in the folder of hooks, or a text names it."""
        if self.folder == "." and "/" not in path:
            return True
        if self.folder is not None and path.casefold().startswith(f"{self.folder.casefold()}/"):
            return True
        pattern = rf"(?<![\w.-]){re.escape(path)}(?![\w/-]|\.\w)"
        if path.endswith(".py"):
            pattern += rf"|-m[ \t=\"',]+{re.escape(path[:-3].replace('/', '.'))}(?![\w.])"
        return any(re.search(pattern, text) for text in self.texts)


_SELECTS = re.compile(r"^\s*(?:-\s*)?(?:exclude|files|glob|types\w*)\s*:.*$", re.MULTILINE)
"""Lines of the settings of hook runners that select the files to check, which are not started."""
_NAMES_REFS = ("branch.", "remote.", "submodule.", "url.", "user.")
"""Sections of git's configuration whose values are names of branches, people and repositories."""


def list_programs_of_git(repository: Repository) -> GitPrograms:
    """Return the files that git's hooks and configuration name now."""
    settings = repository.runner.configuration_of_commits()
    folder, roots = _find_hook_folder(settings, repository), (repository.root.resolve(), repository.source.resolve())
    inside = [folder.relative_to(root) for root in roots if folder is not None and folder.is_relative_to(root)]
    # No step can change the folder of git itself, which may be in the work tree.
    inside = [each for each in inside if ".git" not in each.parts]
    found = [each.value for each in settings if each.scope != "command" and not each.key.startswith(_NAMES_REFS)]
    own = [] if folder is None else [folder / name for name in _list_names(folder) if not name.endswith(".sample")]
    for path in dict.fromkeys((*own, *_list_hook_inputs(repository, folder=folder))):
        with contextlib.suppress(OSError):  # a folder, or a large program
            text = read_ordinary(path, limit_bytes=_MOST_HOOK_BYTES, through_links=True).decode("utf-8", "replace")
            found.append(_SELECTS.sub("", text))
    return GitPrograms(folder=inside[0].as_posix() if inside else None, texts=tuple(found))


def _list_names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:_MOST_FILES]
    except OSError:
        return []


def _read_hook_file(path: Path, *, limit_bytes: int) -> bytes:
    try:
        return read_ordinary(path, limit_bytes=limit_bytes, through_links=True)
    except OSError as error:
        raise GitUnable(
            f"cdd cannot show you the hook file {path} for approval: {error.strerror or error}.",
            hint=f"see what it is: ls -lL {path}; then replace it by an ordinary file, or remove it",
        ) from error


def _excerpt(content: bytes) -> list[str]:
    head, size = content[:_SHOWN_BYTES], len(content)
    if b"\0" in head:
        return [f"  a program of {size:,} bytes"]
    lines = [line.strip() for line in head.decode("utf-8", "replace").splitlines()]
    code = [f"  {line}" for line in lines if line and (not line.startswith("#") or line.startswith("#!"))]
    if size > len(head) or len(code) > _SHOWN_LINES:
        return [*code[:_SHOWN_LINES], f"  ... {size:,} bytes in all"]
    return code


def _format_path(path: Path, repository: Repository) -> str:
    root = repository.root.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
