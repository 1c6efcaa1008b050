from cdd_agent.tickets.yaml_sentences import Layout
from cdd_agent.tickets.yaml_splice import Edit, Item, apply, list_edits, text_edit
from cdd_agent.tickets.yaml_text import Document, quoted, read

LAYOUT = Layout(texts=frozenset(), lists=frozenset())


def document(source: str) -> Document:
    return read(source, path="a.yaml", layout=LAYOUT)


def item(text: str) -> Item:
    return Item(is_same=lambda node: node.text == text, edit=lambda _: None, lines=(quoted(text),))


def with_text(source: str, key: str, text: str) -> str:
    return apply(source, [text_edit(document(source), key, text=text)])


def with_list(source: str, key: str, *texts: str) -> str:
    return apply(source, list_edits(document(source), key, items=[item(text) for text in texts]))


def test_edits_are_made_in_the_line_ends_of_the_source() -> None:
    assert apply("a\r\nb", [Edit(0, 1, "x\ny"), Edit(4, 4, "\n")]) == "x\r\ny\r\nb\r\n"


def test_edits_at_one_place_keep_their_order() -> None:
    assert apply("a", [Edit(1, 1, "b"), Edit(1, 1, "c")]) == "abc"


def test_a_text_takes_the_place_of_the_one_before() -> None:
    assert with_text("a: 'x' # why\nb: y\n", "a", "z z") == 'a: "z z" # why\nb: y\n'


def test_an_empty_value_is_filled_beside_its_comment() -> None:
    assert with_text("a: # why\n", "a", "z z") == 'a: "z z" # why\n'
    assert with_text("a:\nb: y\n", "a", "z\nz") == "a: |\n  z\n  z\nb: y\n"


def test_a_block_keeps_the_comment_of_its_line() -> None:
    assert with_text("a: x # why\nb: y\n", "a", "z\n\nz") == "a: | # why\n  z\n\n  z\nb: y\n"


def test_a_text_in_brackets_stays_on_its_line() -> None:
    assert with_text("{a: x, b: y}\n", "a", "z\nz") == '{a: "z\\nz", b: y}\n'


def test_a_missing_key_is_added_at_the_end() -> None:
    assert with_text("b: y", "a", "z z") == 'b: y\na: "z z"\n'


def test_items_are_added_in_the_indentation_of_the_list() -> None:
    assert with_list("a:\n- x # why\nb: y\n", "a", "x", "z") == 'a:\n- x # why\n- "z"\nb: y\n'
    assert with_list("a:\n    - x", "a", "x", "z") == 'a:\n    - x\n    - "z"\n'


def test_a_removed_item_takes_its_line_and_leaves_the_comments_round_it() -> None:
    assert with_list("a:\n  # one\n  - x # why\n  # two\n  - y\n", "a", "y") == "a:\n  # one\n  # two\n  - y\n"


def test_a_list_without_items_is_written_in_brackets() -> None:
    assert with_list("a: # why\n  - x\nb: y\n", "a") == "a: [] # why\nb: y\n"


def test_a_list_in_brackets_is_written_with_dashes_when_it_changes() -> None:
    assert with_list("a: [x, y] # why\n", "a", "x") == 'a: # why\n  - "x"\n'
    assert with_list("a: [x, y] # why\n", "a", "x", "y") == "a: [x, y] # why\n"


def test_a_list_in_another_order_is_written_anew() -> None:
    assert with_list("a:\n- x\n- y\n", "a", "y", "x") == 'a:\n- "y"\n- "x"\n'
