""""""

import pytest

from cdd_agent.evidence.literals import StatedExample, find_examples

ONE = StatedExample(frozenset({"'12:30'"}), "750")


@pytest.mark.parametrize(
    "source",
    [
        "def test_it(): assert minutes('12:30') == 750\n",
        "def test_it(): assert 750 == minutes('12:30')\n",
        "def test_it():\n    text = '12:30'\n    wanted = 750\n    assert minutes(text) == wanted\n",
        "def test_it():\n    found = minutes('12:30', 1)\n    assert found == 750\n",
        "class TestIt(TestCase):\n    def test_it(self): self.assertEqual(minutes('12:30'), 750)\n",
        "TEXT = '12:30'\ndef test_it(): assert minutes(TEXT) == 750\n",
    ],
)
def test_an_assertion_is_an_example(source: str) -> None:
    assert ONE.expected in {example.expected for example in find_examples(source)}
    assert any(ONE.inputs <= example.inputs for example in find_examples(source))


@pytest.mark.parametrize(
    "rows",
    [
        "@pytest.mark.parametrize('text, wanted', [('12:30', 750), ('0:00', 0)])\ndef test_it(text, wanted): ...\n",
        "@pytest.mark.parametrize(('a', 'b'), [pytest.param('12:30', 750, id='x')])\ndef test_it(a, b): ...\n",
        "ROWS = [('12:30', 750)]\n@pytest.mark.parametrize('a, b', ROWS)\ndef test_it(a, b): ...\n",
        "def test_it():\n    for text, wanted in [('12:30', 750)]:\n        assert minutes(text) == wanted\n",
        "def test_it():\n    for text, wanted in {'12:30': 750}.items():\n        assert minutes(text) == wanted\n",
    ],
)
def test_a_row_of_a_table_is_an_example(rows: str) -> None:
    assert ONE in find_examples(rows)


def test_trivial_values_are_no_examples() -> None:
    assert (
        find_examples("def test_it():\n    assert f(1) == 2\n    assert f('') == []\n    assert f('ab') is None\n")
        == ()
    )


def test_keys_that_take_a_result_apart_are_no_inputs() -> None:
    assert find_examples("def test_it(): assert health()['status'] == 'ok'\n") == ()


def test_only_the_named_functions_count() -> None:
    source = "def test_a(): assert f(10) == 20\ndef test_b(): assert f(30) == 60\n"
    assert [example.expected for example in find_examples(source, ["test_b"])] == ["60"]
    assert len(find_examples(source, ["test_gone"])) == 2
