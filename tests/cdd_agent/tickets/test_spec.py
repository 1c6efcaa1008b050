from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.tickets.spec import Criterion, Spec, find_missing, find_vague_criteria, load, load_text, parse, update
from tests.fakes.examples import fewer

FULL = """\
# The exporter's ticket.
schema: cdd/1
title: Export as CSV
type: feature            # feature bug enhancement refactor chore doc spike
status: draft            # draft refined planned executing done
priority: high           # ours
description: |
  Rows go to a file.

  Then: done.
acceptance_criteria:
  # the empty list first
  - id: AC-1
    text: "WHEN the list is empty THE SYSTEM SHALL write the header only"
  - Commas: are quoted   # plain
out_of_scope: []         # nothing yet
technical_notes: |
open_questions:
  - Which encoding?
depends_on: [reader]
"""

NATURAL = {
    "a user": "Given a user: when they log in, they see their list",
    "hash": "The title is cut at 80 characters # of the screen",
    "backticks": "`cdd --version` prints its version",
    "at sign": "@admin may delete a row",
    "brackets": "[x] is shown for a done row",
    "double quotes": '"x" is quoted in the output',
    "single quotes": "'it' stays in single quotes, isn't it",
    "yes": "yes",
    "no": "no",
    "null": "null",
    "1.10": "1.10",
    "0777": "0777",
    "a date": "2026-01-31",
    "a time of day": "12:30:45",
    "ampersand": "& is written as &amp;",
    "asterisk": "*args are passed on",
    "braces": "{name} is replaced: always",
    "exclamation mark": "!important stays",
    "percent": "% is escaped",
    "greater than": "> 5 rows are paged",
    "bar": "| separates columns",
    "dash": "- a dash is kept",
    "a heading and a backslash": "# is a heading, \\n is not: C:\\temp",
}
"""What each sentence has that YAML would take for something else -> the sentence, as people write it unquoted."""

COMMENTS = {"a heading and a backslash"}
"""What is a comment and no value behind a key."""


def read(text: str) -> Spec:
    return parse(text, path="spec.yaml")


def changed(text: str, **changes: str | Sequence[str] | Sequence[Criterion]) -> str:
    return update(text, changes, path="spec.yaml")


def test_a_spec_is_read() -> None:
    assert read(FULL) == Spec(
        title="Export as CSV",
        type="feature",
        status="draft",
        description="Rows go to a file.\n\nThen: done.",
        acceptance_criteria=(
            Criterion(id="AC-1", text="WHEN the list is empty THE SYSTEM SHALL write the header only"),
            Criterion(id="AC-2", text="Commas: are quoted   # plain"),
        ),
        open_questions=("Which encoding?",),
        depends_on=("reader",),
        unknown_keys=("priority",),
    )


def test_there_are_all_23_sentences_that_yaml_would_change() -> None:
    assert len(set(NATURAL.values())) == 23


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("sentence", NATURAL.values(), ids=list(NATURAL))
def test_a_natural_sentence_comes_back_whole(sentence: str, end: str) -> None:
    text = f"acceptance_criteria:{end}  - {sentence}{end}  - id: AC-7{end}    text: {sentence}{end}"
    text += f"open_questions:{end}- {sentence}{end}"
    criteria = (Criterion(id="AC-1", text=sentence), Criterion(id="AC-7", text=sentence))

    spec = read(text)

    assert spec.acceptance_criteria == criteria
    assert spec.open_questions == (sentence,)
    assert read(update(text, {"acceptance_criteria": spec.acceptance_criteria}, path="spec.yaml")) == spec


@pytest.mark.parametrize("sentence", [pytest.param(NATURAL[name], id=name) for name in NATURAL if name not in COMMENTS])
def test_a_natural_title_and_description_come_back_whole(sentence: str) -> None:
    spec = read(f"title: {sentence}\ndescription:\n  {sentence}\n")

    assert (spec.title, spec.description) == (sentence, sentence)


def test_a_sentence_may_go_on_in_the_next_lines() -> None:
    spec = read("acceptance_criteria:\n  - Given a user: when they\n    log in # twice\n\n  - Given:\n      - a list\n")

    assert [criterion.text for criterion in spec.acceptance_criteria] == [
        "Given a user: when they log in # twice",
        "Given: - a list",
    ]


def test_a_sentence_in_a_bracketed_list_comes_back_whole() -> None:
    spec = read('acceptance_criteria: [Given a: b, "c, d", {id: AC-9, text: e}]\n')

    assert spec.acceptance_criteria == (
        Criterion(id="AC-1", text="Given a: b"),
        Criterion(id="AC-2", text="c, d"),
        Criterion(id="AC-9", text="e"),
    )


