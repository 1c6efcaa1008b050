"""The programs whose start is measured: ``cdd``, and terminal agents beside it, each in an environment of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.bench.measure import PEERS, ROOT

COMMANDS = ("--version", "--help", "first prompt")


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One of them: what is typed, and what it needs to draw its prompt without a key and without a network."""

    name: str
    program: str = ""
    """Of a peer: its name in the environment's ``bin``."""
    requirement: str = ""
    """Of a peer: what pip installs; nothing for ``cdd`` itself."""
    below: tuple[int, int] = (99, 0)
    """The first Python that it does not run on."""
    chat: tuple[str, ...] = ()
    """What is typed after the program for its prompt."""
    ready: tuple[str, ...]
    """Patterns, all of which the screen shows once the prompt stands."""
    home: Mapping[str, str] = field(default_factory=dict)
    """Files below the home folder."""
    without: Mapping[str, str] = field(default_factory=dict)
    """Command -> why it is left out."""

    @cached_property
    def folder(self) -> Path:
        return PEERS / "agents" / self.requirement

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python") if self.requirement else sys.executable

    def variables(self, home: Path) -> dict[str, str]:
        """Those that say where the program is, or that keep a peer from asking for a key and for a network."""
        if self.requirement:
            return OFFLINE
        return {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(home / "compiled")}

    def argv(self, command: str) -> list[str]:
        """What is typed for one of ``COMMANDS``."""
        program = [str(self.folder / "bin" / self.program)] if self.requirement else [sys.executable, "-m", "cdd_agent"]
        return [*program, *(self.chat if command == "first prompt" else [command])]


_UNREACHABLE = "http://127.0.0.1:9"
OFFLINE = {
    "OPENAI_API_KEY": "none",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_CONFIGURED": "true",
    "HTTPS_PROXY": _UNREACHABLE,
    "HTTP_PROXY": _UNREACHABLE,
}
"""No peer finds a network, asks for a key, or sets itself up."""

_PRICES = {"max_input_tokens": 128_000, "max_output_tokens": 16_384, "litellm_provider": "openai", "mode": "chat"}
_CHEAP = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}
_KNOWN_MODELS = {name: {**_PRICES, **_CHEAP} for name in ("gpt-4o", "gpt-4o-mini")}
_PROVIDER = {"api_key": "none", "base_url": _UNREACHABLE, "models": {"small": "a", "mid": "b", "big": "c"}}

CDD = Agent(name="cdd", ready=(r"^cdd> ", r"\bclaude-.*Ctrl-D leaves"))
PEER_AGENTS = (
    Agent(
        name="cdd-agent",
        program="cdd-agent",
        requirement="cdd-agent==0.0.7",
        chat=("chat", "--simple"),
        ready=(r"^> ",),
        home={".cdd-agent/settings.json": json.dumps({"providers": {"anthropic": _PROVIDER}})},
    ),
    Agent(name="llm", program="llm", requirement="llm==0.36", chat=("chat", "--model", "gpt-4o-mini"), ready=(r"^> ",)),
    Agent(
        name="mini-swe-agent",
        program="mini",
        requirement="mini-swe-agent==2.4.6",
        chat=("--model", "openai/gpt-4o"),
        ready=("What do you want to do", "Submit message"),
        without={"--version": "mini knows no --version"},
    ),
    Agent(
        name="aider",
        program="aider",
        requirement="aider-chat==0.86.2",
        below=(3, 13),
        chat=(
            *("--model", "gpt-4o", "--no-git", "--no-gitignore", "--yes-always", "--no-check-update"),
            *("--no-show-release-notes", "--no-show-model-warnings", "--no-analytics"),
        ),
        ready=("Repo-map", r"^> "),
        home={".aider/caches/model_prices_and_context_window.json": json.dumps(_KNOWN_MODELS)},
    ),
)


def installed_agents() -> tuple[Agent, ...]:
    """Install the peers that are not there, and return those that are."""
    found = []
    for agent in PEER_AGENTS:
        why = "" if (agent.folder / ".ready").exists() else _install(agent)
        if why:
            print(f"left out, because {why}: {agent.requirement}")
            continue
        found.append(agent)
    return tuple(found)


def _install(agent: Agent) -> str:
    """Install one with its bytecode; why that cannot be done, if it cannot."""
    python = _interpreter(agent.below)
    if python is None:
        return f"there is no Python below {agent.below[0]}.{agent.below[1]}"
    print(f"installing {agent.requirement} (once)", flush=True)
    pip = [agent.python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", agent.requirement]
    if subprocess.run([python, "-m", "venv", str(agent.folder)], check=False, stdout=subprocess.DEVNULL).returncode:
        return f"{python} makes no environment"
    if subprocess.run(pip, check=False).returncode:
        return "pip cannot install it"
    compiling = [agent.python, "-m", "compileall", "-qq", str(agent.folder / "lib")]
    subprocess.run(compiling, check=False, stdout=subprocess.DEVNULL)  # some packages bring files of other versions
    (agent.folder / ".ready").touch()
    return ""


def _interpreter(below: tuple[int, int]) -> str | None:
    """This Python, if it is old enough, else the newest one that is found."""
    if sys.version_info[:2] < below:
        return sys.executable
    for minor in range(below[1] - 1, 9, -1):
        python = shutil.which(f"python{below[0]}.{minor}")
        if python and not subprocess.run([python, "-c", "pass"], check=False, capture_output=True).returncode:
            return python
    return None
