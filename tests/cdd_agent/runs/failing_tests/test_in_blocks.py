"""GREEN with a model without tools: whole files in fenced blocks, to a real commit."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cdd_agent.compose import Composition
from cdd_agent.config.options import Options
from cdd_agent.model.conversation import Request, Text
from cdd_agent.runs.request import resolve_targets
from cdd_agent.tdd.context import Context
from tests.cdd_agent.runs.failing_tests.conftest import CART, MENDED, TOTAL, Shop
from tests.fakes.approval import approves, users_folder
from tests.fakes.model import ScriptedModel, says

BLOCK = f"```python:cart.py\n{MENDED}```\n"


def said_to(request: Request) -> str:
    return "".join(part.text for part in request.messages[-1].content if isinstance(part, Text))


@pytest.mark.slow
def test_the_setting_reaches_green_and_a_recording_in_blocks_becomes_a_commit(shop: Shop, tmp_path: Path) -> None:
    shop.project.write({".cdd/config.yaml": "edit_format: blocks\nevidence_timeout_s: 0\n"})
    shop.project.git("add", "-f", ".cdd/config.yaml")
    shop.project.git("commit", "-qm", "settings")
    (tmp_path / "recording.yaml").write_text(yaml.safe_dump([{"content": [f"The sum.\n\n{BLOCK}"]}]))
    options = Options(project=shop.project.folder, replay=tmp_path / "recording.yaml", ask=approves)
    composition = Composition(options, emit=shop.project.seen.append, environment=users_folder(tmp_path))
    run = composition.green(resolve_targets(shop.project.folder, [TOTAL]))
    run.run()
    artifact = run.source.make_artifact(run)
    assert artifact.outcome == "green", artifact.error
    assert (shop.project.folder / "cart.py").read_text() == MENDED
    assert shop.project.log[-1] == "fix: make test_total pass"


@pytest.mark.slow
def test_the_model_gets_no_tools_but_the_tests_and_the_code_that_they_name_whole(shop: Shop) -> None:
    model = ScriptedModel([says("I cannot."), says(BLOCK)])

    def in_blocks(context: Context) -> Context:
        return replace(context, policy=replace(context.policy, edit_format="blocks"))

    artifact = shop.green(model=model, adapt=in_blocks).run()
    assert (artifact.outcome, artifact.iterations) == ("green", 2)
    first = model.requests[0]
    assert first.tools == ()
    assert "You have no tools" in first.system
    assert f"{CART}</data-" in said_to(first)
    assert said_to(first).count("from cart import Cart\n\n\ndef test_empty") == 1
