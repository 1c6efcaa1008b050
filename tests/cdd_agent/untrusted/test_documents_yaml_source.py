import pytest
import yaml

from cdd_agent.untrusted.documents import UnfitError, check_yaml


def refused(source: str) -> UnfitError:
    with pytest.raises(UnfitError) as error:
        check_yaml(source, limit_bytes=100_000)
    return error.value


@pytest.mark.parametrize(
    "source", ["", "a: b\n", "- 1\n- {a: [b, c]}\n", "a: &a [x]\nc: {<<: {d: e}}\n", "a: !!str 1\nb: ! 2\n", "--- a\n"]
)
def test_a_document_as_people_write_it_passes(source: str) -> None:
    check_yaml(source, limit_bytes=100)


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("a: " + "x" * 100_000, "it has 100003 bytes; at most 100000 are read", 0),
        ("a:\n - \ud800\n", "it contains a lone surrogate (U+D800)", 0),
        ("a:\n  - " + "[" * 900, "more than 50 levels", 2),
        ("{a: " * 51, "more than 50 levels", 1),
        ("- " * 51 + "a", "more than 50 levels", 1),
        ("a: &a b\nc: [*a]\n", "the alias *a is not allowed", 2),
        ("a: b\nc: &a [*a]\n", "the alias *a is not allowed", 2),
        ("a: 1\nb:\n  c: 1\n  'c': 2\n", "the key 'c' occurs twice", 4),
        ("&a k: 1\n*a : 2\n", "the alias *a is not allowed", 2),
        ("{k: 1, k: 2}\n", "the key 'k' occurs twice, first in line 1", 1),
        ("a: !!python/object/apply:os.system ['false']\n", "the tag tag:yaml.org,2002:python/object", 1),
        ("a: !!int ''\n", "the tag tag:yaml.org,2002:int is not allowed", 1),
        ("a: !!timestamp x\n", "the tag tag:yaml.org,2002:timestamp is not allowed", 1),
    ],
)
def test_what_would_exhaust_or_mislead_a_loader_is_refused(source: str, message: str, line: int) -> None:
    error = refused(source)

    assert message in str(error)
    assert error.line == line


def test_an_escape_that_is_half_a_character_is_refused() -> None:
    with pytest.raises((UnfitError, yaml.YAMLError)):
        check_yaml('a: "\\ud800"\n', limit_bytes=100)


def test_what_is_no_yaml_is_told_as_the_library_tells_it() -> None:
    with pytest.raises(yaml.YAMLError):
        check_yaml("a: [b\n", limit_bytes=100)
