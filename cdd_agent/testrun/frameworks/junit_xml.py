"""Reads the test cases of a JUnit XML file, whichever tool wrote it.

The format has no standard. All writers agree on this: a test is a ``testcase`` element at any depth, and a child
element says how it ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser, fromstring

from cdd_agent.storage import read_ordinary

LIMIT_BYTES = 30_000_000

_OUTCOMES = {"error": "error", "failure": "failed", "skipped": "skipped"}
"""Child of a test -> outcome, the worst first."""
_RERUNS = ("flakyFailure", "flakyError", "rerunFailure", "rerunError")


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitCase:
    """One ``testcase``."""

    name: str
    classname: str
    suites: tuple[str, ...]
    """Names of the suites around it, outermost first."""
    file: str
    """As the writer names it; empty if it does not."""
    line: int
    duration_s: float
    outcome: str
    """``passed``, ``failed``, ``error`` or ``skipped``."""
    type: str
    """The failure's type in the writer's words: mostly the class of an exception."""
    message: str
    text: str
    """The failure's text: mostly a stack trace."""
    output: str
    reruns: int


def read_junit(path: Path) -> tuple[tuple[JunitCase, ...], str | None]:
    """Return the test cases in ``path``, and why there are none if it cannot be read."""
    try:
        return parse_junit(read_ordinary(path, limit_bytes=LIMIT_BYTES))
    except OSError as error:
        return (), f"{path.name} cannot be read: {error.strerror or error}"


def parse_junit(data: bytes, *, name: str = "the JUnit file") -> tuple[tuple[JunitCase, ...], str | None]:
    """Return the test cases in ``data``, and what is wrong if it is not XML; ``name`` is for that message."""
    root = parse_xml(data)
    if isinstance(root, str):
        return (), f"{name} cannot be read: {root}"
    return tuple(_parse_case(element, suites) for element, suites in _iterate_cases(root)), None


def parse_xml(data: bytes) -> Element | str:
    """Return the root element, or what is wrong with the document."""
    try:
        return fromstring(data, parser=XMLParser(target=_Builder()))
    except (ParseError, LookupError, ValueError, RecursionError) as error:
        return str(error)


class _Builder(TreeBuilder):
    def doctype(self, name: str, *identifiers: str | None) -> None:
        """Refuse a document type before the parser looks inside.

        It could define entities that include local files or that expand to more text than fits into memory.
        """
        where = next(filter(None, identifiers), "its own")
        raise ParseError(f"it has a document type ({name}, {where}), which is refused")


def local_name(tag: object) -> str:
    """Return an element's name without its namespace; empty for a comment."""
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def parse_seconds(text: str | None) -> float:
    """Return a duration; some writers put a comma between thousands. 0 if it is not a number."""
    try:
        value = float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0


def _iterate_cases(root: Element) -> Iterator[tuple[Element, tuple[str, ...]]]:
    """Yield each test case in document order with the names of its suites.

    Not recursive: a hostile file can nest deeper than Python's stack.
    """
    waiting: list[tuple[Element, tuple[str, ...]]] = [(root, ())]
    while waiting:
        element, suites = waiting.pop()
        if local_name(element.tag) == "testcase":
            yield element, suites
            continue
        if local_name(element.tag) == "testsuite" and len(suites) < 50:
            suites = (*suites, element.get("name", ""))
        waiting.extend((child, suites) for child in reversed(element))


def _parse_case(element: Element, suites: tuple[str, ...]) -> JunitCase:
    children: dict[str, list[Element]] = {}
    for child in element:
        children.setdefault(local_name(child.tag), []).append(child)
    ending = next((name for name in _OUTCOMES if name in children), None)
    failure = children[ending][0] if ending else None
    output = (child.text or "" for name in ("system-out", "system-err") for child in children.get(name, ()))
    line = element.get("line", "")
    return JunitCase(
        name=element.get("name", ""),
        classname=element.get("classname", ""),
        suites=suites,
        file=element.get("file", ""),
        line=int(line) if line.isascii() and line.isdigit() and len(line) < 9 else 0,
        duration_s=parse_seconds(element.get("time")),
        outcome=_OUTCOMES[ending] if ending else "passed",
        type="" if failure is None else failure.get("type", ""),
        message="" if failure is None else failure.get("message", ""),
        text="" if failure is None else (failure.text or ""),
        output="".join(output),
        reruns=sum(len(children.get(name, ())) for name in _RERUNS),
    )
