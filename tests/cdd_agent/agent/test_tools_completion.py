from cdd_agent.agent.tools import Completion, make_completion_tool, read_input
from cdd_agent.model.conversation import JSON


def test_handing_in_ends_the_run_and_names_the_files() -> None:
    tool = make_completion_tool()
    fields: dict[str, JSON] = {"implementation_files": ["src/a.py", "src/b.py"], "summary": "added both"}
    output = tool.run(fields)
    assert output.ends_run
    assert not output.is_error
    assert tool.spec.name == "CompleteImplementation"
    assert tool.subject(fields) == "src/a.py, src/b.py"
    assert read_input(fields, Completion) == Completion(
        implementation_files=("src/a.py", "src/b.py"), summary="added both"
    )


def test_handing_in_without_files_is_refused_and_does_not_end_the_run() -> None:
    output = make_completion_tool().run({})
    assert output.is_error
    assert not output.ends_run
