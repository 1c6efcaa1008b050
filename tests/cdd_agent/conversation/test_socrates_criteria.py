from cdd_agent.conversation.socrates import assign_ids, find_breaches
from cdd_agent.tickets.spec import Criterion

KNOWN = (Criterion(id="AC-1", text="Export is fast"), Criterion(id="AC-2", text="THE SYSTEM SHALL sell"))


def test_a_new_sentence_must_have_a_form_and_one_that_is_there_need_not() -> None:
    told = find_breaches(["Export is fast", "AC-2: It sells well", "THE SYSTEM SHALL sleep"], known=KNOWN)

    assert [line.partition(": it begins with none of")[0] for line in told] == ['"It sells well"']


def test_a_label_is_no_part_of_a_sentence() -> None:
    assert find_breaches(["AC-9: THE SYSTEM SHALL sleep", "AC-1: Export is fast", " "], known=KNOWN) == ()


def test_ids_stay_with_their_sentences_and_new_ones_are_free() -> None:
    found = assign_ids(["THE SYSTEM SHALL sleep", "AC-1: THE SYSTEM SHALL sell", "AC-2: it sells"], known=KNOWN)

    assert [(criterion.id, criterion.text) for criterion in found] == [
        ("AC-3", "THE SYSTEM SHALL sleep"),
        ("AC-2", "THE SYSTEM SHALL sell"),
        ("AC-4", "it sells"),
    ]
