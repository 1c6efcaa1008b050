"""/tdd: a feature test by test, and what lies behind its run."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from cdd_agent.clock import SystemClock
from cdd_agent.errors import UsageError
from cdd_agent.git.notes import repair
from cdd_agent.repl.display.question import may_go_back
from cdd_agent.repl.render import Renderer
from cdd_agent.repl.sitting import Sitting
from cdd_agent.repl.talk import past
from cdd_agent.workflows.orchestration.past.going import finish, go
from cdd_agent.workflows.orchestration.past.rollback import Site, alone, look, look_undo, site_of


def tdd(sitting: Sitting, argument: str) -> None:
    """Do what the first word says; alone: where the run stands."""
    word, _, rest = argument.partition(" ")
    action = WORDS.get(word or "status")
    if action is None:
        near = get_close_matches(word, WORDS, n=1)
        hint = f"did you mean: /tdd {near[0]}" if near else f"/tdd {' | '.join(WORDS)}"
        raise UsageError(f"/tdd does not know {word!r:.50}.", hint=hint)
    action(sitting, rest.strip())


def status(sitting: Sitting, _argument: str) -> None:
    """Where the run stands."""
    stands, damages = past.told_standing(past.settled(_site(sitting)))
    past.show_standing(stands, screen=sitting.screen, typed=_typed)
    past.show_damages(damages, screen=sitting.screen, typed=_typed)


def history(sitting: Sitting, argument: str) -> None:
    """The phases of the run, newest first: twenty of them, or as many as are asked for."""
    number = argument.removeprefix("-n").strip()
    if number and not (number.isascii() and number.isdigit() and len(number) < 10):
        raise UsageError(f"{argument!r:.50} is no number of rows.", hint="/tdd history -n 50; with 0 all are shown")
    rows, left_out, damages = past.told_history(
        past.settled(_site(sitting)), most=int(number) if number else past.MOST_ROWS
    )
    past.show_history(rows, left_out=left_out, screen=sitting.screen)
    past.show_damages(damages, screen=sitting.screen, typed=_typed)


def rollback(sitting: Sitting, argument: str) -> None:
    """Go back to a commit of the run, or undo that, after a look at what it means."""
    if not argument:
        raise UsageError("Which commit? None was named.", hint="/tdd history shows them; /tdd rollback COMMIT")
    site = _site(sitting)
    with alone(site):
        finish(site)
        way = look_undo(site) if argument == "--undo" else look(site, argument)
        past.show_way(way, screen=sitting.screen)
        if not may_go_back(screen=sitting.screen):
            sitting.screen.line("Nothing was changed.", indent=0)
            return
        go(site, way)
    past.say_done(way, screen=sitting.screen, typed=_typed)


def repair_notes(sitting: Sitting, argument: str) -> None:
    """Say what is wrong with the notes and can be mended; or mend it."""
    if argument not in ("", "--apply"):
        raise UsageError(
            f"{argument!r:.50} means nothing here.", hint="/tdd repair-notes, or /tdd repair-notes --apply"
        )
    repository = past.settled(_site(sitting)).repository
    if argument:
        applied = repair.apply(repository, now=SystemClock().now())
        past.show_repairs(applied.repairs, applied=applied, screen=sitting.screen, typed=_typed)
    else:
        past.show_repairs(repair.plan(repository), applied=None, screen=sitting.screen, typed=_typed)


WORDS: Mapping[str, Callable[[Sitting, str], None]] = {
    "status": status,
    "history": history,
    "rollback": rollback,
    "repair-notes": repair_notes,
}
"""The words after ``/tdd``, and what they do."""


def _typed(command: str) -> str:
    """``/tdd resume`` for ``cdd tdd resume``."""
    return command.replace("cdd tdd ", "/tdd ")


def _site(sitting: Sitting) -> Site:
    return site_of(sitting.crew.root, emit=Renderer(sitting.screen).write)
