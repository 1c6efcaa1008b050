"""The tutorial docs/guides/first-package.md: its commands run in order, and print what the page shows."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click
import pytest

from cdd_agent.cli.app import cdd
from tests.fakes.program import ROOT, environment

PAGE = ROOT / "docs" / "guides" / "first-package.md"
RECORDING = Path(__file__).with_name("first_package.yaml")
ELLIPSIS = "..."
"""A line of the page in place of any number of printed lines."""
END = "--- end of command"
"""The line after the output of a command, with its exit code."""

VARYING = ((r"\b[0-9a-f]{7,12}\b", "HASH"), (r"\b\d+(?:\.\d+)? s\b|(?<= in )\d+\.\d+s$", "TIME"))
"""Commits and seconds, which differ in each run -> how they are compared."""

CDD = """\
#!/bin/sh
# A plan asks no model. Without the recording, it names the model and the prices that a reader sees.
case "$*" in *--dry-run*) unset CDD_REPLAY ;; esac
exec {python} -m cdd_agent "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A command of the page, and the output below it."""

    command: str
    lines: tuple[str, ...]


def read_page() -> tuple[Shown, ...]:
    """Return the commands of the page in order."""
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.rstrip("\n").split("\n")
            found.append(Shown(command=command, lines=tuple(lines)))
    return tuple(found)


def normalize(line: str) -> str:
    for pattern, name in VARYING:
        line = re.sub(pattern, name, line)
    return line.rstrip()


def find_missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """Return the first lines of the page that were not printed in this order, without a gap but for an ellipsis."""
    text = "\n".join(("", *map(normalize, printed.splitlines()), ""))
    pieces: list[list[str]] = [[]]
    for line in shown:
        if line == ELLIPSIS:
            pieces.append([])
        else:
            pieces[-1].append(normalize(line))
    at = 0
    for piece in filter(None, pieces):
        found = text.find("\n".join(("", *piece, "")), at)
        if found < 0:
            return piece
        at = found + sum(map(len, piece)) + len(piece)
    return []


def run_page(page: tuple[Shown, ...], folder: Path) -> list[str]:
    """Run the commands in one shell, and return what each printed."""
    home, tools = folder / "home", folder / "bin"
    for each in (home, tools):
        each.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n", encoding="ascii")
    (tools / "cdd").write_text(CDD.format(python=shlex.quote(sys.executable)), encoding="utf-8")
    (tools / "cdd").chmod(0o755)
    script = "".join(f"{each.command}\necho '{END}' $?\n" for each in page)
    variables = environment(home, CDD_REPLAY=str(RECORDING), COLUMNS="100", LANG="C.UTF-8")
    del variables["CDD_PYTHON"]  # a reader has chosen no interpreter
    variables["PATH"] = os.pathsep.join((str(tools), str(Path(sys.executable).parent), variables["PATH"]))
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=900,
    )
    found = re.findall(rf"(.*?)^{END} (\d+)\n", done.stdout, re.MULTILINE | re.DOTALL)
    assert [status for _, status in found] == ["0"] * len(page), done.stdout
    return [printed for printed, _ in found]


@pytest.mark.slow
def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    """Takes 60 seconds of CPU. The installation needs a package index."""
    page = read_page()
    for shown, printed in zip(page, run_page(page, tmp_path), strict=True):
        assert not find_missing(shown.lines, printed), f"$ {shown.command}\n{printed}"


@pytest.mark.parametrize("shown", [each for each in read_page() if each.command.startswith("cdd ")], ids=str)
def test_every_command_of_the_page_exists_with_its_options(shown: Shown) -> None:
    words = shlex.split(shown.command)
    name, command = words.pop(0), cast(click.Command, cdd)
    context = cdd.make_context(name, [], resilient_parsing=True)
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    command.make_context(name, words, parent=context)


@pytest.mark.parametrize("page", ["README.md", "docs/reference/generate.md"])
def test_the_page_is_linked(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert PAGE in [((ROOT / page).parent / link).resolve() for link in links]


def test_output_that_differs_from_the_page_is_found() -> None:
    printed = "one 0.4 s\ntwo 1a2b3c4d\nthree\n"
    assert find_missing(("one 12 s", "two 9f8e7d6c", ELLIPSIS), printed) == []
    assert find_missing((ELLIPSIS, "three"), printed) == []
    assert find_missing(("one 12 s", "three"), printed) == ["one TIME", "three"]
    assert find_missing(("three", ELLIPSIS, "one 12 s"), printed) == ["one TIME"]
