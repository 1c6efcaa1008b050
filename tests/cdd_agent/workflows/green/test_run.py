from cdd_agent.events import GateJudged
from tests.cdd_agent.workflows.green.conftest import MENDED, TOTAL, Shop, plays
from tests.fakes.project import writes
from tests.fakes.model import call, says


def reads_and_writes(path, content):
    return says(call("Read", file_path=path), call("Write", "w", file_path=path, content=content), call("CompleteImplementation", implementation_files=[]))


def test_a_test_that_fails_is_made_to_pass_and_only_the_code_is_committed(shop: Shop) -> None:
    shop.project.write({"tests/test_mine.py": "def test_mine():\n    pass\n"})
    green = shop.green(model=plays(reads_and_writes("cart.py", MENDED)))
    artifact = green.run()
    print(artifact)
    print(shop.project.seen)
    assert artifact.error is None
    assert shop.project.log == ["fix: make test_total pass"]
    assert shop.project.status == "?? tests/test_mine.py"
    assert artifact.implementation_files.edited == ("cart.py",)
