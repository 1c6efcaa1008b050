"""How the implementer of GREEN is spoken to: who it is, how much code it is to write, and the tests themselves."""

from pathlib import Path

from cdd_agent.errors import CddError
from cdd_agent.guarded.keys import mask
from cdd_agent.settings import GreenSettings
from cdd_agent.tdd.briefing import Brief, BriefFor, rules_of, stated
from cdd_agent.tdd.policy import Phase, WorkItem
from cdd_agent.tdd.rules.verdict import named_test_files
from cdd_agent.workspace.files import Workspace, decode

MOST_CHARACTERS = 24_000
"""Of all test files together, as the model is given them; what is left out it can read."""

_PROMPTS = Path(__file__).parent / "prompts"
_ROLES = {"tools": "implementer.md", "blocks": "implementer_blocks.md"}
"""How the model changes files -> who it is told it is."""

STYLES = {
    "minimal": "Write the simplest code that makes the tests pass, and nothing that no test asks for.",
    "standard": "Write code as a careful colleague would: what the tests ask for, inputs checked where the tests show "
    "that they matter, clear names, no speculation.",
    "comprehensive": "Write code that is complete for the behavior the tests are about: edge cases and errors of the "
    "same kind too, as long as every test passes.",
}
"""Setting ``style`` -> what the model is told."""


def manner(settings: GreenSettings) -> str:
    """How the code is to be written, as the settings say."""
    docstrings = "Give what you add docstrings" if settings.include_docstrings else "Write no docstrings"
    hints = "Annotate what you add with types" if settings.include_type_hints else "Write no type annotations"
    fitting = ", in the way of the code around it."
    return f"## Manner\n\n- {STYLES[settings.style]}\n- {docstrings}{fitting}\n- {hints}{fitting}"


def brief_for(workspace: Workspace, settings: GreenSettings, *, edit_format: str = "tools") -> BriefFor:
    """The brief of a run of GREEN; a model without tools is given the test files apart from it, with the others."""
    role = (_PROMPTS / _ROLES[edit_format]).read_text(encoding="utf-8")

    def brief(item: WorkItem, phase: Phase) -> Brief:
        asked = stated(item, heading="Tests to pass")
        files = named_test_files(item) if edit_format == "tools" else ()
        return Brief(
            phase=phase,
            agent="green",
            role=role,
            rules=f"{rules_of(phase)}\n\n{manner(settings)}",
            work=f"green {item.ticket}",
            task="Make these tests pass. What is asked for is what they say.",
            stated="\n\n".join((asked, *_sources(files, workspace=workspace))),
            source="tests to pass",
        )

    return brief


def readable(text: str) -> str:
    """``text`` as it may be sent: bytes that are no UTF-8 written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _sources(files: tuple[str, ...], *, workspace: Workspace) -> list[str]:
    """The test files as they are, as many as there is room for; folders are left to be read."""
    shown, room = [], MOST_CHARACTERS
    for name in files:
        try:
            text = readable(mask(decode(workspace.read(name))).text)
        except (CddError, OSError):
            continue
        if len(text) <= room:
            room -= len(text)
            shown.append(f"`{name}`:\n\n{text.rstrip()}")
    return shown
