"""The test cases of a JUnit XML file, whoever wrote it.

There is no standard: what all writers share is that each test is a ``testcase``, wherever it stands, and that what
became of it is said by a child. A document type is refused, as it is the way to entities that stand for files or for
more text than fits into memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser, fromstring

from cdd_agent.storage import read_ordinary

LIMIT_BYTES = 30_000_000

_OUTCOMES = {"error": "error", "failure": "failed", "skipped": "skipped"}
"""Child of a test -> what it came to, the worst first."""
_TRIES = ("flakyFailure", "flakyError", "rerunFailure", "rerunError")


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitCase:
    """One ``testcase``."""

    name: str
    classname: str
    suites: tuple[str, ...]
    """Names of the suites that it stands in, outermost first."""
    file: str
    """As the writer says it; empty if it does not."""
    line: int
    duration_s: float
    outcome: str
    """``passed``, ``failed``, ``error`` or ``skipped``."""
    type: str
    """What kind of failure it is, in the writer's words: mostly the class of an exception."""
    message: str
    text: str
    """What the failure says besides: mostly a stack trace."""
    output: str
    reruns: int
    """How often it was run again."""


def read_junit(path: Path) -> tuple[tuple[JunitCase, ...], str | None]:
    """The test cases in ``path``, and why they are not all: it cannot be read, or is no such file."""
    try:
        return parse_junit(read_ordinary(path, limit_bytes=LIMIT_BYTES))
    except OSError as error:
        return (), f"{path.name} cannot be read: {error.strerror or error}"


def parse_junit(data: bytes, *, name: str = "the JUnit file") -> tuple[tuple[JunitCase, ...], str | None]:
    """The test cases in ``data``, which is called ``name`` where it is no XML."""
    root = parse_xml(data)
    if isinstance(root, str):
        return (), f"{name} cannot be read: {root}"
    return tuple(_case(element, suites) for element, suites in _cases(root)), None


def parse_xml(data: bytes) -> Element | str:
    """The document's first element, or what is wrong with it."""
    try:
        return fromstring(data, parser=XMLParser(target=_Builder()))
    except (ParseError, LookupError, ValueError, RecursionError) as error:
        return str(error)


class _Builder(TreeBuilder):
    def doctype(self, name: str, *identifiers: str | None) -> None:
        """Called by the parser before anything in a document type is looked at."""
        where = next(filter(None, identifiers), "its own")
        raise ParseError(f"it has a document type ({name}, {where}), which is refused")


def local(tag: object) -> str:
    """An element's name without its namespace; empty for a comment."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def seconds(told: str | None) -> float:
    """A duration as such files have it, in some with a comma between thousands; 0 if it is no number."""
    try:
        value = float((told or "0").replace(",", ""))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0


def _cases(root: Element) -> Iterator[tuple[Element, tuple[str, ...]]]:
    """Each test case in the document's order with the names of its suites; however deep, without recursion."""
    waiting: list[tuple[Element, tuple[str, ...]]] = [(root, ())]
    while waiting:
        element, suites = waiting.pop()
        if local(element.tag) == "testcase":
            yield element, suites
            continue
        if local(element.tag) == "testsuite" and len(suites) < 50:
            suites = (*suites, element.get("name", ""))
        waiting.extend((child, suites) for child in reversed(element))


def _case(element: Element, suites: tuple[str, ...]) -> JunitCase:
    children: dict[str, list[Element]] = {}
    for child in element:
        children.setdefault(local(child.tag), []).append(child)
    ending = next((name for name in _OUTCOMES if name in children), None)
    why = children[ending][0] if ending else None
    output = (child.text or "" for name in ("system-out", "system-err") for child in children.get(name, ()))
    line = element.get("line", "")
    return JunitCase(
        name=element.get("name", ""),
        classname=element.get("classname", ""),
        suites=suites,
        file=element.get("file", ""),
        line=int(line) if line.isascii() and line.isdigit() and len(line) < 9 else 0,
        duration_s=seconds(element.get("time")),
        outcome=_OUTCOMES[ending] if ending else "passed",
        type="" if why is None else why.get("type", ""),
        message="" if why is None else why.get("message", ""),
        text="" if why is None else (why.text or ""),
        output="".join(output),
        reruns=sum(len(children.get(name, ())) for name in _TRIES),
    )
