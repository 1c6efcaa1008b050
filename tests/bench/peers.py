"""The reporters that pytest can be run with: this plugin, and those it is measured against."""

import subprocess
import sys
from dataclasses import dataclass

from tests.bench.measure import PEERS


@dataclass(frozen=True)
class Reporter:
    """How one is asked for, and what it writes."""

    name: str
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Below the folder of the run; the stream of events first."""
    requirement: str = ""
    """Of a peer: what pip installs."""


OWN = ("-p", "pytest_tdd_agent")
BARE = Reporter("bare pytest")
OFF = Reporter("pytest_tdd_agent, not asked for", OWN)
ASKED = Reporter("--tdd-agent", (*OWN, "--tdd-agent"), (".tdd-agent/report.jsonl", ".tdd-agent/report.json"))
AUDIT = Reporter(
    "--tdd-agent-audit, in a parent",
    (*OWN, "--tdd-agent-report=audit.json", "--tdd-agent-audit"),
    ("audit.jsonl", "audit.json"),
)
GATE = Reporter(
    "--tdd-agent-gate green",
    (*OWN, "--tdd-agent-report=gate.json", "--tdd-agent-gate=green", "--tdd-agent-baseline=base.json"),
    ("gate.jsonl", "gate.json"),
)
BASELINE = Reporter("baseline", (*OWN, "--tdd-agent-report=base.json"))
JUNIT = Reporter("--junitxml", ("--junitxml=junit.xml",), ("junit.xml",))
PEER_REPORTERS = (
    Reporter(
        "pytest-json-report",
        (
            "-p",
            "pytest_metadata.plugin",
            "-p",
            "pytest_jsonreport.plugin",
            "--json-report",
            "--json-report-file=j.json",
        ),
        ("j.json",),
        "pytest-json-report==1.5.0",
    ),
    Reporter(
        "pytest-reportlog",
        ("-p", "pytest_reportlog.plugin", "--report-log=log.jsonl"),
        ("log.jsonl",),
        "pytest-reportlog==1.0.0",
    ),
    Reporter("pytest-json-ctrf", ("-p", "ctrf.main", "--ctrf=ctrf.json"), ("ctrf.json",), "pytest-json-ctrf==0.6.1"),
    Reporter(
        "tdd-guard-pytest",
        ("-p", "tdd_guard_pytest.pytest_reporter"),
        (".claude/tdd-guard/data/test.json",),
        "tdd-guard-pytest==0.1.2",
    ),
)


def installed_peers() -> tuple[Reporter, ...]:
    """Install the peers that are not there, in a folder of their own, and return those that are."""
    found = [JUNIT]
    for peer in PEER_REPORTERS:
        ready = PEERS / f".{peer.requirement}"
        if not ready.exists() and not _install(peer.requirement):
            print(f"left out, because pip cannot install it: {peer.requirement}")
            continue
        ready.touch()
        found.append(peer)
    return tuple(found)


def _install(requirement: str) -> bool:
    extra = ["pytest-metadata==3.1.1"] if "json-report" in requirement else []
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps"]
    return not subprocess.run([*pip, "--target", str(PEERS), requirement, *extra], check=False).returncode
