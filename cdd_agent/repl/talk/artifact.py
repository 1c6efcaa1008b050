"""What a run of GREEN came to, as a person reads it."""

from rich.text import Text

from cdd_agent.repl.display.clean import clean
from cdd_agent.repl.display.screen import Screen
from cdd_agent.workflows.green.artifact import GreenArtifact

MOST_FAILING = 5
"""Tests that are named."""

_SCOPES = {
    "all": "all tests",
    "target_files": "the tests of the targets' files only",
    "targets": "the targets only",
}
_OUTCOMES = {
    "green": "the tests pass",
    "partial": "some of the tests pass, and that is kept; no other was broken",
    "failed": "the tests do not pass; all was taken back",
    "blocked": "the model gave up; all was taken back",
}


def show_artifact(artifact: GreenArtifact, *, screen: Screen) -> None:
    """Outcome, files, what the last run of tests said, and what fails."""
    results, files = artifact.test_results, artifact.implementation_files
    screen.gap()
    symbol, style = ("open", "bold green") if artifact.outcome == "green" else ("closed", "bold red")
    times = "1 iteration" if artifact.iterations == 1 else f"{artifact.iterations} iterations"
    told = f"{screen.symbols[symbol]} {_OUTCOMES[artifact.outcome]}, after {times}"
    screen.line(told, style=style, indent=0, hang=2)
    for word, paths in (("created", files.created), ("edited", files.edited), ("deleted", files.deleted)):
        if paths:
            _row(word, ", ".join(paths), screen=screen)
    if artifact.components:
        _row("added", ", ".join(f"{part.type} {part.name}" for part in artifact.components), screen=screen)
    if artifact.commit:
        _row("commit", artifact.commit[:8], screen=screen)
    counts = {"passed": results.passed, "failed": results.failed, "errors": results.errors, "skipped": results.skipped}
    counted = ", ".join(f"{number} {word}" for word, number in counts.items() if number) or "no test was run"
    _row("tests", f"{counted} (the last run: {_SCOPES[artifact.scope]})", screen=screen)
    failing = [detail for detail in results.test_details if detail.status in ("failed", "error")]
    for detail in failing[:MOST_FAILING]:
        _row("", f"{detail.name}: {detail.kind}", screen=screen)
    if len(failing) > MOST_FAILING:
        _row("", f"and {len(failing) - MOST_FAILING} more", screen=screen)


def _row(word: str, told: str, *, screen: Screen) -> None:
    screen.line(Text.assemble((f"{word:<9}", "dim"), clean(told)), indent=0, hang=9)
