"""The sandbox: which rung is used, what the others lacked, and what it refused when it was tried."""

from collections.abc import Iterable

from cdd_agent.doctor.check import Check
from cdd_agent.sandbox.ladder import Trial, climb
from cdd_agent.sandbox.landlock import NOT_STOPPED
from cdd_agent.sandbox.plain import PlainSandbox
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.sandbox.selftest import Proof, prove

_TO_CONFINE = "apt-get install bubblewrap, or pip install 'cdd-agent[sandbox]', or start docker or podman"


def confinement(asked: str) -> tuple[Check, Sandbox | None]:
    """The look at the sandbox, and the one that confines; None where nothing does.

    The four forbidden acts are tried anew, now, and not taken from an earlier trial.
    """
    trials: list[Trial] = []
    for trial in climb(asked) if asked != "none" else ():
        trials.append(trial)
        if trial.sandbox is not None:
            proofs = prove(trial.sandbox)
            if all(proof.refused for proof in proofs):
                told = f"{trial.level}; {len(proofs)} forbidden acts were tried in it, just now"
                limits = (
                    (f"{NOT_STOPPED}; what changes in .git is put back after a run",)
                    if trial.level == "landlock"
                    else ()
                )
                details = (*_acts(proofs), *limits, f"run by {trial.what}", *_lacking(trials[:-1]))
                return Check(name="sandbox", state="ok", told=told, details=details), trial.sandbox
    details = (*_acts(prove(PlainSandbox())), *_lacking(trials))
    told = "none: tests and commands run as you, with all your files and the network"
    if asked == "none":
        return Check(name="sandbox", state="note", told=f"{told}, as was asked for", details=details), None
    return Check(name="sandbox", state="missing", told=told, fix=_TO_CONFINE, details=details), None


def _acts(proofs: Iterable[Proof]) -> tuple[str, ...]:
    """What became of each act."""
    return tuple(
        f"{'refused' if proof.refused else 'NOT refused'}: {proof.act}{proof.told and f' ({proof.told})'}"
        for proof in proofs
    )


def _lacking(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Why each of the better rungs was not taken."""
    return tuple(f"{trial.level} was not taken: {trial.why_not}" for trial in trials if trial.why_not)
