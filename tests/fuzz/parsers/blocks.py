"""Fenced blocks in an answer: files or ``UsageError``; nothing between the fences is lost, and no path comes twice."""

from random import Random

from cdd_agent.agent.blocks import MAX_BLOCKS, parse_files
from cdd_agent.agent.editing import find_elisions
from cdd_agent.errors import UsageError
from tests.fuzz.figures import Figures
from tests.fuzz.grammar import bent, pick, text
from tests.fuzz.trial import Broken, Target, stored_texts

_FENCES = ("```", "```", "````", "`````", "~~~", "~~~~")
_INFOS = (
    *("python:src/a.py", "src/a.py", "python path=src/a.py", 'text path="a b.txt"', "markdown:README.md", "", "python"),
    *("python:", "diff:a.py", "python:./src//a.py", "text:src", "a.py b", "python a.py", "{.python path=a.py}"),
)
_LINES = (
    *("x = 1", "", "```sh", "```", "    ```", "~~~", "# ... rest of the code unchanged", "\ufeffx", "\tx\r", "````x"),
)
_TOKENS = ("```", "````", "~~~", "`", "\n", "\r\n", ":", " ", "   ", "    ", "path=", '"', "- ", "\t", "/", "..", "\0")


def make(random: Random) -> str:
    """An answer with a few blocks, most often with something wrong in it."""
    parts = []
    for _ in range(random.randint(0, 4)):
        fence = pick(random, _FENCES)
        info = pick(random, _INFOS) if random.random() < 0.8 else text(random)
        rows = [pick(random, _LINES) if random.random() < 0.7 else text(random) for _ in range(random.randint(0, 5))]
        parts += [text(random) if random.random() < 0.5 else "", f"{fence}{info}", *rows, fence]
    answer = "\n".join(parts)
    return bent(random, answer, tokens=_TOKENS) if random.random() < 0.6 else answer


def read(answer: str) -> None:
    """Parse it, and look at what came of it."""
    blocks = parse_files(answer)
    paths = [block.path for block in blocks]
    if len(set(paths)) < len(paths) or len(paths) > MAX_BLOCKS:
        raise Broken("a path comes twice, or there are too many")
    rows = answer.split("\n")
    for block in blocks:
        if not block.path.strip() or "\0" in block.path or not block.path.split("/")[-1]:
            raise Broken(f"{block.path!r} is no path")
        content = block.content.split("\n")
        if content[-1]:
            raise Broken("a file without a newline at its end")
        within = rows[block.line : block.line + len(content) - 1]
        if [row.lstrip(" ") for row in within] != [row.lstrip(" ") for row in content[:-1]]:
            raise Broken("a file that is not what stands between its fences")
        find_elisions(block.content, before="", name=block.path)


TARGET = Target(make=make, read=read, allowed=(UsageError,), corpus=stored_texts("blocks"))


def run(count: int, seed: int) -> Figures:
    """Try ``count`` answers."""
    return TARGET.run(count, seed)
