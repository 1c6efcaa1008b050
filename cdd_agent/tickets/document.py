"""The text of a ticket's document: people write it, and a clone brings it, so it may be anything but a text."""

import errno
from pathlib import Path

from cdd_agent.errors import DocumentError, Problem
from cdd_agent.storage import read_ordinary


def load_text(path: Path, *, limit_bytes: int) -> str:
    """The text of the file ``path``, with its line ends as they are.

    Raises ``FileNotFoundError``, and ``DocumentError`` for what is no UTF-8 text of at most ``limit_bytes``. Never
    waits, as a pipe would make it.
    """
    try:
        return read_ordinary(path, limit_bytes=limit_bytes, through_links=True).decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"it is no UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"
        raise _unreadable(path, problem, hint="save it as UTF-8 text") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        is_too_large = error.errno == errno.EFBIG
        problem = f"at most {limit_bytes} bytes are read" if is_too_large else (error.strerror or str(error))
        raise _unreadable(path, problem, hint=f"look at it: ls -l {path}") from error


def _unreadable(path: Path, problem: str, *, hint: str) -> DocumentError:
    return DocumentError(str(path), (Problem(line=0, message=problem),), hint=hint)
