"""Reads the test cases of a JUnit XML file, whichever tool wrote it.

The format has no standard. All writers agree that a test is a ``testcase`` element at any depth, and that a child
element gives its outcome.
"""

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
    duration_s: float
    outcome: str
    """``passed``, ``failed``, ``error`` or ``skipped``."""
    type: str
    """The failure's type in the writer's words, usually the class of an exception."""
    message: str
    text: str
    """The failure's text, usually a stack trace."""
    output: str
    reruns: int


def read_junit(path: Path) -> tuple[tuple[JunitCase, ...], str | None]:
    """Return the test cases of a file, and the problem if it cannot be read."""
    root = read_xml(path)
    if isinstance(root, str):
        return (), root
    return tuple(map(_parse_case, root.iter("testcase"))), None


def read_xml(path: Path) -> Element | str:
    """Return the root element of a file, with tags without namespaces, or the problem if it cannot be read."""
    try:
        data = read_ordinary(path, limit_bytes=LIMIT_BYTES)
        return fromstring(data, parser=XMLParser(target=_Builder()))
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror or error}"
    except (ParseError, LookupError, ValueError, RecursionError) as error:
        return f"{path.name} cannot be read: {error}"


class _Builder(TreeBuilder):
    def doctype(self, name: str, *identifiers: str | None) -> None:
        """Refuse a document type before the parser reads it.

        It could define entities that include local files or that expand to more text than fits into memory.
        """
        where = next(filter(None, identifiers), "its own")
        raise ParseError(f"it has a document type ({name}, {where}), which is refused")

    def start(self, tag: str, attributes: dict[str, str]) -> Element:
        return super().start(tag.rpartition("}")[2], attributes)

    def end(self, tag: str) -> Element:
        return super().end(tag.rpartition("}")[2])


def _parse_seconds(text: str) -> float:
    try:
        value = float(text.replace(",", ""))  # some writers put a comma between thousands
    except ValueError:
        return 0.0
    return value if 0 <= value < 1e9 else 0.0


def _parse_case(element: Element) -> JunitCase:
    endings = (found for name in _OUTCOMES if (found := element.find(name)) is not None)
    failure = next(endings, Element("passed"))
    output = (child.text or "" for name in ("system-out", "system-err") for child in element.iterfind(name))
    return JunitCase(
        name=element.get("name", ""),
        classname=element.get("classname", ""),
        duration_s=_parse_seconds(element.get("time", "0")),
        outcome=_OUTCOMES.get(failure.tag, "passed"),
        type=failure.get("type", ""),
        message=failure.get("message", ""),
        text=failure.text or "",
        output="".join(output),
        reruns=sum(len(element.findall(name)) for name in _RERUNS),
    )
