"""Which files are tests or decide how they are run, by their names alone."""

import posixpath
import re

_FOLDERS = frozenset({"__tests__", "__mocks__", "__snapshots__"})
_TEST = re.compile(r".+\.(?:test|spec)\.[cm]?[jt]sx?(?:\.snap)?")
_CONFIGURATION = re.compile(
    r"(?:vitest|jest)\.(?:[\w-]+\.)*(?:config|workspace|projects|setup|preset)(?:\.[\w-]+)*\.(?:[cm]?[jt]s|json)"
    r"|(?:vitest|jest|mocha|test)[.-]?(?:global)?[.-]?(?:setup|teardown|environment)\w*\.[cm]?[jt]sx?"
    r"|setup[.-]?(?:tests?|jest|vitest|mocha)\w*\.[cm]?[jt]sx?"
    r"|\.mocharc\.(?:[cm]?js|json[c5]?|ya?ml)|\.mocharc|mocha\.opts",
    re.IGNORECASE,
)
_NODES = re.compile(r"(?:test-.+|.+[-_]test|test)\.[cm]?[jt]s")
_NODES_FOLDER = "test"
_SOURCE = re.compile(r".+\.[cm]?[jt]sx?")


def is_test(path: str) -> bool:
    """Whether a file is one of the tests, their mocks and snapshots, or configures and prepares them.

    ``package.json`` is not, as most of what it says is the product's.
    """
    folders, name = posixpath.split(path)
    return (
        not _FOLDERS.isdisjoint(folders.split("/"))
        or _TEST.fullmatch(name) is not None
        or _CONFIGURATION.fullmatch(name) is not None
    )


def is_nodes_test(path: str) -> bool:
    """Whether a file is a test for ``node --test``, which also has names of its own and the folder ``test``."""
    folders, name = posixpath.split(path)
    is_in_folder = _NODES_FOLDER in folders.split("/") and _SOURCE.fullmatch(name) is not None
    return is_test(path) or is_in_folder or _NODES.fullmatch(name) is not None


def is_mochas_test(path: str) -> bool:
    """Whether a file is a test for mocha, which runs what it finds in the folder ``test`` if nothing else is said."""
    folders, name = posixpath.split(path)
    return is_test(path) or (folders.split("/")[0] == _NODES_FOLDER and _SOURCE.fullmatch(name) is not None)


def is_file(target: str) -> bool:
    """Whether a target without a test's name is a file, not a folder, by its name."""
    return _SOURCE.fullmatch(posixpath.basename(target)) is not None
