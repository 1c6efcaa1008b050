from cdd_agent.agent.tools import make_run_tests_tool
from cdd_agent.errors import EnvironmentMissing


def test_the_targets_are_handed_on_and_the_answer_comes_back() -> None:
    tool = make_run_tests_tool(lambda targets: f"ran {targets}")
    assert tool.run({"targets": ["tests/test_a.py::test_b"]}).text == "ran ('tests/test_a.py::test_b',)"
    assert tool.run({}).text == "ran ()"
    assert tool.subject({}) == "all tests"


def test_a_run_that_cannot_be_is_an_answer() -> None:
    def missing(targets: tuple[str, ...]) -> str:
        raise EnvironmentMissing("pytest is not there.", hint="install pytest")

    output = make_run_tests_tool(missing).run({})
    assert (output.text, output.is_error) == ("pytest is not there. (install pytest)", True)
