"""Why a test failed: from an exception to its kind, its origin and the places in the user's own code."""

from __future__ import annotations

from typing import Callable, Iterator

from ..report import Failure, Frame
from .kinds import MESSAGE_CAP, classify, message_of
from .missing import is_in_project
from .places import (
    calls_of,
    doctest_place,
    is_in_raises,
    is_named,
    is_own,
    is_own_or_installed,
    origin_of,
    relative_path,
    scopes,
    syntax_place,
)

TEXT_CAP = 6000
FRAMES_CAP = 20
_LAYERS_CAP = 20


def describe(
    error: BaseException, *, phase: str, root: str, test_file: str, source: Callable[[str], str | None]
) -> Failure:
    """Return the failure that an exception stands for.

    ``root`` is the absolute root directory of the run, ``test_file`` relative to it; ``source`` returns the text of a
    file below the root, None if it cannot be read.
    """
    layers = list(_layers(error))
    error = layers[-1]
    stacks = [list(calls_of(layer)) for layer in layers]
    own = [[call for call in stack if is_own(call[0], root)] for stack in stacks]
    lines = {line for calls in own for path, line, _ in calls if relative_path(path, root) == test_file}
    kind, missing = classify(error, phase=phase, in_raises=is_in_raises(lines, source, test_file=test_file))
    if not any(own):
        causes = [list(calls_of(cause)) for cause in _causes(error)]
        stacks = [*causes, *stacks]
        own = [[call for call in stack if is_own(call[0], root)] for stack in causes]
    innermost = next((calls for calls in reversed(own) if calls), [])
    frames = tuple(Frame(relative_path(path, root), line, function) for path, line, function in innermost[-FRAMES_CAP:])
    doctest_at = next(filter(None, map(doctest_place, layers)), None)
    place = doctest_at or syntax_place(error) or next(((at.path, at.line) for at in reversed(frames)), None)
    path = None if place is None else relative_path(place[0], root)
    product = "" if doctest_at and frames else test_file  # a doctest lies in the file that it tests
    stack = next((stack for stack in reversed(stacks) if stack), [])
    is_said_of_test = kind == "xpass_strict"  # by pytest or unittest, whose exception has no place
    origin = "test" if is_said_of_test else origin_of(error, stack, root=root, test_file=product, place=path)
    message = message_of(error)
    if not message and isinstance(error, AssertionError) and frames:
        message = _line(source(frames[-1].path), frames[-1].line)
    return Failure(
        phase=phase,
        kind=kind,
        origin=origin,
        exception=type(error).__name__,
        message=message,
        missing_name=missing,
        path=path,
        line=None if place is None else place[1],
        frames=frames,
        missing_in_project=_is_in_project(error, missing, root=root, origin=origin),
    )


def _is_in_project(error: BaseException, missing: str | None, *, root: str, origin: str) -> bool | None:
    if missing is None:
        return None
    if isinstance(error, NameError):
        return origin != "third_party"
    return is_in_project(missing, root, is_own=lambda path: is_own_or_installed(path, root))


def _line(text: str | None, number: int) -> str:
    """A line of a source, as pytest rewrites the assertions of test files only: those elsewhere have no message."""
    lines = (text or "").splitlines()
    return lines[number - 1].strip()[:MESSAGE_CAP] if number <= len(lines) else ""


def from_text(text: str, phase: str) -> Failure:
    """Return the failure of a report that came without an exception: a strict pass, a worker that died."""
    kind = "exception"
    if text.startswith("[XPASS(strict)]"):
        kind = "xpass_strict"
    elif phase not in ("collect", "setup", "call", "teardown"):
        kind, phase = "crash", "call"
    return Failure(phase=phase, kind=kind, origin="test", exception="", message=text[:MESSAGE_CAP])


def _layers(error: BaseException) -> Iterator[BaseException]:
    """The exception, and inside it, innermost last, the one it wraps."""
    layer: BaseException | None = error
    for _ in range(_LAYERS_CAP):
        if layer is None:
            return
        yield layer
        layer = _wrapped(layer)


def _wrapped(error: BaseException) -> BaseException | None:
    inner: object = None
    if is_named(error, "MultipleDoctestFailures", package="_pytest"):
        inner = next(iter(getattr(error, "failures", ())), None)
    elif is_named(error, "UnexpectedException", package="doctest"):
        inner = getattr(error, "exc_info", (None, None))[1]
    elif is_named(error, "ConftestImportFailure", package="_pytest"):
        inner = error.__cause__
    elif _is_group(error):
        inner = _only_member(error)
    elif is_named(error, "OutcomeException", package="_pytest"):
        # warns() and RaisesGroup() fail even if the block under them was left by an exception: that one is the reason
        exits = (
            names for module, function, names in scopes(error) if (module[:8], function) == ("_pytest.", "__exit__")
        )
        inner = next(exits, {}).get("exc_val")
        inner = None if isinstance(inner, BaseException) and _is_group(inner) else inner
    elif isinstance(error, Warning) and next(scopes(error), ())[:2] == ("_pytest.recwarn", "__exit__"):
        inner = error.__context__  # warns() failed, and sent on what was not expected, which is an error here
    return inner if isinstance(inner, BaseException) else None


def _is_group(error: BaseException) -> bool:
    return any(is_named(error, "BaseExceptionGroup", package=name) for name in ("builtins", "exceptiongroup"))


def _only_member(group: BaseException) -> BaseException | None:
    """The first member of a group of which all are of one class and kind and lack the same name."""
    members: tuple[BaseException, ...] = getattr(group, "exceptions", ())
    ends = [list(_layers(member))[-1] for member in members]
    return ends[0] if len({(type(end), classify(end, phase="call")) for end in ends}) == 1 else None


def _causes(error: BaseException) -> list[BaseException]:
    """What the exception was raised from, in an exception without a place of its own, outermost last."""
    found = [error]
    while found[0].__cause__ is not None and len(found) < _LAYERS_CAP:
        found.insert(0, found[0].__cause__)
    return found[:-1]
