from cdd_agent.work.wording import TEMPLATES
from pytest_tdd_agent import wording


def test_no_template_of_cdd_hides_one_of_the_gate() -> None:
    assert TEMPLATES.keys() & wording.TEMPLATES.keys() == set()
