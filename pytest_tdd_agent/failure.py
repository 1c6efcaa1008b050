"""Describe why a test failed: from an exception to its failure kind, origin, missing name and position.

``classify`` maps an exception to a kind of the closed list ``KINDS``; the first rule that fits decides. ``describe``
returns the whole failure. ``find_stage`` decides whether a failure is a right reason in RED. pytest's exceptions are
recognized by name, so nothing of pytest is imported and the rules hold for every version.
"""

from __future__ import annotations

import ast
import errno
import os
import re
from functools import lru_cache
from types import FrameType
from typing import Callable, Iterator, Mapping, Sequence, Tuple

from .fingerprint import PACKAGES_FOLDERS, STANDARD_LIBRARY, is_protected
from .missing_names import KINDS as MISSING_KINDS
from .missing_names import covers, find_missing_name, is_attribute_of_none, is_in_project, is_signature_mismatch
from .report import Failure, Frame
from .sources import UnreadableSource, decode_source, parse_source
from .system import SEPARATOR, Shield, Silence, bind_builtins, join_path, to_plain_text

bind_builtins(globals())


_RAISES = frozenset({"raises", "RaisesGroup", "RaisesExc", "assertRaises", "assertRaisesRegex", "assertRaisesMessage"})
_RUNNERS = frozenset({"_pytest", "pytest", "pluggy", "unittest", "doctest", "importlib", "xdist", "pytest_timeout"})
_INSTALLED = PACKAGES_FOLDERS | {".tox", ".nox", ".venv", "venv", "node_modules"}

Call = Tuple[str, int, str]
"""Absolute file, line and function name."""


def is_instance_of(error: BaseException, name: str, *, package: str) -> bool:
    """Return whether a class of the exception has this name and top-level package."""
    return (package, name) in _list_names(type(error).__mro__)


@lru_cache(maxsize=256)
def _list_names(classes: tuple[type, ...]) -> frozenset[tuple[str, str]]:
    return frozenset((str(cls.__module__).split(".", 1)[0], cls.__name__) for cls in classes)


def find_doctest_position(error: BaseException) -> tuple[str, int] | None:
    """Return file and line of the doctest example that raised the exception."""
    if not any(is_instance_of(error, name, package="doctest") for name in ("DocTestFailure", "UnexpectedException")):
        return None
    test, example = getattr(error, "test", None), getattr(error, "example", None)
    return str(getattr(test, "filename", "")), int(getattr(test, "lineno", 0) or 0) + getattr(example, "lineno", 0) + 1


def find_syntax_position(error: BaseException) -> tuple[str, int] | None:
    """Return file and line that Python could not parse; None if the source was not a file."""
    name, line = (
        (error.filename, error.lineno) if isinstance(error, SyntaxError) else (None, None)
    )  # hostile code can set any value
    if isinstance(name, str) and name and not name.startswith("<"):
        return to_plain_text(name), line if isinstance(line, int) else 0
    return None


