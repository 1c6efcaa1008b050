"""Which files a step lands without a question, and why another one waits for the developer's yes.

Editors, agents, build tools and shells start programs because of files with certain names, and nobody knows all of
these names. So this rule knows the files that a step may land: those that its plan names, and sources, tests, data and
documents beside others of their kind. Any other file waits. ``docs/reference/cycle.md`` describes the rule.

``FileKinds`` decides by the path, ``find_started`` by the content of a file with settings. Both are pure.
"""

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TypeAlias

from cdd_agent.config.options import Choose
from cdd_agent.events import Change, ChangeKind
from cdd_agent.testrun.suite import PLAIN_LAYOUT, ProjectLayout
from cdd_agent.tickets.ticket import names_ticket
from cdd_agent.untrusted.paths import fold_name
from cdd_agent.untrusted.text import format_line
from cdd_agent.work.wording import explain
from cdd_agent.workspace import memory
from pytest_tdd_agent.report import Clause

PACKAGE_MARKS = frozenset(
    {
        *("build.gradle", "build.gradle.kts", "cargo.toml", "composer.json", "deno.json", "gemfile", "go.mod"),
        *("mix.exs", "package.json", "package.swift", "pom.xml", "pyproject.toml", "setup.cfg", "setup.py"),
    }
)
"""Files, in lower case, that make a folder the root of a package: tools look for their settings there."""
_OF_BUILDS = re.compile(
    r"(?:gnu)?makefile|tox\.ini|cmakelists\.txt|dockerfile|rakefile|build\.bazel"
    r"|.*\.(?:bzl|cabal|cmake|csproj|fsproj|gemspec|gradle|mk|podspec|props|sbt|sln|targets|vbproj)"
)
"""Such files in folders of sources, too: they start programs, but do not make a root."""

_DOCUMENTS = frozenset({".adoc", ".markdown", ".md", ".rst"})
_TEXTS = _DOCUMENTS | {".txt"}
"""Files whose examples tests may run."""
_IMPORTED = frozenset({".cjs", ".cts", ".js", ".jsx", ".mjs", ".mts", ".php", ".py", ".rb", ".ts", ".tsx"})
"""Suffixes of languages in which files name the files that they use."""
_FOR_PEOPLE = re.compile(
    r"(?:adr|api|architecture|authors|benchmarks?|changelog|changes|cli|code_of_conduct|contributing|contributors|copying"
    r"|credits|deployment|design|development|examples?|faq|features|glossary|governance|guide|history|install|installation"
    r"|installing|license|maintainers|manual|migrating|migration|news|notes|notice|overview|performance|publishing"
    r"|quickstart|readme|reference|release_notes|releases|releasing|roadmap|security|style|support|testing|thanks|todo"
    r"|troubleshooting|tutorial|upgrading|usage|versioning)(?:[\W_].*)?"
)
"""Conventional names of documents that only people read. Agents obey others, such as ``AGENTS.md``."""
_OF_AGENTS = frozenset({"agents", "claude", "codex", "copilot", "crush", "cursorrules", "gemini", "qwen", "windsurf"})
"""Parts of the names of documents that agents obey, such as ``CLAUDE.local.md``, in any case."""
_OBEYED = frozenset({"agent", "skill", "test-list"})
"""Whole names of documents that agents, or ``cdd tdd``, obey."""
_TEST_NAME = re.compile(r"(?:^|[_.-])(?:tests?|specs?)(?:[_.-]|$)")

_LINK = Clause("waits_as_link")
_SETTINGS = Clause("waits_as_settings")
_ROOT = Clause("waits_in_root")
_MODE = Clause("waits_as_program")
_HOOK = Clause("waits_as_hook")
_TICKET = Clause("waits_as_ticket")
_INSTRUCTIONS = Clause("waits_as_instructions")


def _get_suffix(path: str) -> str:
    return PurePosixPath(fold_name(path.rpartition("/")[2])).suffix


