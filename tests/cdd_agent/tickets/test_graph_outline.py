import json

import pytest

from cdd_agent.errors import DocumentError, UsageError
from cdd_agent.tickets.graph_file import encode_graph, parse_graph
from cdd_agent.tickets.graph_outline import GraphOutline, outline_plan, outline_tasks
from cdd_agent.tickets.graph_problems import find_problems
from cdd_agent.tickets.plan import Kind, Plan, Step


def make_step(number: int, description: str, *files: str, needs: tuple[int, ...] = (), kind: Kind = "feature") -> Step:
    title = f"Part {number}"
    return Step(number=number, kind=kind, title=title, description=description, files=files, depends_on=needs)


def read_leaves(outline: GraphOutline) -> dict[str, tuple[str, str]]:
    return {node.id: (node.file_path, node.signature.partition("\n")[0]) for node in outline.graph.leaves}


def test_each_step_of_a_plan_is_a_subgraph_with_the_functions_that_it_writes() -> None:
    plan = Plan(
        title="Rates",
        steps=(
            make_step(1, "Write `load(path: str) -> bytes`, which reads a file.", "src/files.py", "tests/test_io.py"),
            make_step(2, "`Rate(value, unit='EUR')` holds it.\n\n`load(path)` is used.", "src/rates.py", needs=(1,)),
            make_step(3, "Say so in the README.", "README.md", kind="docs"),
        ),
    )
    outline = outline_plan(plan)
    assert read_leaves(outline) == {
        "step-1.load": ("src/files.py", "def load(path: str) -> bytes:"),
        "step-2.Rate": ("src/rates.py", "class Rate:"),
    }
    assert outline.gaps == ()
    graph = outline.graph
    assert find_problems(graph) == ()
    assert dict(graph.subgraphs) == {"step-1.load": "step-1", "step-2.Rate": "step-2"}
    assert graph.by_id[graph.nodes[1].id].dependencies == ("step-1",)
    assert graph.leaves[0].docstring == "Write `load(path: str) -> bytes`, which reads a file."
    assert parse_graph(encode_graph(graph).decode(), path="g")[0].nodes == graph.nodes


def test_code_blocks_count_with_their_docstrings() -> None:
    first = 'class Box:\n    size: int\n    def open(self) -> None:\n        """Open."""\n        return 1\n'
    second = 'def add(a, b):\n    """Return the sum."""\n    return a + b\n'
    text = f"Add:\n\n```python\n{first}\n{second}```\n"
    outline = outline_plan(Plan(title="t", steps=(make_step(1, text, "m.py"),)))
    box, add = outline.graph.leaves
    assert box.signature == "class Box:\n    size: int\n\n    def open(self) -> None:\n        ..."
    assert (add.signature, add.docstring) == ("def add(a, b):\n    ...", "Return the sum.")


@pytest.mark.parametrize(
    "code",
    [
        *(
            "print(text)",
            "load('x.csv')",
            "json.dumps(x)",
            "test_it(tmp)",
            "x = 1",
            "a b",
            "f(1)",
            "m.py",
            "__init__(self)",
        ),
        *("def f(", "class", "f(" * 50),
    ],
)
def test_other_code_in_backticks_is_no_function(code: str) -> None:
    outline = outline_plan(Plan(title="t", steps=(make_step(1, f"Use `{code}`.", "m.py"),)))
    assert outline.graph.leaves == ()
    assert outline.gaps == ("step 1 (Part 1) writes no function or class as code",)


def test_a_name_without_parameters_leaves_its_signature_open() -> None:
    outline = outline_plan(Plan(title="t", steps=(make_step(1, "Write `load()` and `class Row`.", "m.py"),)))
    assert [(node.name, node.type, node.signature) for node in outline.graph.leaves] == [
        ("load", "function", ""),
        ("Row", "class", ""),
    ]


def test_a_function_whose_module_is_not_certain_is_a_gap() -> None:
    text = "- `one(x)` goes to a.py.\n- `two(x)` is new."
    outline = outline_plan(Plan(title="t", steps=(make_step(1, text, "a.py", "b.py"), make_step(2, "`three(x)`"))))
    assert read_leaves(outline) == {"step-1.one": ("a.py", "def one(x):")}
    assert outline.gaps == (
        "step 1 does not say in which of a.py, b.py it wants two",
        "step 2 does not say in which module it wants three",
    )


def make_tasks(*tasks: dict[str, object], **tags: object) -> str:
    return json.dumps({"master": {"tasks": tasks, "metadata": {"created": "2025"}}, **tags})


TASKS = make_tasks(
    {
        **{"id": 1, "title": "Reader", "description": "Read files.", "status": "done", "dependencies": []},
        "subtasks": [
            {"id": 1, "title": "Load", "details": "`load(path: str) -> bytes` in src/files.py", "dependencies": []},
            {"id": 2, "title": "Parse", "details": "`parse(data: bytes)` in src/files.py", "dependencies": [1]},
        ],
    },
    {"id": "2", "title": "Report", "details": "`report(rows)` in src/report.py", "dependencies": ["1", 9, "1.2"]},
    {"id": 3, "title": "Later", "status": "deferred", "dependencies": [2]},
)


def test_tasks_become_subgraphs_with_their_subtasks() -> None:
    outline = outline_tasks(TASKS, path="tasks.json")
    assert read_leaves(outline) == {
        "task-1.1.load": ("src/files.py", "def load(path: str) -> bytes:"),
        "task-1.2.parse": ("src/files.py", "def parse(data: bytes):"),
        "task-2.report": ("src/report.py", "def report(rows):"),
    }
    assert outline.gaps == ()
    assert outline.notices == (
        "task 2 depends on 9, which is not among the tasks",
        "task 3 is deferred, so it is left out",
    )
    assert find_problems(outline.graph) == ()
    assert set(outline.graph.subgraphs.values()) == {"task-1", "task-2"}
    needs = {str(node.id): node.dependencies for node in outline.graph.nodes if node.node_type == "composite"}
    assert needs == {"task-1": (), "task-1.1": (), "task-1.2": ("task-1.1",), "task-2": ("task-1", "task-1.2")}


def test_the_list_of_earlier_versions_and_a_tag_are_read() -> None:
    task = {"id": 1, "title": "A", "details": "`a(x)` in a.py"}
    assert len(outline_tasks(json.dumps({"tasks": [task]}), path="t").graph.leaves) == 1
    assert len(outline_tasks(json.dumps({"web": {"tasks": [task]}}), path="t").graph.leaves) == 1
    several = json.dumps({"web": {"tasks": [task]}, "app": {"tasks": []}})
    assert len(outline_tasks(several, path="t", tag="web").graph.leaves) == 1
    for tag in ("", "none"):
        with pytest.raises(UsageError, match=r"several lists of tasks: web, app\.") as error:
            outline_tasks(several, path="t", tag=tag)
        assert "--tag" in error.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not JSON"),
        ("[]", 'it has no "tasks"'),
        ('{"tasks": 3}', "Expected `array`"),
        ('{"tasks": [{"title": "x"}]}', "missing required field `id`"),
        ('{"tasks": [], "tasks": []}', "occurs twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_without_tasks_is_an_error(text: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        outline_tasks(text, path="tasks.json")