def test_a_criterion_in_given_when_then_form_is_one_sentence() -> None:
    spec = read("acceptance_criteria:\n  - given: a list\n    when: it is empty\n    then: nothing\n")

    assert [criterion.text for criterion in spec.acceptance_criteria] == [
        "given: a list when: it is empty then: nothing"
    ]


def test_quoted_and_block_criteria_are_read_as_yaml() -> None:
    spec = read(
        "acceptance_criteria:\n  - \"a: \\\"b\\\"\"  # why\n  - 'it''s'\n  - |\n    # kept\n    b: c\n"
        '  - text: >-\n      folded\n      text\n    id: AC-5\n  -\n    id: AC-6\n    text: "two\n      lines"\n'
    )

    assert spec.acceptance_criteria == (
        Criterion(id="AC-1", text='a: "b"'),
        Criterion(id="AC-2", text="it's"),
        Criterion(id="AC-3", text="# kept\nb: c"),
        Criterion(id="AC-5", text="folded text"),
        Criterion(id="AC-6", text="two lines"),
    )


def test_plain_criteria_get_ids_that_are_free() -> None:
    spec = read("acceptance_criteria:\n- a\n- id: AC-1\n  text: b\n- 'AC-3: c'\n- d\n- text: e\n")

    assert [(criterion.id, criterion.text) for criterion in spec.acceptance_criteria] == [
        ("AC-2", "a"),
        ("AC-1", "b"),
        ("AC-3", "c"),
        ("AC-4", "d"),
        ("AC-5", "e"),
    ]


def test_every_value_is_text() -> None:
    spec = read("title: 1.10\ndescription: no\ndepends_on: [12:30:45, 2026-01-31]\n")

    assert (spec.title, spec.description, spec.depends_on) == ("1.10", "no", ("12:30:45", "2026-01-31"))


@pytest.mark.parametrize(
    "text", ["", "\ufeff", "# only a comment\n", "---\n", "acceptance_criteria:\n  -\nout_of_scope: ~\n"]
)
def test_an_empty_spec_lacks_all_that_is_needed(text: str) -> None:
    assert find_missing(read(text)) == ("a title", "a description", "an acceptance criterion")


def test_an_open_question_is_lacking_its_answer() -> None:
    assert find_missing(read(FULL)) == ("an answer to the open question: Which encoding?",)


def test_a_criterion_that_can_be_tested_is_enough() -> None:
    text = "title: a\ndescription: b\nacceptance_criteria:\n- Export is fast\n- It is nice: within 200 ms\n"

    assert find_missing(read(text)) == ()
    assert find_vague_criteria(read(text)) == (
        "AC-1 is vague: 'fast' measures nothing, and no number, code or quoted text says what is meant",
    )


def test_a_spec_whose_criteria_are_all_vague_is_not_complete() -> None:
    text = "title: a\ndescription: b\nacceptance_criteria:\n- Export is fast\n- Errors are handled properly, etc.\n"

    assert find_missing(read(text)) == ("an acceptance criterion that can be tested",)
    assert [remark.split("'")[1] for remark in find_vague_criteria(read(text))] == ["fast", "properly"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\na: 2\n", 2, "the key 'a' occurs twice, first in line 1"),
        ("a: {b: 1, b: 2}\n", 1, "the key 'b' occurs twice"),
        ("type: epic\n", 1, "the type 'epic' is unknown (write one of feature, bug"),
        ("type: bug\nstatus: open\n", 2, "the status 'open' is unknown"),
        ("title:\n- a\n", 2, "title is a list, not a text"),
        ("acceptance_criteria: all\n", 1, "acceptance_criteria is a text, not a list"),
        ("acceptance_criteria:\n- id: AC-1\n", 2, "the criterion AC-1 has no text"),
        ("acceptance_criteria:\n- id: A\n  text: b\n- id: A\n  text: c\n", 4, "the criterion A exists twice"),
        ("schema: cdd/2\n", 1, "it has schema 'cdd/2'; this program reads cdd/1"),
    ],
)
def test_an_invalid_spec_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(text)

    assert line in [problem.line for problem in error.value.problems]
    assert message in str(error.value)


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(DocumentError) as error:
        read("type: epic\nstatus: open\n")

    assert len(error.value.problems) == 2


def test_a_change_leaves_everything_else_as_it_was() -> None:
    text = changed(FULL, title='A "new" title', status="refined", description="One line")

    assert text == FULL.replace("Export as CSV", '"A \\"new\\" title"').replace(
        "status: draft  ", "status: refined  "
    ).replace("|\n  Rows go to a file.\n\n  Then: done.", '"One line"')


