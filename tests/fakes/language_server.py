"""Programs that speak JSON-RPC over standard input and output, and misbehave as a test asks for."""

import sys
from pathlib import Path

_LSP = """
import json, os, sys, time
def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def send(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    write(b"Content-Length: %d\\r\\n\\r\\n%b" % (len(body), body))
def read():
    size = 0
    while (line := sys.stdin.buffer.readline()) != b"\\r\\n":
        if not line:
            sys.exit()
        size = int(line.split(b":")[1])
    return json.loads(sys.stdin.buffer.read(size))
"""
_MCP = """
import json, os, sys, time
def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\n")
def read():
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else sys.exit()
"""
_COUNT = """
count_file = __file__ + ".starts"
starts = open(count_file).read().count("x") + 1 if os.path.exists(count_file) else 1
open(count_file, "a").write("x")
"""


def write_server(folder: Path, body: str, *, speaks: str = "lsp") -> tuple[str, ...]:
    """Write a program and return how it is started.

    ``body`` has ``read()``, which returns a message, ``send(id=..., result=...)``, ``write(bytes)``, and ``starts``:
    the number of times that the program was started.
    """
    program = folder / "server.py"
    program.write_text((_LSP if speaks == "lsp" else _MCP) + _COUNT + body)
    return (sys.executable, "-I", "-S", str(program))


def count_starts(folder: Path) -> int:
    """Return how often the program of ``write_server`` was started."""
    return len((folder / "server.py.starts").read_text())