def iterate_scopes(error: BaseException) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield module, function and variables of each frame that the exception passed, innermost first."""
    tracebacks = []
    at = error.__traceback__
    while at is not None:
        tracebacks.append(at)
        at = at.tb_next
    for at in reversed(tracebacks):
        frame = at.tb_frame
        yield str(frame.f_globals.get("__name__")), frame.f_code.co_name, frame.f_locals


class Places:
    """Whose a file is, by its path alone, with the folders as they were when the run was configured."""

    def __init__(self, root: str) -> None:
        """Look up ``root``, the absolute root directory of the run, and the current folder."""
        self.root = root
        self._folder = os.getcwd()
        # The root may be a link, and frames may name its target.
        self._prefixes = tuple(path.rstrip(os.sep) + os.sep for path in (root, os.path.realpath(root)))
        self._own: dict[str, bool] = {}

    def iterate_calls(self, error: BaseException) -> Iterator[Call]:
        """Yield each frame outside the test runner, outermost first, except code without a file."""
        traceback = error.__traceback__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            file = to_plain_text(code.co_filename)
            if file[:1] != "<" and not _is_runner(traceback.tb_frame.f_globals.get("__name__")):
                yield file if file[:1] == "/" else self.resolve(file), traceback.tb_lineno, to_plain_text(code.co_name)
            traceback = traceback.tb_next

    def iterate_frames(self, frame: FrameType | None) -> Iterator[Call]:
        """Yield each call that is running, as ``iterate_calls`` does, but innermost first."""
        while frame is not None:
            file = to_plain_text(frame.f_code.co_filename)
            if file[:1] != "<" and not _is_runner(frame.f_globals.get("__name__")):
                yield (
                    file if file[:1] == "/" else self.resolve(file),
                    frame.f_lineno,
                    to_plain_text(frame.f_code.co_name),
                )
            frame = frame.f_back

    def resolve(self, path: str) -> str:
        """Return an absolute path."""
        return join_path(self._folder, path)

    def find_relative(self, path: str) -> str:
        """Return a path as in reports: posix, and relative if it is below the root."""
        prefix = next(filter(path.startswith, self._prefixes), "")
        return path[len(prefix) :].replace(SEPARATOR, "/")

    def is_own(self, path: str) -> bool:
        """Return whether an absolute path is the user's own code: below the root, and not installed there."""
        if path not in self._own:
            is_below = path.startswith(self._prefixes)
            self._own[path] = is_below and _INSTALLED.isdisjoint(self.find_relative(path).split("/"))
        return self._own[path]

    def is_own_or_installed(self, path: str) -> bool | None:
        """Return True for the user's own code, False for the standard library and installed code, None otherwise."""
        if self.is_own(path):
            return True
        is_installed = _is_standard(path) or not _INSTALLED.isdisjoint(path.replace(SEPARATOR, "/").split("/"))
        return False if is_installed else None


@lru_cache(maxsize=1024)
def _is_runner(module: object) -> bool:
    return isinstance(module, str) and module.split(".", 1)[0] in _RUNNERS


def _is_standard(path: str) -> bool:
    return path.startswith(STANDARD_LIBRARY) and "-packages" not in path


def find_origin(
    error: BaseException, stack: Sequence[Call], *, places: Places, test_file: str, place: str | None
) -> str:
    """Return whose code raised: that of the innermost frame outside the test runner and the standard library."""
    if is_instance_of(error, "FixtureLookupError", package="_pytest"):
        return "test"
    own = [path for path, _, _ in stack if not _is_standard(path)]
    innermost = own[-1] if own else None
    if innermost is None or find_syntax_position(error):
        innermost = None if place is None else join_path(places.root, place)
    return _find_owner(innermost, places=places, test_file=test_file)


def _find_owner(path: str | None, *, places: Places, test_file: str) -> str:
    if path is None or not places.is_own(path):
        return "third_party"
    file = places.find_relative(path)
    return "test" if file == test_file or is_protected(file) else "project"


def is_in_raises(lines: set[int], source: Callable[[str], bytes | None], *, test_file: str) -> bool:
    """Return whether one of the test file's lines is inside ``with raises(...)`` or calls ``raises(X, f)``."""
    content = source(test_file) if lines else None
    return content is not None and not lines.isdisjoint(_list_raises_lines(content))


def _decode(content: bytes) -> str:
    try:
        return decode_source(content, errors="replace")
    except UnreadableSource:
        return ""


@lru_cache(maxsize=8)
def _list_raises_lines(content: bytes) -> frozenset[int]:
    text = _decode(content)
    if not any(name in text for name in _RAISES):
        return frozenset()
    try:
        with Silence():
            spans = _iterate_spans(parse_source(content))
            return frozenset([line for first, last in spans for line in range(first, last + 1)])
    except UnreadableSource:
        return frozenset()


