import pytest

from cdd_agent.sandbox.plain import PlainSandbox
from cdd_agent.sandbox.port import Command, Result
from cdd_agent.sandbox.selftest import Proof, prove
from tests.cdd_agent.sandbox.conftest import CONFINED, at

ACTS = ["write outside the project", "read a secret outside", "open a connection"]


@pytest.mark.parametrize("level", CONFINED)
def test_a_rung_that_confines_refuses_all_four_acts(level: str) -> None:
    proofs = prove(at(level))
    last = "change .git" if level == "bwrap" else "read the environment of cdd"
    assert [proof.act for proof in proofs] == [*ACTS, last]
    assert [proof.refused for proof in proofs] == [True] * 4


def test_the_plain_rung_refuses_nothing_and_no_secret_is_told() -> None:
    proofs = prove(PlainSandbox())
    assert [proof.refused for proof in proofs] == [False] * 4
    assert {proof.told for proof in proofs} == {"it was done"}


class Broken:
    """A sandbox in which nothing can be written and nothing runs to its end."""

    level = "bwrap"

    def run(self, command: Command) -> Result:
        return Result(
            exit_status=1, output="no namespaces\n", dropped_bytes=0, timed_out=False, duration_s=0, level="x"
        )


class Missing(Broken):
    """A sandbox whose program has gone."""

    def run(self, command: Command) -> Result:
        raise FileNotFoundError(2, "No such file", "bwrap")


@pytest.mark.parametrize(
    ("sandbox", "why"), [(Broken(), "no namespaces"), (Missing(), "[Errno 2] No such file: 'bwrap'")]
)
def test_a_sandbox_in_which_nothing_runs_has_refused_nothing(sandbox: Broken, why: str) -> None:
    assert prove(sandbox) == (Proof(act="run a program that may write to the project", refused=False, told=why),)
