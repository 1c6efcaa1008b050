"""What the new content of a file has to be like before any of it is written, and where one may be written at all."""

import ast
import hashlib
import warnings
from collections.abc import Callable
from typing import TypeAlias

from cdd_agent.agent.editing.elision import require_whole
from cdd_agent.agent.unseen import require_seen
from cdd_agent.errors import UsageError
from cdd_agent.guarded.keys import MASK, Masked, mask
from cdd_agent.guarded.spelling import folded
from cdd_agent.workspace.files import Workspace, decode

MayWrite: TypeAlias = Callable[[str], str | None]
"""Takes a relative path and gives the reason why this agent may not write there, or nothing."""

PYTEST_FILES = frozenset({"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"})
"""What pytest is configured by; on a file system that looks past case it finds them in any spelling."""


class Known:
    """What an agent knows of the project's files: the content that it was shown last, or wrote itself."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._digests: dict[str, bytes] = {}

    def __contains__(self, name: str) -> bool:
        """Whether the agent knows any content of the file."""
        return name in self._digests

    def note(self, name: str, data: bytes) -> None:
        """The agent knows that the file holds ``data``."""
        self._digests[name] = hashlib.sha256(data).digest()

    def is_current(self, name: str, data: bytes) -> bool:
        """Whether ``data`` is what the agent knows of the file."""
        return self._digests.get(name) == hashlib.sha256(data).digest()


def require_writable(workspace: Workspace, path: str, *, may_write: MayWrite) -> str:
    """The relative path of a file that this agent may write; raises ``UsageError`` with the reason if not."""
    name = workspace.writable(path)
    reason = may_write(name) or may_write(_as_pytest_names_it(name))
    if reason is not None:
        raise UsageError(f"{name} may not be written: {reason}", hint="change another file")
    return name


def require_fit(name: str, *, text: str, before: bytes | None) -> None:
    """Raise ``UsageError`` unless ``text`` may become the whole content of the file, None before if it is new.

    Characters that nobody sees, masks in the place of keys, and lines that stand for code left out are refused, unless
    they were there; and a Python file that could be parsed stays one.
    """
    old = decode(before or b"")
    require_seen(text, before=old)
    require_no_mask(text, before=old, where="content")
    require_whole(text, before=old, name=name)
    if before is not None:
        require_python(name, before=before, after=text.encode("utf-8", "surrogateescape"))


def require_no_mask(text: str, *, before: str, where: str) -> None:
    """Raise ``UsageError`` if ``text`` would put a mask where a key was; one that ``before`` holds itself is text."""
    added = next((found for found in MASK.findall(text) if found not in before), None)
    if added is not None:
        raise UsageError(
            f"{where} holds {added}, which only stands for a key that you were not shown: nothing was changed.",
            hint="leave those lines out: Edit the lines around them, they keep what is in the file",
        )


def restored(masked: Masked, edited: str) -> str:
    """The edited text with its keys back; raises ``UsageError`` if one of them was touched."""
    text = masked.restored(edited)
    if text is None:
        raise UsageError(
            "The edit reaches into a text that is masked, being shaped like a key: nothing was changed.",
            hint="Edit the lines around it, and leave the replacing of a key to the user",
        )
    return text


def require_python(name: str, *, before: bytes, after: bytes) -> None:
    """Raise ``UsageError`` if a Python file that could be parsed no longer could."""
    if not name.endswith((".py", ".pyi")) or _syntax_error(before) is not None:
        return
    error = _syntax_error(after)
    if error is not None:
        raise UsageError(
            f"{name} would no longer be Python, nothing was changed: {mask(error).text}",
            hint="mend the new text; if the change needs several edits, make each one leave valid code",
        )


def _syntax_error(source: bytes) -> str | None:
    """Why ``source`` is not Python, with the line, or nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except SyntaxError as error:
        shown = f": {error.text.strip()}" if error.text else ""
        return f"line {error.lineno}: {error.msg}{shown}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return None


def _as_pytest_names_it(name: str) -> str:
    """``name`` as a file system that looks past case would give it to pytest, if it configures pytest then."""
    folder, _, last = name.rpartition("/")
    spelled = folded(last)
    return name if spelled not in PYTEST_FILES else f"{folder}/{spelled}".lstrip("/")