def _iterate_spans(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in iterate_nodes(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            if any(_is_raises(item.context_expr) for item in node.items):
                yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
        elif isinstance(node, ast.Call) and _is_raises(node) and len(node.args) > 1:
            yield node.lineno, node.end_lineno or node.lineno


def iterate_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, without functions of the standard library."""
    nodes = [tree]
    for node in nodes:
        yield node
        for name in node._fields:
            value = getattr(node, name, None)
            found = value if isinstance(value, list) else (value,)
            nodes += [each for each in found if isinstance(each, ast.AST)]


def _is_raises(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _RAISES


KINDS = {
    "syntax_error": "Python cannot parse a file.",
    "missing_module": "An imported module does not exist; `missing_name` is the module.",
    "import_error": "A module exists, but a name imported from it does not; `missing_name` is module and name.",
    "collection_error": "The import of a test file raised another exception.",
    "fixture_missing": "A fixture that the test requests does not exist.",
    "did_not_raise": "The block of `pytest.raises` raised no exception.",
    "did_not_warn": "The block of `pytest.warns` gave no such warning.",
    "raises_match_mismatch": "The exception has the right class but the wrong content.",
    "wrong_exception": "The block of `raises` raised an exception of another class.",
    "not_implemented": "NotImplementedError.",
    "attribute_error": "AttributeError, except of None; `missing_name` is owner and attribute.",
    "name_error": "NameError; `missing_name` is the name.",
    "signature_mismatch": "A call does not match the function's parameters; `missing_name` is the function, and "
    "the keyword if that does not match.",
    "assertion": "An assertion failed, including those of unittest and doctest.",
    "timeout": "A time limit was exceeded.",
    "crash": "The process that ran the test died.",
    "resource": "Memory, disk space or file descriptors ran out.",
    "recursion": "RecursionError.",
    "system_exit": "SystemExit.",
    "xpass_strict": "The test passes, but is marked as a strict expected failure.",
    "pytest_fail": "`pytest.fail` was called.",
    "exception": "Any other exception.",
}
"""Kind of a failure -> its meaning; a closed list."""

MESSAGE_CAP = 2000

_FAIL_PREFIXES = (
    ("DID NOT RAISE", "did_not_raise"),
    ("DID NOT WARN", "did_not_warn"),
    ("Regex pattern did not match any of ", "did_not_warn"),
    ("Timeout ", "timeout"),
    ("[XPASS(strict)]", "xpass_strict"),
    ("Unexpected success", "xpass_strict"),
    ("Raised exception ", "raises_match_mismatch"),
)
_UNITTEST_PHRASES = (
    (" not raised", "did_not_raise"),
    (" not triggered", "did_not_warn"),
    (" does not match ", "raises_match_mismatch"),
)
_TIMEOUTS = (
    ("TimeoutError", "asyncio"),
    ("TimeoutError", "concurrent"),
    ("TimeoutExpired", "subprocess"),
    ("timeout", "socket"),
    ("DeadlineExceeded", "hypothesis"),
)
_RESOURCE_ERRNOS = frozenset({errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.EDQUOT})
_BEFORE_RAISES = ("timeout", "resource")
"""Kinds that hold inside ``raises`` too, because the environment caused them."""


def classify(error: BaseException, *, phase: str, in_raises: bool = False) -> tuple[str, str | None]:
    """Return the kind of an exception and the missing name.

    ``in_raises``: the exception left the body of a ``with raises(...)``.
    """
    if is_instance_of(
        error, "PackageNotFoundError", package="importlib"
    ):  # a missing distribution, not a missing module
        return ("collection_error" if phase == "collect" else "exception"), None
    message = format_message(error)
    kind = _find_explicit_kind(error, message)
    if kind is None and phase == "collect":
        kind = _find_import_kind(error)
    if kind is None:
        kind = _find_class_kind(error, message)
        if in_raises and kind not in _BEFORE_RAISES and not isinstance(error, KeyboardInterrupt):
            kind = "wrong_exception"
    return kind, find_missing_name(error, message)


def _find_explicit_kind(error: BaseException, message: str) -> str | None:
    if isinstance(error, SyntaxError) and find_syntax_position(error):
        return "syntax_error"
    if is_instance_of(error, "FixtureLookupError", package="_pytest"):
        return "fixture_missing"
    if is_instance_of(error, "OutcomeException", package="_pytest") and type(error).__name__ == "Failed":
        return next((kind for prefix, kind in _FAIL_PREFIXES if message.startswith(prefix)), "pytest_fail")
    if is_instance_of(error, "DocTestFailure", package="doctest"):
        return "assertion"
    if isinstance(error, AssertionError):
        module, function, _ = next(iterate_scopes(error), ("", "", {}))
        if module.startswith("_pytest.") and function in ("__exit__", "match"):
            return "raises_match_mismatch"
        if module == "unittest.case" and function == "_raiseFailure":
            return next((kind for phrase, kind in _UNITTEST_PHRASES if phrase in message), None)
    return None


def _find_import_kind(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return "syntax_error"
    if not isinstance(error, ImportError) or type(error).__module__.startswith("_pytest."):
        return "collection_error"
    return MISSING_KINDS.get(type(error).__name__, "import_error")


def _find_class_kind(error: BaseException, message: str) -> str:
    classes: tuple[tuple[type[BaseException], str], ...] = (
        (SyntaxError, "syntax_error"),
        (ModuleNotFoundError, "missing_module"),
        (ImportError, "import_error"),
        (NotImplementedError, "not_implemented"),
        (RecursionError, "recursion"),
        (AttributeError, "attribute_error"),
        (NameError, "name_error"),
        (AssertionError, "assertion"),
        (TimeoutError, "timeout"),
        (MemoryError, "resource"),
        (SystemExit, "system_exit"),
    )
    if is_signature_mismatch(error, message):
        return "signature_mismatch"
    if is_attribute_of_none(message) and isinstance(error, AttributeError):
        return "exception"
    if isinstance(error, OSError) and error.errno in _RESOURCE_ERRNOS:
        return "resource"
    if any(is_instance_of(error, name, package=package) for name, package in _TIMEOUTS):
        return "timeout"
    return next((kind for cls, kind in classes if isinstance(error, cls)), "exception")


def format_message(error: BaseException) -> str:
    """Return the text of an exception with its notes, truncated; never raises, even if its ``__str__`` does."""
    if isinstance(error, SyntaxError):
        return to_plain_text(error.msg)[:MESSAGE_CAP] if isinstance(error.msg, str) else ""
    if is_instance_of(error, "DocTestFailure", package="doctest"):
        example, got = getattr(error, "example", None), getattr(error, "got", "")
        return f"Expected {getattr(example, 'want', '')!r}, got {got!r}"[:MESSAGE_CAP]
    if is_instance_of(error, "FixtureLookupError", package="_pytest"):
        return f"fixture {getattr(error, 'argname', '')!r} not found"
    # Not with ``traceback``, whose functions a test can replace.
    shown = [_to_text(error, instead="<exception str() failed>")]
    shown += [_to_text(note, instead="<note str() failed>") for note in _read_notes(error)]
    return "\n".join(filter(None, shown)).rstrip("\n")[:MESSAGE_CAP]


def _read_notes(error: BaseException) -> list[object]:
    notes: object = None
    with Shield():
        notes = getattr(error, "__notes__", None)
    return notes if type(notes) is list else []


def _to_text(value: object, *, instead: str) -> str:
    with Shield():
        return to_plain_text(str(value))
    return instead


TEXT_CAP = 6000
FRAMES_CAP = 20
_LAYERS_CAP = 20


def describe(
    error: BaseException, *, phase: str, places: Places, test_file: str, source: Callable[[str], bytes | None]
) -> Failure:
    """Return the failure that an exception describes.

    ``test_file`` is relative to the root directory of the run; ``source`` returns the content of a file below it, None
    if it cannot be read.
    """
    layers = list(_iterate_layers(error))
    error = layers[-1]
    stacks = [list(places.iterate_calls(layer)) for layer in layers]
    own = [[call for call in stack if places.is_own(call[0])] for stack in stacks]
    lines = {line for calls in own for path, line, _ in calls if places.find_relative(path) == test_file}
    kind, missing = classify(error, phase=phase, in_raises=is_in_raises(lines, source, test_file=test_file))
    if not any(own):
        causes = [list(places.iterate_calls(cause)) for cause in _list_causes(error)]
        stacks = [*causes, *stacks]
        own = [[call for call in stack if places.is_own(call[0])] for stack in causes]
    innermost = next((calls for calls in reversed(own) if calls), [])
    frames = tuple(
        Frame(places.find_relative(path), line, function) for path, line, function in innermost[-FRAMES_CAP:]
    )
    doctest_at = next(filter(None, map(find_doctest_position, layers)), None)
    place = doctest_at or find_syntax_position(error) or next(((at.path, at.line) for at in reversed(frames)), None)
    path = None if place is None else places.find_relative(place[0])
    product = "" if doctest_at and frames else test_file  # a doctest is in the file that it tests
    stack = next((stack for stack in reversed(stacks) if stack), [])
    is_unexpected_pass = kind == "xpass_strict"  # pytest and unittest raise it without a position
    origin = "test" if is_unexpected_pass else find_origin(error, stack, places=places, test_file=product, place=path)
    message = format_message(error)
    if not message and isinstance(error, AssertionError) and frames:
        # pytest rewrites assertions in test files only; others have no message.
        message = _read_line(source(frames[-1].path), frames[-1].line)
    return Failure(
        phase=phase,
        kind=kind,
        origin=origin,
        exception=to_plain_text(type(error).__name__),
        message=message,
        missing_name=missing,
        path=path,
        line=None if place is None else place[1],
        frames=frames,
        missing_in_project=_is_in_project(error, missing, places=places, origin=origin),
    )


class TimeLimitExceeded(BaseException):
    """A test did not end within the limit. Code that catches Exception does not catch it."""


def format_time_limit(limit_s: float) -> str:
    """Return the message about a test that did not end."""
    return f"the test did not end within {limit_s:g} s"


def describe_endless(stack: Sequence[Call], *, limit_s: float, phase: str, places: Places, test_file: str) -> Failure:
    """Return the failure of a test that did not end; ``stack`` has the calls at that time, outermost first."""
    own = [call for call in stack if places.is_own(call[0])]
    frames = tuple(Frame(places.find_relative(path), line, function) for path, line, function in own[-FRAMES_CAP:])
    innermost = next((path for path, _, _ in reversed(stack) if not _is_standard(path)), None)
    return Failure(
        phase=phase,
        kind="timeout",
        origin=_find_owner(innermost, places=places, test_file=test_file),
        exception=TimeLimitExceeded.__name__,
        message=format_time_limit(limit_s),
        path=frames[-1].path if frames else None,
        line=frames[-1].line if frames else None,
        frames=frames,
    )


_DUMPED_CALL = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def parse_dumped_stack(lines: Sequence[str]) -> list[Call]:
    """Return the calls of the main thread, outermost first, from what ``faulthandler`` wrote about all threads.

    It writes the newest thread first, so the main thread last, and of each thread the innermost call first.
    """
    stack: list[Call] = []
    for line in lines:
        found = _DUMPED_CALL.match(line)
        if found is not None:
            stack.append((found[1], int(found[2]), found[3]))
        elif "Thread " in line[:9] or "thread " in line[:9]:
            stack.clear()
    return stack[::-1]


def _is_in_project(error: BaseException, missing: str | None, *, places: Places, origin: str) -> bool | None:
    if missing is None:
        return None
    if isinstance(error, NameError):
        return origin != "third_party"
    return is_in_project(missing, places.root, is_own=lambda path: places.is_own_or_installed(places.resolve(path)))


def _read_line(content: bytes | None, number: int) -> str:
    lines = _decode(content or b"").splitlines()
    return lines[number - 1].strip()[:MESSAGE_CAP] if number <= len(lines) else ""


def from_text(text: str, phase: str) -> Failure:
    """Return the failure of a report without an exception: a strict pass, or a worker that died."""
    kind = "exception"
    if text.startswith("[XPASS(strict)]"):
        kind = "xpass_strict"
    elif phase not in ("collect", "setup", "call", "teardown"):
        kind, phase = "crash", "call"
    return Failure(phase=phase, kind=kind, origin="test", exception="", message=text[:MESSAGE_CAP])


def _iterate_layers(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and the ones it wraps, innermost last."""
    layer: BaseException | None = error
    for _ in range(_LAYERS_CAP):
        if layer is None:
            return
        yield layer
        layer = _unwrap(layer)


def _unwrap(error: BaseException) -> BaseException | None:
    inner: object = None
    if is_instance_of(error, "MultipleDoctestFailures", package="_pytest"):
        inner = next(iter(getattr(error, "failures", ())), None)
    elif is_instance_of(error, "UnexpectedException", package="doctest"):
        inner = getattr(error, "exc_info", (None, None))[1]
    elif is_instance_of(error, "ConftestImportFailure", package="_pytest"):
        inner = error.__cause__
    elif _is_group(error):
        inner = _find_only_member(error)
    elif is_instance_of(error, "OutcomeException", package="_pytest"):
        # warns() and RaisesGroup() fail even if an exception left their block: that exception is the reason
        exits = (
            names
            for module, function, names in iterate_scopes(error)
            if (module[:8], function) == ("_pytest.", "__exit__")
        )
        inner = next(exits, {}).get("exc_val")
        inner = None if isinstance(inner, BaseException) and _is_group(inner) else inner
    elif isinstance(error, Warning) and next(iterate_scopes(error), ())[:2] == ("_pytest.recwarn", "__exit__"):
        inner = error.__context__  # warns() failed and emitted the unexpected warning again, as an error
    return inner if isinstance(inner, BaseException) else None


def _is_group(error: BaseException) -> bool:
    return any(is_instance_of(error, "BaseExceptionGroup", package=name) for name in ("builtins", "exceptiongroup"))


def _find_only_member(group: BaseException) -> BaseException | None:
    """Return the first member of a group if all have the same class, kind and missing name."""
    members: tuple[BaseException, ...] = getattr(group, "exceptions", ())
    ends = [list(_iterate_layers(member))[-1] for member in members]
    return ends[0] if len({(type(end), classify(end, phase="call")) for end in ends}) == 1 else None


def _list_causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while found[0].__cause__ is not None and len(found) < _LAYERS_CAP:
        found.insert(0, found[0].__cause__)
    return found[:-1]


BEHAVIORAL = ("assertion", "did_not_raise", "did_not_warn", "raises_match_mismatch", "wrong_exception")
"""Kinds of a test that ran the code, and the code did something else."""

STRUCTURAL = (
    "missing_module",
    "import_error",
    "attribute_error",
    "name_error",
    "signature_mismatch",
    "not_implemented",
)
"""Kinds of code that does not exist yet; a right reason only for an expected name."""

_NAMED = {**MISSING_KINDS, "NotImplementedError": "not_implemented", "SyntaxError": "syntax_error"}
_NAMED_IN_PRODUCT = ("ImportError", "ModuleNotFoundError", "NameError", "NotImplementedError", "UnboundLocalError")
_LOOKED_UP = ("missing_module", "import_error", "signature_mismatch")
"""Kinds that name the searched module; an attribute may be missing in an object of any library."""
_NO_DEFECT = ("syntax_error", "fixture_missing", "missing_module", "timeout", "crash", "resource")
"""Kinds that are never a right reason, even if their exception is expected."""


def find_stage(failure: Failure, expects: Sequence[str]) -> str | None:
    """Return the stage of a right reason to fail in RED; None for a wrong reason.

    ``behavioral``: the test ran the code, and the code did something else. ``structural``: the code does not exist
    yet, so the test could not judge it. ``expects`` is as for ``gate.judge``.
    """
    kind = find_effective_kind(failure)
    is_declared = failure.origin == "project" and failure.exception in expects
    is_defect = is_declared and kind not in _NO_DEFECT and not is_of_third_party(failure)
    if failure.phase == "call" and (kind in BEHAVIORAL or is_defect or _is_about_none(failure)):
        return "behavioral"
    if failure.phase not in ("call", "collect") or kind not in STRUCTURAL:
        return None
    is_raised_by_product = failure.origin == "project" and kind in ("not_implemented", "name_error")
    return "structural" if is_raised_by_product or _is_expected(failure, expects) else None


def _is_about_none(failure: Failure) -> bool:
    """Return whether the test could not use a None, which is what code that does nothing returns."""
    is_misuse = failure.exception in ("TypeError", "AttributeError") and "NoneType" in failure.message
    return failure.kind == "exception" and failure.origin != "project" and is_misuse


def find_effective_kind(failure: Failure) -> str:
    """Return the kind; for a name missing inside ``raises``, the kind it would have outside."""
    if failure.kind != "wrong_exception" or not (failure.origin == "test" or failure.exception in _NAMED_IN_PRODUCT):
        return failure.kind
    if failure.exception == "TypeError" and failure.missing_name is not None:
        return "signature_mismatch"
    if is_attribute_of_none(failure.message):
        return failure.kind
    return _NAMED.get(failure.exception, failure.kind)


def is_of_third_party(failure: Failure) -> bool:
    """Return whether the name is missing in an installed module, which the project cannot change."""
    return find_effective_kind(failure) in _LOOKED_UP and failure.missing_in_project is False


def _is_expected(failure: Failure, expects: Sequence[str]) -> bool:
    kind, missing = find_effective_kind(failure), failure.missing_name
    if missing is None or is_of_third_party(failure):
        return False
    return any(covers(expected, missing, kind=kind) for expected in expects)
