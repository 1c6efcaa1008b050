"""A fake of Serena: a program that speaks MCP, answers from the files of its copy, and misbehaves on demand."""

import sys
from pathlib import Path

from tests.fakes.language_server import write_server

_BODY = r"""
import re
def list_files():
    for folder, _, names in os.walk("."):
        for name in names:
            if name.endswith(".py"):
                path = os.path.relpath(os.path.join(folder, name))
                yield path, open(path, encoding="utf-8").read()
def find_symbol(name_path_pattern, relative_path):
    name = name_path_pattern.rpartition("/")[2]
    lines = open(relative_path, encoding="utf-8").read().split("\n")
    found = [n for n, line in enumerate(lines) if re.search(rf"\b(def|class) {name}\b", line)]
    return [{"name_path": f"{name_path_pattern[1:]}", "kind": "Function", "relative_path": relative_path,
             "body_location": {"start_line": n, "end_line": n + 1}} for n in found]
def find_referencing_symbols(name_path, relative_path, max_answer_chars):
    name, found = name_path.rpartition("/")[2], {}
    for path, text in list_files():
        for n, line in enumerate(text.split("\n")):
            if re.search(rf"\b{name}\b", line) and not re.match(r"\s*(def|class|from|import|__all__) [^;]*$", line):
                around = f"...   {n - 1}:above\n  >   {n}:{line}\n...   {n + 1}:below"
                use = {"name_path": "x", "body_location": {}, "content_around_reference": around}
                found.setdefault(path, {}).setdefault("File", []).append(use)
    return found
def rename_symbol(name_path, relative_path, new_name):
    for path, text in list_files():
        new = re.sub(rf"\b{name_path.rpartition('/')[2]}\b", new_name, text)
        if new != text:
            open(path, "w", encoding="utf-8").write(new)
    return f"Successfully renamed '{name_path}'"
TOOLS = {each.__name__: each for each in (find_symbol, find_referencing_symbols, rename_symbol)}
def give(result, is_error=False):
    text = result if isinstance(result, str) else json.dumps(result)
    send(id=message["id"], result={"content": [{"type": "text", "text": text}], "isError": is_error})
while True:
    message = read()
    method, parameters = message["method"], message.get("params") or {}
    if method == "initialize":
        send(id=message["id"], result={"protocolVersion": parameters["protocolVersion"], "serverInfo": {}})
    elif method == "tools/list":
        send(id=message["id"], result={"tools": [{"name": name} for name in TOOLS]})
    elif method == "tools/call":
        tool, arguments = parameters["name"], parameters["arguments"]
        if tool not in TOOLS:
            give(f"Unknown tool: {tool}", is_error=True)
        elif not misbehave(tool, arguments):
            give(TOOLS[tool](**arguments))
"""


def write_serena(folder: Path, misbehave: str = "return False") -> Path:
    """Write the program into an environment below ``folder``, and return its path.

    ``misbehave`` is the body of a function that gets a tool and its arguments, and returns whether it has answered:
    with ``give(result, is_error=False)``, ``write(bytes)``, or not at all.
    """
    bodies = "".join(f"    {line}\n" for line in misbehave.splitlines())
    environment = folder / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").touch()
    (environment / "bin" / "python").symlink_to(sys.executable)
    argv = write_server(environment, f"def misbehave(tool, arguments):\n{bodies}{_BODY}", speaks="mcp")
    program = environment / "bin" / "serena"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {environment}/arguments\nenv > {environment}/variables\nexec {" ".join(argv)}\n'
    )
    program.chmod(0o755)
    return program