FORMS = {
    "aligned value": "ours:   a\n",
    "space before the colon": "ours : a\n",
    "space at the end": "ours: a  \n",
    "tight brackets": "ours: [b,c]\nmore: {e: f,g: h}\n",
    "wide brackets": "ours: [ b, c ]\n",
    "brackets on two lines": "ours: [b,\n    c]\n",
    "lists of different indentation": "ours:\n  - b\nmore:\n- d\n",
    "wide indentation": "ours:\n    b: c\n    d:\n        - e\n",
    "wide dash": "ours:\n-   b\n",
    "folded text": "ours: b\n  c\n",
    "folded quotes": 'ours: "b\n  c"\n',
    "escapes": 'ours: "\\x41\\u0042"\n',
    "block that keeps its end": "ours: |+\n  b\n\n\n",
    "blank line with spaces": "ours: b\n   \n",
    "comment of odd indentation": "ours:\n      # c\n  - b\n   # d\n",
    "comment behind many spaces": "ours: b            # c\n",
    "long line": "ours: " + "word " * 60 + "end\n",
    "explicit key": "? ours\n: b\n",
    "document start": "---\nours: a\n",
    "document start with a comment": "--- # c\nours: a\n",
    "byte order mark": "\ufeffours: a\n",
    "CRLF": "ours:\r\n  - a # b\r\n",
}
"""Forms of values that people write and that a YAML library would write otherwise."""


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_a_change_of_one_value_leaves_every_other_byte(form: str) -> None:
    end = "\r\n" if "\r" in form else "\n"
    text = f"{form}title: A # b{end}status: draft   # c"

    assert changed(text, title="New", status="done") == f'{form}title: "New"{end}status: done   # c'


def test_a_text_of_several_lines_is_written_as_a_block() -> None:
    assert changed("description: a # b\ntitle: c\n", description="x: y\n\n  # z") == (
        "description: |\n  x: y\n\n    # z\ntitle: c\n"
    )


def test_criteria_are_changed_and_added_one_by_one() -> None:
    first, second = read(FULL).acceptance_criteria
    text = changed(
        FULL, acceptance_criteria=[Criterion(id="AC-1", text="New: text"), second, Criterion(id="AC-9", text="Last")]
    )

    assert text == FULL.replace(
        '"WHEN the list is empty THE SYSTEM SHALL write the header only"', '"New: text"'
    ).replace(
        "  - Commas: are quoted   # plain\n",
        '  - id: AC-2\n    text: "Commas: are quoted   # plain"\n  - id: AC-9\n    text: "Last"\n',
    )
    assert "# the empty list first" in changed(FULL, acceptance_criteria=[second, first])


def test_a_criterion_keeps_its_comments_and_other_keys_when_its_text_changes() -> None:
    text = "acceptance_criteria:\n- id: AC-1 # why\n  owner: me\n  text: a\n- 'AC-3: c' # when\n"
    criteria = [Criterion(id="AC-1", text="b"), Criterion(id="AC-3", text="d")]

    assert changed(text, acceptance_criteria=criteria) == (
        'acceptance_criteria:\n- id: AC-1 # why\n  owner: me\n  text: "b"\n- id: AC-3\n  text: "d" # when\n'
    )


def test_items_with_the_same_text_keep_their_form() -> None:
    text = "open_questions:\n- a # b\n- |\n  c\n- 'c'  # why\n"

    assert changed(text, open_questions=["a # b", "c", "c", "d"]) == text + '- "d"\n'
    assert changed(text, open_questions=["a # b", "c"]) == text.replace("- 'c'  # why\n", "")


@pytest.mark.parametrize("dash", ["-   ", "-\n    "])
def test_a_criterion_gets_its_id_wherever_its_text_starts(dash: str) -> None:
    text = f"acceptance_criteria:\n{dash}Given a: b\n# end\n"

    assert changed(text, acceptance_criteria=read(text).acceptance_criteria) == (
        f'acceptance_criteria:\n{dash}id: AC-1\n    text: "Given a: b"\n# end\n'
    )


def test_a_list_is_emptied_and_filled() -> None:
    emptied = changed(FULL, open_questions=[])
    filled = changed(emptied, open_questions=["Why: #1?"], out_of_scope=["Excel"], depends_on=[])

    assert "open_questions: []\ndepends_on: [reader]" in emptied
    assert 'open_questions:\n  - "Why: #1?"\ndepends_on: []' in filled
    assert 'out_of_scope:         # nothing yet\n  - "Excel"\n' in filled


