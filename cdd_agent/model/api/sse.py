"""Server-sent events: bytes in any pieces go in, the JSON objects they carry come out. Pure."""

from collections.abc import Iterable, Iterator

from cdd_agent.model.api.strict_json import read_object
from cdd_agent.model.conversation import JSON


def events(chunks: Iterable[bytes]) -> Iterator[dict[str, JSON]]:
    """The events in a stream, however it was cut into ``chunks``.

    Raises ``ValueError`` for data that is not one strict JSON object. An event that is cut off at the end of the
    stream is left out.
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield read_object(b"\n".join(data).decode("utf-8"))
            data = []


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that are complete, each without its end; a long one is joined once, not with every chunk."""
    begun: list[bytes] = []
    for chunk in chunks:
        first, *more = chunk.split(b"\n")
        begun.append(first)
        for piece in more:
            yield b"".join(begun).removesuffix(b"\r")
            begun = [piece]
