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
from cdd_agent.tdd.recovery import alone
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.workflows.orchestration.feature import Feature
from cdd_agent.workflows.orchestration.past.going import finish, go, settle
from cdd_agent.workflows.orchestration.past.rollback import Site, look, look_undo, site_of
from cdd_agent.workflows.orchestration.recollection import to_begin, to_resume

_ALLOW_DIRTY = "--allow-dirty"


def tdd(sitting: Sitting, argument: str) -> None:
    """Do what the first word says; alone: where the run stands."""
    word, _, rest = argument.partition(" ")
    action = WORDS.get(word or "status")
    if action is None:
        near = get_close_matches(word, WORDS, n=1)
        hint = f"did you mean: /tdd {near[0]}" if near else f"/tdd {' | '.join(WORDS)}"
        raise UsageError(f"/tdd does not know {word!r:.50}.", hint=hint)
    action(sitting, rest.strip())


def run(sitting: Sitting, argument: str) -> None:
    """Begin a feature; whoever listens goes on listening."""
    text, allows_dirty = _without_option(argument)
    if text.startswith("--"):
        raise UsageError(
            f"{text.split()[0]!r:.50} is no option of /tdd run.",
            hint="say what is wanted: /tdd run a calculator that adds and subtracts; besides: --allow-dirty",
        )
    site = _site(sitting)
    settle(site)
    _carry_out(sitting, to_begin(site.root, site.repository, text=text), allows_dirty=allows_dirty)


def resume(sitting: Sitting, argument: str) -> None:
    """Go on from the phase after the last one that landed."""
    rest, allows_dirty = _without_option(argument)
    if rest:
        raise UsageError(f"{rest!r:.50} means nothing here.", hint="/tdd resume, or /tdd resume --allow-dirty")
    site = _site(sitting)
    settle(site)
    _carry_out(sitting, to_resume(site.root, site.repository), allows_dirty=allows_dirty)


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
    with alone(site.repository):
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
    option, _, ref = argument.partition(" ")
    if argument not in ("", "--apply") and (option != "--merge" or not ref):
        raise UsageError(
            f"{argument!r:.50} means nothing here.",
            hint="/tdd repair-notes, /tdd repair-notes --apply, or /tdd repair-notes --merge REF",
        )
    site = past.settled(_site(sitting))
    repository = site.repository
    if ref:
        past.take_in(ref.strip(), site=site)
    if option == "--apply":
        applied = repair.apply(repository, now=SystemClock().now())
        past.show_repairs(applied.repairs, applied=applied, screen=sitting.screen, typed=_typed)
    else:
        past.show_repairs(repair.plan(repository), applied=None, screen=sitting.screen, typed=_typed)


WORDS: Mapping[str, Callable[[Sitting, str], None]] = {
    "run": run,
    "resume": resume,
    "status": status,
    "history": history,
    "rollback": rollback,
    "repair-notes": repair_notes,
}
"""Those of ``TDD_WORDS``, and what they do."""


def _carry_out(sitting: Sitting, feature: Feature, *, allows_dirty: bool) -> None:
    """Run the cycles that are left, the events going to the run's journal too."""
    sitting.crew.follow(Ticket(slug=feature.slug, folder=feature.folder))
    orchestrator = sitting.crew.workshop.orchestrator(feature)
    orchestrator.allows_dirty = orchestrator.allows_dirty or allows_dirty
    orchestrator.run()


def _without_option(argument: str) -> tuple[str, bool]:
    """What is said besides ``--allow-dirty``, and whether that is said; only at the beginning or the end."""
    words = argument.split()
    if _ALLOW_DIRTY not in words[:1] + words[-1:]:
        return argument, False
    return argument.removeprefix(_ALLOW_DIRTY).removesuffix(_ALLOW_DIRTY).strip(), True


def _typed(command: str) -> str:
    """``/tdd resume`` for ``cdd tdd resume``."""
    return command.replace("cdd tdd ", "/tdd ")


def _site(sitting: Sitting) -> Site:
    return site_of(sitting.crew.root, emit=Renderer(sitting.screen).write)
