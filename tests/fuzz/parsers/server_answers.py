"""What a language server sends: frames of messages, places of ty, and uses that Serena names."""

import atexit
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias, cast

import msgspec

from cdd_agent.model.conversation import JSON
from cdd_agent.sandbox.supervised import PlainSandbox
from cdd_agent.symbols.index import Index
from cdd_agent.symbols.rpc import LengthFraming, LineFraming, ServerConnection, UnreadableFrame
from cdd_agent.symbols.serena import SerenaServer
from cdd_agent.symbols.symbol import SymbolServer, SymbolServerError
from cdd_agent.symbols.ty import TyServer
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import as_bytes, as_json, bent, pick, value
from tests.fuzz.trial import Broken, Target

Kind: TypeAlias = Literal["length", "line", "uses of ty", "rename of ty", "uses of Serena"]
Given: TypeAlias = tuple[Kind, bytes]
_KINDS: tuple[Kind, ...] = ("length", "line", "uses of ty", "rename of ty", "uses of Serena")

_FOLDER, _COPY = (Path(tempfile.mkdtemp(prefix="cdd-fuzz-")).resolve() for _ in range(2))
"""The project that the answers are about, and the copy that Serena would work on."""
for _each in (_FOLDER, _COPY):
    atexit.register(shutil.rmtree, _each, ignore_errors=True)
_FILES = {"a.py": "def old(x):\n    return x\n", "b.py": "from a import old\n\u00e9 = '\U0001f600'; old(2)\n"}
for _name, _text in _FILES.items():
    (_FOLDER / _name).write_text(_text, encoding="utf-8")
_INDEX = Index(_FOLDER)
_SYMBOL = _INDEX.find_one("old")
_RIGHT = (("a.py", 0, 4), ("b.py", 0, 14), ("b.py", 1, 9))
_TOKENS = (
    *('"uri"', '"range"', "Content-Length: 5", "\r\n\r\n", "-1", "1e99", "null", "[]", "{}", "file:///etc/passwd"),
)


class _OneAnswer:
    """A connection on which each request gets the same answer, and Serena's first question the right one."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def notify(self, method: str, parameters: object) -> None:
        """Drop it."""

    def request(self, method: str, parameters: object, *, deadline: float) -> msgspec.Raw:
        """Return the answer."""
        if isinstance(parameters, dict) and parameters.get("name") == "find_symbol":
            body = {"start_line": 0, "end_line": 1}
            found = [{"name_path": "old", "relative_path": "a.py", "body_location": body}]
            return msgspec.Raw(json.dumps({"content": [{"text": json.dumps(found)}]}).encode())
        return msgspec.Raw(self.answer)


class _OneServer:
    """A server that is always running."""

    def __init__(self, connection: _OneAnswer) -> None:
        self.connection = connection

    def ask(self, question: Callable[[ServerConnection, float], object]) -> object:
        """Ask at once."""
        return question(cast(ServerConnection, self.connection), time.monotonic())


def make(random: Random) -> Given:
    """An answer, most often with something wrong in it."""
    kind = _KINDS[random.randrange(len(_KINDS))]
    places: list[JSON] = []
    for path, line, column in _RIGHT:
        if random.random() < 0.9:
            end: JSON = {"line": line, "character": column + 3}
            position: JSON = {"start": {"line": line, "character": column}, "end": end}
            places.append({"uri": f"file://{_FOLDER}/{path}", "range": position, "newText": "new"})
    document: JSON = places
    if kind == "rename of ty":
        changes: dict[str, JSON] = {}
        for place in places:
            assert isinstance(place, dict)
            uri = str(place["uri"])
            changes[uri] = [*cast(list[JSON], changes.get(uri, [])), place]
        document = {"changes": changes}
    elif kind == "uses of Serena":
        uses: list[JSON] = [{"content_around_reference": f"...   0:x\n  >   {random.randint(0, 2)}:old(2)"}]
        inner = as_json(random, {"b.py": {"File": uses}})
        document = {"content": [{"type": "text", "text": bent(random, inner) if random.random() < 0.4 else inner}]}
    elif kind in ("length", "line"):
        document = {"jsonrpc": "2.0", "id": 1, "result": value(random)}
    written = as_json(random, document)
    if random.random() < 0.5:
        written = bent(random, written, tokens=_TOKENS)
    if kind == "length":
        written = f"Content-Length: {len(written.encode('utf-8', 'surrogatepass'))}\r\n\r\n{written}"
    written = f"{written}\n" if kind == "line" else written
    if kind in ("length", "line") and random.random() < 0.3:
        written = pick(random, ("", "Content-Type: x\r\n", "\n", "junk\n")) + bent(random, written, tokens=_TOKENS)
    return kind, as_bytes(random, written)


def read(given: Given) -> None:
    """Read frames in one piece and in two; ask about the project, whose files alone may be named."""
    kind, data = given
    if kind in ("length", "line"):
        whole, torn = _read_frames(kind, [data]), _read_frames(kind, [data[: len(data) // 2], data[len(data) // 2 :]])
        if whole != torn:
            raise Broken(f"in two pieces other messages are read: {torn!r:.200}")
        return
    server: SymbolServer
    if kind == "uses of Serena":
        server = SerenaServer(_INDEX, sandbox=PlainSandbox(), program=_FOLDER, state=_FOLDER)
        vars(server)["_copy"] = _COPY
    else:
        server = TyServer(_INDEX, sandbox=PlainSandbox())
        vars(server)["_encoding"] = "utf-32"
    vars(server)["_server"] = _OneServer(_OneAnswer(data))
    right = {(path, line + 1, column) for path, line, column in _RIGHT}
    found = server.plan_rename(_SYMBOL, "new") if kind == "rename of ty" else server.find_references(_SYMBOL)
    if not {(each.path, each.line, each.column) for each in found} <= right:
        raise Broken(f"a place that does not have the name: {found!r:.200}")


def _read_frames(kind: Kind, pieces: list[bytes]) -> list[bytes] | str:
    framing = LengthFraming() if kind == "length" else LineFraming()
    data, found, searched = bytearray(), list[bytes](), 0
    for piece in pieces:
        data += piece
        try:
            while (body := framing.read(data, searched=searched)) is not None:
                found.append(body)
                searched = 0
        except UnreadableFrame:
            return "unreadable"
        searched = len(data)
    return found


TARGET = Target(make=make, read=read, allowed=(SymbolServerError,))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` answers."""
    return TARGET.run(count, seed)
