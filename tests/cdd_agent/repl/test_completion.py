"""Completion offers commands, what they take, and files; it never fails and never holds up the prompt."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable

import pytest
from prompt_toolkit.application import Application, create_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput

from cdd_agent.repl.commands import COMMANDS, GRAPH_WORDS, TDD_WORDS
from cdd_agent.repl.completion import Candidates, PromptCompleter, is_file_prefix, is_missing_argument, quote_path
from cdd_agent.repl.terminal import PromptStatus

PATHS = ["README.md", "src/export.py", "src/deep/exporter.py", "tests/test_export.py", "my notes.md", ".env", ".git/x"]
CANDIDATES = Candidates(
    slugs=lambda: [("csv-export", "Export as CSV"), ("csv-import", "Import")],
    sessions=lambda: [("s-1", "yesterday")],
    models=lambda: [("claude-opus-5-5", "reads 1,000,000 tokens")],
    handoffs=lambda: [("8ab2c01d11", "cycle 2, RED: subtracts"), ("77aa00bb11", "cycle 1, GREEN: adds")],
    files=lambda: PATHS,
)


def offered(typed: str, candidates: Candidates = CANDIDATES) -> list[Completion]:
    return list(PromptCompleter(candidates).get_completions(Document(typed), CompleteEvent()))


def texts(typed: str, candidates: Candidates = CANDIDATES) -> list[str]:
    return [completion.text for completion in offered(typed, candidates)]


def test_a_slash_offers_every_command_with_what_it_does() -> None:
    found = offered("/")
    assert [completion.text for completion in found] == [command.name for command in COMMANDS]
    assert [completion.display_meta_text for completion in found] == [command.help for command in COMMANDS]


@pytest.mark.parametrize(
    ("typed", "first"),
    [("/sta", "status"), ("/ex", "exec"), ("/tatus", "status"), ("/xc", "exec"), ("/dctr", "doctor")],
)
def test_letters_of_a_command_find_it(typed: str, first: str) -> None:
    assert texts(typed)[0] == first


def test_what_begins_so_comes_before_what_only_holds_the_letters() -> None:
    assert texts("/ex") == ["exec", "exit"]
    assert texts("/e") == ["exec", "exit"]
    assert texts("/ec") == ["spec", "exec", "checkpoint"]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/exec ", ["csv-export", "csv-import"]),
        ("/exec imp", ["csv-import"]),
        ("/new c", []),
        ("/help ", []),
        ("/resume ", ["s-1"]),
        ("/model op", ["claude-opus-5-5"]),
        ("/exec csv-export c", []),
        ("/tdd rol", ["rollback"]),
        ("/tdd ", list(TDD_WORDS)),
        ("/tdd rollback ", ["8ab2c01d11", "77aa00bb11"]),
        ("/tdd rollback 77", ["77aa00bb11"]),
        ("/tdd resume ", []),
        ("/graph ", list(GRAPH_WORDS)),
        ("/graph check ", []),
        ("/green ", ["tests/test_export.py"]),
        ("/green tests/test_a.py expo", ["tests/test_export.py"]),
        ("/green src", []),
        ("/nothing ", []),
        ("csv", []),
        ("say /st", []),
        ("", []),
    ],
)
def test_a_command_takes_what_its_help_says(typed: str, found: list[str]) -> None:
    assert texts(typed) == found


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("re", ["retry"]),
        ("retry ", ["1", "2"]),
        ("r 2", ["2"]),
        ("skip ", ["1", "2"]),
        ("done ", ["1", "2"]),
        ("status ", []),
        ("retry the last one", []),
        ("", []),
        ("/exec imp", ["csv-import"]),
    ],
)
def test_the_executor_s_words_and_the_steps_they_take_are_offered_to_it_alone(typed: str, found: list[str]) -> None:
    candidates = Candidates(
        slugs=CANDIDATES.slugs, steps=lambda slug: [("1", f"{slug}: header (failed)"), ("2", "rows (pending)")]
    )
    at = PromptCompleter(candidates, status=lambda: PromptStatus(agent="exec", ticket="sale"))
    assert [each.text for each in at.get_completions(Document(typed), CompleteEvent())] == found
    if not typed.startswith("/"):
        assert texts(typed, candidates) == []


def test_a_ticket_is_offered_with_its_title() -> None:
    assert offered("/exec csv-e")[0].display_meta_text == "Export as CSV"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("@", ["@README.md", '@"my notes.md"', "@src/export.py", "@tests/test_export.py", "@src/deep/exporter.py"]),
        ("look at @exp", ["@src/export.py", "@src/deep/exporter.py", "@tests/test_export.py"]),
        ("(see @rdm", ["@README.md"]),
        ("one\ntwo @notes", ['@"my notes.md"']),
        ('@"my n', ['@"my notes.md"']),
        ("/new a @README", ["@README.md"]),
        ("@env", []),
        ("@git", []),
        ("me@README", []),
        ("@README.md and", []),
    ],
)
def test_files_are_found_by_their_letters_anywhere_in_a_line(typed: str, found: list[str]) -> None:
    assert texts(typed) == found


def test_the_whole_word_is_replaced() -> None:
    assert offered('see @"my n')[0].start_position == -len('@"my n')


def test_a_menu_of_files_has_an_end() -> None:
    many = Candidates(files=lambda: [f"file{number}.py" for number in range(1_000)])
    assert len(texts("@", many)) == 50


@pytest.mark.parametrize(
    ("path", "typed"),
    [
        ("src/a.py", "@src/a.py"),
        ("a b", '@"a b"'),
        ('a"b', '@"a\\"b"'),
        ("a\nb", '@"a\\nb"'),
        ("a\x1b[2Jb", '@"a\\x1b[2Jb"'),
        ("a\u202eb", '@"a\\u202eb"'),
        ("日本", "@日本"),
    ],
)
def test_names_that_cannot_be_typed_plainly_are_quoted(path: str, typed: str) -> None:
    assert quote_path(path) == typed
    assert texts("@", Candidates(files=lambda: [path])) == [typed]


@pytest.mark.parametrize("typed", ["/exec ", "@", "@a"])
def test_candidates_that_fail_offer_nothing(typed: str) -> None:
    assert texts(typed, Candidates(slugs=lambda: [("a", "")] * (1 // 0), files=lambda: ["a"] * (1 // 0))) == []


def test_descriptions_are_shown_as_text_in_one_line() -> None:
    hostile = Candidates(slugs=lambda: [("a", "re\x1b[2Jd\nline"), ("b\x1b", "never offered")])
    assert [completion.display_meta_text for completion in offered("/exec ", hostile)] == ["red line"]


@pytest.mark.parametrize(
    ("text", "is_file"),
    [
        ("@src/a.py", True),
        (quote_path('a"b'), True),
        ('@"my notes.md"', True),
        ("/exec csv-export", False),
        ("a@b", False),
    ],
)
def test_it_is_known_whether_a_file_is_completed(text: str, is_file: bool) -> None:
    assert is_file_prefix(text) is is_file


def test_it_is_known_which_commands_need_more() -> None:
    assert is_missing_argument("/new")
    assert not is_missing_argument("/exec")
    assert not is_missing_argument("/new a")
    assert is_missing_argument("/tdd run")
    assert not is_missing_argument("/tdd resume")


def run_in_app(typed: str, candidates: Candidates, meanwhile: Callable[[Buffer], None]) -> list[str]:
    """What is offered for ``typed`` in a running prompt in which ``meanwhile`` happens a little later."""

    async def ask() -> list[str]:
        with create_app_session(input=DummyInput(), output=DummyOutput()) as session:
            buffer = Buffer(document=Document(typed))
            app: Application[None] = Application(layout=Layout(Window(BufferControl(buffer))))
            session.app = app
            asyncio.get_running_loop().call_later(0.05, meanwhile, buffer)
            found = PromptCompleter(candidates).get_completions_async(Document(typed), CompleteEvent())
            return [completion.text async for completion in found]

    return asyncio.run(ask())


def test_files_that_take_long_to_list_are_offered_once_they_are() -> None:
    go_on = threading.Event()

    def slow() -> list[str]:
        go_on.wait(20)
        return ["late.py"]

    assert run_in_app("@la", Candidates(files=slow), lambda _: go_on.set()) == ["@late.py"]


def test_tests_that_take_long_to_list_are_offered_once_they_are() -> None:
    go_on = threading.Event()

    def slow() -> list[str]:
        go_on.wait(20)
        return ["tests/test_late.py"]

    assert run_in_app("/green la", Candidates(files=slow), lambda _: go_on.set()) == ["tests/test_late.py"]


def test_a_line_that_changes_does_not_wait_for_what_is_slow() -> None:
    go_on = threading.Event()

    def slow() -> Iterable[tuple[str, str]]:
        go_on.wait(20)
        return [("late", "")]

    def type_more(buffer: Buffer) -> None:
        buffer.document = Document("/exec x")

    started = time.monotonic()
    assert run_in_app("/exec ", Candidates(slugs=slow), type_more) == []
    assert time.monotonic() - started < 10
    go_on.set()


def test_letters_that_are_nowhere_are_soon_known_not_to_be() -> None:
    begun = time.process_time()
    assert (
        texts("@" + "ab" * 20 + "z", Candidates(files=lambda: ["ab" * 60 + str(number) for number in range(100)])) == []
    )
    assert time.process_time() - begun < 2