def test_missing_keys_are_added_at_the_end_in_the_order_given() -> None:
    text = changed("title: a", description="b", open_questions=["c"], title="d d")

    assert text == 'title: "d d"\ndescription: b\n\nopen_questions:\n  - "c"\n'


def test_a_change_to_what_is_there_changes_nothing() -> None:
    spec = read(FULL)

    assert changed(FULL, title=spec.title, description=spec.description, depends_on=["reader"], out_of_scope=[]) == FULL


@pytest.mark.parametrize("key", ["priority", "acceptance_criteria", "schema"])
def test_a_key_that_is_no_text_is_not_written_as_one(key: str) -> None:
    with pytest.raises(UsageError, match="is not a text of a spec"):
        changed(FULL, **{key: "x"})


def test_an_unknown_list_is_not_written() -> None:
    with pytest.raises(UsageError, match="is not a list of a spec"):
        changed(FULL, labels=["x"])


def test_a_change_that_would_disturb_another_key_is_refused() -> None:
    with pytest.raises(UsageError, match=r"ours in spec.yaml cannot be changed without disturbing the rest"):
        changed("ours: |+\n  a", title="b")


keys = st.sampled_from(["title", "description", "technical_notes"])
lists = st.sampled_from(["out_of_scope", "open_questions", "depends_on", "acceptance_criteria"])
texts = st.text(max_size=12) | st.sampled_from([*NATURAL.values(), "a\n\nb ", "a\n  b\n# c", "|", ">-\n", "\ta"])
sources = st.sampled_from(
    [
        FULL,
        FULL.replace("\n", "\r\n"),
        "\ufeff" + FULL,
        "",
        "title: a",
        "---\n",
        "out_of_scope: [a, b] # c\ndescription: >\n  d\n",
    ]
)
lines = st.sampled_from(["title:", "acceptance_criteria:", " - a: b", "- id:", "  text: '", "|", "x"])


def criteria_of(texts_: list[str]) -> list[Criterion]:
    return [Criterion(id=f"AC-{number}", text=text) for number, text in enumerate(texts_, start=1) if text.strip()]


@fewer()
@given(sources, st.dictionaries(keys, texts), st.dictionaries(lists, st.lists(texts, max_size=4)))
def test_every_change_reads_back_and_keeps_comments_and_other_values(
    source: str, new_texts: dict[str, str], new_lists: dict[str, list[str]]
) -> None:
    changes: dict[str, str | list[str] | list[Criterion]] = {**new_texts}
    for key, items in new_lists.items():
        changes[key] = criteria_of(items) if key == "acceptance_criteria" else items
    try:
        text = update(source, changes, path="spec.yaml")
    except DocumentError:
        assert any("\ud800" <= char <= "\udfff" for value in changes.values() for char in str(value))
        return

    before, after = read(source), read(text)
    for key in ("title", "description", "technical_notes"):
        assert getattr(after, key) == (new_texts[key].strip() if key in new_texts else getattr(before, key))
    for key in ("out_of_scope", "open_questions", "depends_on"):
        wanted = tuple(item.strip() for item in new_lists[key] if item.strip()) if key in new_lists else None
        assert getattr(after, key) == (getattr(before, key) if wanted is None else wanted)
    assert after.unknown_keys == before.unknown_keys
    assert text.startswith("\ufeff") == source.startswith("\ufeff")
    assert all(comment in text for comment in ("# The exporter's", "# draft refined", "# ours") if comment in source)
    assert "\r\n" not in source or "\n" not in text.replace("\r\n", "")
    assert update(text, changes, path="spec.yaml") == text


@given(st.text() | st.lists(lines).map("\n".join))
def test_any_text_is_read_or_refused_as_an_invalid_document(text: str) -> None:
    try:
        read(text)
    except DocumentError:
        return


def test_a_spec_is_loaded_with_its_line_ends(tmp_path: Path) -> None:
    text = "\ufeff" + FULL.replace("\n", "\r\n")

    (tmp_path / "spec.yaml").write_bytes(text.encode())

    assert load_text(tmp_path / "spec.yaml") == text
    assert load(tmp_path / "spec.yaml") == read(FULL)


def test_a_missing_spec_is_reported_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        load(tmp_path / "csv" / "spec.yaml")

    assert error.value.hint == "create it with: cdd new csv"


@pytest.mark.parametrize("data", [b"\xff", b"#" * 70_000])
def test_a_file_that_is_no_spec_text_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "spec.yaml").write_bytes(data)

    with pytest.raises(DocumentError):
        load(tmp_path / "spec.yaml")
