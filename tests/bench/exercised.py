"""The bytes that ``cdd green`` and mini-swe-agent send to a model until an exercise is solved.

Both have a scripted model that solves each exercise at once: it looks at the tests and the code, writes the code, sees
the tests pass, and hands in. The Examiner, which checks the result with a request of its own, is not counted.
"""

import json
import os
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cdd_agent.config.settings import GreenSettings
from tests.bench.agents import OFFLINE, Agent
from tests.bench.bars import Bars
from tests.bench.requests import PYTHON, encode
from tests.cdd_agent.runs.failing_tests.conftest import BARE, Shop
from tests.cdd_agent.runs.failing_tests.exercised.exercises import EXERCISES
from tests.cdd_agent.runs.failing_tests.exercised.task import Task
from tests.fakes.model import ScriptedModel, call, says
from tests.fakes.project import Project

BAR_BYTES = 1.3
_TEST = "tests/test_task.py"

# Runs in the environment of mini-swe-agent: reads exercises, prints the bytes of each.
_MINI = """\
import json, logging, sys, tempfile
from pathlib import Path
import yaml, minisweagent
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.test_models import DeterministicToolcallModel, make_toolcall_output
from minisweagent.models.utils.actions_toolcall import BASH_TOOL
config = yaml.safe_load((Path(minisweagent.__file__).parent / "config" / "mini.yaml").read_text())
templates = {name: config["agent"][name] for name in ("system_template", "instance_template")}
logging.disable()

class Counted(DeterministicToolcallModel):
    sent = 0
    def query(self, messages, **more):
        plain = [{key: value for key, value in each.items() if key != "extra"} for each in messages]
        self.sent += len(json.dumps([[BASH_TOOL], plain], ensure_ascii=False).encode())
        return super().query(messages, **more)

def turn(number, command):
    made = {"id": f"call-{number}", "type": "function"}
    made["function"] = {"name": "bash", "arguments": json.dumps({"command": command})}
    return make_toolcall_output("Working.", [made], [{"command": command, "tool_call_id": made["id"]}])

for exercise in json.load(sys.stdin):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in exercise["files"].items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        outputs = [turn(number, command) for number, command in enumerate(exercise["commands"])]
        observed = config["model"]["observation_template"]
        model = Counted(outputs=outputs, observation_template=observed)
        agent = DefaultAgent(model, LocalEnvironment(cwd=folder, **config["environment"]), cost_limit=0, **templates)
        ended = agent.run(exercise["task"])
        assert ended["exit_status"] == "Submitted", ended
        print(model.sent)
"""


def count_cdd(task: Task, folder: Path) -> int:
    """Return the bytes of all requests of ``cdd green`` on an exercise."""
    bytecode, files = folder.with_suffix(".bytecode"), {**BARE, **task.files}
    project = Project.make(folder, interpreter=PYTHON, bytecode=bytecode, files=files)
    reads = [says("Working.", call("Read", "read", file_path="task.py"))] if task.before else []
    writes = says("Working.", call("Write", "write", file_path="task.py", content=task.tries[0]))
    ends = says("Working.", call("CompleteImplementation", "end", implementation_files=["task.py"]))
    model = ScriptedModel([*reads, writes, ends])
    artifact = Shop(project=project).green([_TEST], model=model, settings=GreenSettings()).run()
    if artifact.outcome != "green":
        raise SystemExit(f"{task.name} was not solved: {artifact.error}")
    return sum(len(encode(request).encode()) for request in model.requests)


def count_mini(tasks: Iterable[Task], agent: Agent) -> list[int]:
    """Return the bytes of all requests of mini-swe-agent on each exercise."""
    exercises = []
    for task in tasks:
        looks = f"ls; cat {_TEST}" + (" task.py" if task.before else "")
        writes = f"cat <<'EOF' > task.py\n{task.tries[0]}EOF"
        tests = f"PYTHONPATH=. {PYTHON.path} -m pytest -q {_TEST}"
        commands = [looks, writes, tests, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
        said = f"Make the tests in {_TEST} pass. Do not change the tests."
        exercises.append({"files": task.files, "commands": commands, "task": said})
    script = [agent.python, "-c", _MINI]
    variables = OFFLINE | {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    given = json.dumps(exercises)
    ran = subprocess.run(script, input=given, env=variables, check=True, text=True, stdout=subprocess.PIPE)
    return [int(line) for line in ran.stdout.splitlines() if line.isdecimal()]  # it greets first


def show(folder: Path, agents: Iterable[Agent]) -> bool:
    """Print the bytes of each exercise and the bar; return whether it is kept."""
    mini = next((agent for agent in agents if agent.name == "mini-swe-agent"), None)
    if mini is None:
        return True
    print("\nbytes sent until an exercise is solved: cdd green, mini-swe-agent")
    tasks = [replace(task, tries=task.tries[-1:]) for task in EXERCISES]
    ours = [count_cdd(task, folder / f"exercise{number}") for number, task in enumerate(tasks)]
    theirs = count_mini(tasks, mini)
    for task, cdd, other in zip(tasks, ours, theirs, strict=True):
        print(f"  {task.name:<20} {cdd:>7,} {other:>7,}")
    bars = Bars()
    bars.at_most("bytes of cdd green, in those of mini-swe-agent", sum(ours) / sum(theirs), limit=BAR_BYTES)
    return bars.are_kept