def _is_never(_: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class FileKinds:
    """The files of a work tree before a step, by which a changed file is judged. Paths are relative to the tree."""

    tracked: Collection[str]
    """The files that git tracks."""
    named: frozenset[str] = frozenset()
    """Those that the step's plan names, and may not exist."""
    allowed: Collection[str] = frozenset()
    """Those that the developer has allowed; may grow."""
    layout: ProjectLayout = PLAIN_LAYOUT
    users: Mapping[str, str] = field(default_factory=dict)
    """The files that may import a module in a root, or name a file there: path -> object id."""
    read: Callable[[str], str] = str
    """Returns the text of an object."""
    programs: Collection[str] = ()
    """The tracked files that can be run."""
    is_of_git: Callable[[str], bool] = _is_never
    """Returns whether git's configuration or its hooks name a file, or it is in the folder of hooks."""
    allow: str = "cdd"
    """The command that continues the run; ``--allow-file PATH`` follows."""

    def find_waiting(
        self, changes: Collection[Change], *, links: Collection[str] = (), programs: Collection[str] = ()
    ) -> dict[str, Clause]:
        """Return path -> why for each change that waits.

        ``links`` are the changed paths that are links now, ``programs`` those that can be run.
        """
        found = {}
        for change in changes:
            why = self.explain(change.path, change.kind)
            if why is None and change.path not in {*self.named, *self.allowed}:
                if change.path in links:
                    why = _LINK
                elif change.path in programs and self._is_new_program(change):
                    why = _MODE
            if why is not None:
                found[change.path] = why
        return found

    def _is_new_program(self, change: Change) -> bool:
        if change.kind == "modified":
            return change.path not in self.programs
        folder, suffix = change.path.rpartition("/")[0], _get_suffix(change.path)
        return not any(each.rpartition("/")[0] == folder and _get_suffix(each) == suffix for each in self.programs)

    def explain(self, path: str, kind: ChangeKind | None = None) -> Clause | None:
        """Return why a change of ``path`` waits for a yes; None if it does not.

        By default, the file is written. Settings that are modified may be harmless: see ``find_started``.
        """
        if path in self.named or path in self.allowed:
            return None
        dotted = next((name for name in path.split("/") if fold_name(name).startswith(".")), None)
        if dotted is not None:
            return Clause("waits_with_dot", {"name": format_line(dotted)})
        if names_ticket(path):
            return _TICKET
        # Hooks read documents and run tests, and a step has to change both.
        if self.is_of_git(path) and not (_get_suffix(path) in _DOCUMENTS or self._is_test_name(path)):
            return _HOOK
        kind = kind or ("modified" if path in self._paths else "created")
        if is_settings(path):
            return None if kind == "modified" else _SETTINGS
        if kind == "created":
            return self._explain_new(path)
        if _is_obeyed(path):
            return _INSTRUCTIONS
        folder, suffix = path.rpartition("/")[0], _get_suffix(path)
        is_for_people = suffix in _DOCUMENTS or (
            suffix in {"", ".txt"} and _FOR_PEOPLE.fullmatch(PurePosixPath(path).stem.lower()) is not None
        )
        is_free = folder not in self._roots or is_for_people or self._is_test_name(path)
        is_free = is_free or bool(self._list_package(path)) or self._is_used(path)
        return None if is_free else _ROOT

    def _explain_new(self, path: str) -> Clause | None:
        folder, _, name = path.rpartition("/")
        suffix, is_test = _get_suffix(path), self.layout.is_test(path)
        if suffix in self.code and (self._is_test_name(path) or self._is_of_tests(folder, suffix)):
            return None
        root = self._find_root(path)
        is_document = suffix in _DOCUMENTS
        is_instruction = is_document and (_is_obeyed(path) or _is_instruction(path))
        top = "/".join(filter(None, (root, path[len(root) :].strip("/").partition("/")[0])))
        # Compilers and checkers read these, and nothing starts them.
        if (name == "py.typed" or suffix == ".pyi") and self._has_source(folder, top=top):
            return None
        if folder == root and not is_instruction:
            is_free = any(map(self._is_test_name, self._list_package(path)))
            is_free = is_free or is_document or (suffix in self.code and self._is_used(path))
            return None if is_free else _ROOT
        likes = [each for each in self._by_suffix.get(suffix, ()) if each.startswith(f"{top}/")]
        if is_test:  # a conftest.py is not a source, in any folder
            likes = list(filter(self.layout.is_test, likes))
        if not suffix:  # most of the names that tools look for have none
            likes = [each for each in likes if each.rpartition("/")[0] == folder]
        if is_instruction:
            return None if any(each.rpartition("/")[2] == name for each in likes) else _INSTRUCTIONS
        if likes or (
            suffix in self.code and not is_test and top not in self._folders and self._is_used(top, is_folder=True)
        ):
            return None
        if suffix:
            return Clause("waits_alone", {"suffix": format_line(suffix)})
        return Clause("waits_without_suffix")

    def _is_test_name(self, path: str) -> bool:
        return self.layout.is_test(path) and _TEST_NAME.search(path.rpartition("/")[2].lower()) is not None

    def _is_of_tests(self, folder: str, suffix: str) -> bool:
        # A file of any name: conftest.py counts as a test in each folder.
        return bool(folder) and self.layout.is_test(f"{folder}/any{suffix}")

    def _has_source(self, folder: str, *, top: str) -> bool:
        sources = self._by_suffix.get(".py", ())
        return any(each.rpartition("/")[0] == folder or each.startswith(f"{top}/") for each in sources)

    def _is_used(self, path: str, *, is_folder: bool = False) -> bool:
        """Return whether a test imports ``path`` or names it, or another file does that a test uses in this way."""
        seen, waiting = {path}, [path]
        while waiting:
            used = waiting.pop()
            is_module = _get_suffix(used) in self.code or (is_folder and used == path)
            patterns = _make_patterns(used, is_module=is_module)
            for user in self._texts.keys() - seen:
                pattern = patterns.get(_get_suffix(user), patterns[""])
                if pattern is not None and pattern.search(self._texts[user]):
                    if self.layout.is_test(user):
                        return True
                    seen.add(user)
                    waiting.append(user)
        return False

    def _list_package(self, path: str) -> list[str]:
        """Return the other files of the same folder and language, if these form a package without imports, as in Go."""
        folder, suffix = path.rpartition("/")[0], _get_suffix(path)
        beside = self._by_suffix.get(suffix, ()) if suffix in self.code - _IMPORTED else ()
        return [each for each in beside if each.rpartition("/")[0] == folder and each != path]

    def _find_root(self, path: str) -> str:
        folders = [parent.as_posix() for parent in PurePosixPath(path).parents]
        return next(folder for folder in ("" if each == "." else each for each in folders) if folder in self._roots)

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        code = {path: text for path, text in self.users.items() if _get_suffix(path) in self.code | _TEXTS}
        return {path: self.read(text) for path, text in code.items() if not is_settings(path)}

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self.tracked)

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(parent.as_posix() for path in self._paths for parent in PurePosixPath(path).parents)

    @cached_property
    def _roots(self) -> frozenset[str]:
        """Folders that are the work tree, the project, or another package."""
        found = (path.rpartition("/") for path in self._paths)
        return frozenset(
            {"", self.layout.project, *(folder for folder, _, name in found if fold_name(name) in PACKAGE_MARKS)}
        )

    @cached_property
    def _by_suffix(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in sorted(self._paths | self.named):
            found.setdefault(_get_suffix(path), []).append(path)
        return found

    @cached_property
    def code(self) -> frozenset[str]:
        """The suffixes of the project's tests, which are those of its code."""
        of_tests = {_get_suffix(path) for path in self._paths | self.named if self._is_test_name(path)}
        return frozenset(of_tests - {""} | ({".py"} if self.layout.conventions.is_python else set()))


def _is_instruction(path: str) -> bool:
    """Return whether a document has a conventional name, in capitals, that is not one of those for people."""
    stem = PurePosixPath(path).stem
    is_conventional = stem.upper() == stem and any(map(str.isalpha, stem))
    return is_conventional and not _FOR_PEOPLE.fullmatch(stem.lower())


def _is_obeyed(path: str) -> bool:
    """Return whether a document has a name, in any spelling, that agents obey."""
    stem = PurePosixPath(fold_name(path.rpartition("/")[2])).stem
    memories = {PurePosixPath(fold_name(name)).stem for name in memory.NAMES}
    parts = set(re.split(r"[\W_]+", stem))
    return _get_suffix(path) in _TEXTS and (stem in _OBEYED or not parts.isdisjoint(_OF_AGENTS | memories))


def is_settings(path: str) -> bool:
    """Return whether a file may start programs because of its sections, whatever folder it is in."""
    name = fold_name(path.rpartition("/")[2])
    return name in PACKAGE_MARKS or _OF_BUILDS.fullmatch(name) is not None


_Parts: TypeAlias = Iterator[tuple[tuple[str, str], object]]
"""Section and key -> value."""


def _read_toml(text: str) -> _Parts:
    for name, table in tomllib.loads(text).items():
        if isinstance(table, dict):
            # Some tools obey a section that is there and empty. No value of a file is the class.
            yield (name, ""), dict
            yield from (((name, key), value) for key, value in table.items())
        else:
            yield (name, ""), table


def _read_cfg(text: str) -> _Parts:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as setuptools: Version is another key
    parser.read_string(text)
    for section, values in parser.items():
        yield (section, ""), dict
        yield from (((section, key), value) for key, value in values.items())


def _read_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Of two values for one key, a tool may take the other one.
    if len(pairs) != len(dict(pairs)):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _read_json(text: str) -> _Parts:
    document = json.loads(text, object_pairs_hook=_read_pairs)
    if not isinstance(document, dict):
        raise ValueError("no object")
    yield from ((("", key), value) for key, value in document.items())


_ABOUT = ("author", "authors", "bugs", "classifiers", "contributors", "description", "funding", "homepage", "keywords")
_INERT: dict[str, tuple[Callable[[str], _Parts], frozenset[tuple[str, str]]]] = {
    "pyproject.toml": (
        _read_toml,
        frozenset(("project", key) for key in (*_ABOUT, "license", "maintainers", "readme", "urls", "version")),
    ),
    "setup.cfg": (
        _read_cfg,
        frozenset(("metadata", key) for key in (*_ABOUT, "license", "long_description", "url", "version")),
    ),
    "package.json": (
        _read_json,
        frozenset(("", key) for key in (*_ABOUT, "license", "private", "repository", "version")),
    ),
}
"""File -> its reader, and the keys that only describe the package."""


_OTHER_BREAKS = re.compile(r"\r(?!\n)|[\0\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Characters at which some tools begin a line, and the parsers here do not: they could hide a section."""


def _read_parts(data: bytes, *, read: Callable[[str], _Parts]) -> dict[tuple[str, str], object]:
    text = data.decode("utf-8")
    if _OTHER_BREAKS.search(text):
        raise ValueError("lines end in unusual ways")
    return dict(read(text))


def _names_file(where: tuple[str, str], value: object) -> bool:
    """Return whether a text about the package is read from a file, or from a module that is imported for it."""
    if isinstance(value, dict):
        return where in {("project", "license"), ("project", "readme")} and "file" in value
    return isinstance(value, str) and (
        where == ("project", "readme") or re.match(r"\s*(?:attr|file)\s*:", value) is not None
    )


def find_started(path: str, *, before: bytes, after: bytes) -> Clause | None:
    """Return why a modified file with settings waits: the section that tools may obey; None if only texts changed."""
    read, inert = _INERT.get(fold_name(path.rpartition("/")[2]), (None, frozenset()))
    if read is None:
        return None if before == after else _SETTINGS
    try:
        old, new = (_read_parts(data, read=read) for data in (before, after))
    except (ValueError, configparser.Error, RecursionError):
        return Clause("waits_unreadable")
    for where in sorted(old.keys() | new.keys(), key=lambda where: (not where[1], where)):
        # True equals 1, and the text "None" is not a key without a value.
        values = [repr(parts[where]) if where in parts else "" for parts in (old, new)]
        is_inert = where in inert and not any(_names_file(where, parts.get(where)) for parts in (old, new))
        if values[0] != values[1] and not is_inert:
            return Clause("waits_for_key", {"key": ".".join(filter(None, where))})
    return None


def _make_patterns(path: str, *, is_module: bool) -> dict[str, re.Pattern[str] | None]:
    """Return suffix of a user -> what matches a text that uses the file ``path``; of other users, the suffix is empty.

    A user names the path, or imports the module. A document that only names a file does not use it, and in Python,
    names between backticks are remarks.
    """
    folder, _, name = path.rpartition("/")
    stem, above = re.escape(name.partition(".")[0]), r"(?:\w+\.)*" if folder else ""
    imports = []
    if is_module:
        others = r"(?:[\w.]+(?:[ \t]+as[ \t]+\w+)?[ \t]*,[ \t]*)*"
        imports = [rf"^[ \t>.]*(?:from[ \t]+\.*{above}{stem}\b|import[ \t]+{others}{above}{stem}\b)"]
    found: dict[str, re.Pattern[str] | None] = dict.fromkeys(_TEXTS, _join(imports))
    for suffix, marks in {"": "\"'`", ".py": "\"'"}.items():
        quote, inside = f"[{marks}]", rf"[^{marks}\n]*"
        ways = [rf"{quote}(?:{inside}/)?{re.escape(name)}{quote}", *imports]
        if is_module:
            ways += [
                rf"{quote}\.{{1,2}}/(?:{inside}/)?{stem}(?:\.\w+)?{quote}",
                rf"{quote}-m{quote},\s*{quote}{stem}{quote}|\brequire_relative[ (]+{quote}{stem}{quote}",
                rf"\b(?:import_module|importorskip|run_module|__import__)\(\s*{quote}{above}{stem}(?:\.[\w.]+)?{quote}",
            ]
            if stem == "index":  # JavaScript imports it by its folder, or a workspace's package by its name
                package = re.escape(folder.rpartition("/")[2])
                ways += [rf"{quote}(?:\.{{1,2}}/)*\.{{1,2}}/?{quote}", rf"{quote}(?:@[\w.-]+/)?{package}{quote}"]
        found[suffix] = _join(ways)
    return found


def _join(ways: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(ways), re.MULTILINE) if ways else None


def ask_to_land(waiting: Mapping[str, Clause], *, choose: Choose) -> bool:
    """Ask the developer whether these files may land; ``waiting`` is path -> why."""
    listed = "".join(f"\n  {format_line(path)}: {explain(why)}" for path, why in waiting.items())
    answers = ("no: undo these changes, and tell the model", "yes: they may land, and change again in this run")
    return choose(f"Other programs may obey these files, which the step changes:{listed}\nMay they land?", answers) == 1
