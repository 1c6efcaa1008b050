"""/tdd: a feature test by test, and what lies behind its run.

GREEN on its own: code for tests that fail already.

What an audit found: a table of handoffs and claims for each ticket, and below it what does not hold.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import groupby

from rich.table import Table
from rich.text import Text

from cdd_agent.audit.handoffs import CLAIMS, Audited, Claim
from cdd_agent.clock import SystemClock
from cdd_agent.errors import UsageError
from cdd_agent.git import notes_repair
from cdd_agent.history.rollback import Site, finish, go, look, look_undo, settle, site_of
from cdd_agent.repl import dialogs
from cdd_agent.repl.dialogs import show_artifact
from cdd_agent.repl.question import may_go_back
from cdd_agent.repl.render import Renderer
from cdd_agent.repl.screen import Screen
from cdd_agent.repl.state import Sitting
from cdd_agent.tdd.recovery import alone
from cdd_agent.tickets.ticket import Ticket
from cdd_agent.untrusted.text import clean
from cdd_agent.workflows.green.request import wanted_below
from cdd_agent.workflows.orchestration.feature import Feature, to_begin, to_resume

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


def tdd_resume(sitting: Sitting, argument: str) -> None:
    """Go on from the phase after the last one that landed."""
    rest, allows_dirty = _without_option(argument)
    if rest:
        raise UsageError(f"{rest!r:.50} means nothing here.", hint="/tdd resume, or /tdd resume --allow-dirty")
    site = _site(sitting)
    settle(site)
    _carry_out(sitting, to_resume(site.root, site.repository), allows_dirty=allows_dirty)


def tdd_status(sitting: Sitting, _argument: str) -> None:
    """Where the run stands."""
    stands, damages = dialogs.told_standing(dialogs.settled(_site(sitting)))
    dialogs.show_standing(stands, screen=sitting.screen, typed=_typed)
    dialogs.show_damages(damages, screen=sitting.screen, typed=_typed)


def history(sitting: Sitting, argument: str) -> None:
    """The phases of the run, newest first: twenty of them, or as many as are asked for."""
    number = argument.removeprefix("-n").strip()
    if number and not (number.isascii() and number.isdigit() and len(number) < 10):
        raise UsageError(f"{argument!r:.50} is no number of rows.", hint="/tdd history -n 50; with 0 all are shown")
    rows, left_out, damages = dialogs.told_history(
        dialogs.settled(_site(sitting)), most=int(number) if number else dialogs.MOST_ROWS
    )
    dialogs.show_history(rows, left_out=left_out, screen=sitting.screen)
    dialogs.show_damages(damages, screen=sitting.screen, typed=_typed)


def rollback(sitting: Sitting, argument: str) -> None:
    """Go back to a commit of the run, or undo that, after a look at what it means."""
    if not argument:
        raise UsageError("Which commit? None was named.", hint="/tdd history shows them; /tdd rollback COMMIT")
    site = _site(sitting)
    with alone(site.repository):
        finish(site)
        way = look_undo(site) if argument == "--undo" else look(site, argument)
        dialogs.show_way(way, screen=sitting.screen)
        if not may_go_back(screen=sitting.screen):
            sitting.screen.line("Nothing was changed.", indent=0)
            return
        go(site, way)
    dialogs.say_done(way, screen=sitting.screen, typed=_typed)


def repair_notes(sitting: Sitting, argument: str) -> None:
    """Say what is wrong with the notes and can be mended; or mend it."""
    option, _, ref = argument.partition(" ")
    if argument not in ("", "--apply") and (option != "--merge" or not ref):
        raise UsageError(
            f"{argument!r:.50} means nothing here.",
            hint="/tdd repair-notes, /tdd repair-notes --apply, or /tdd repair-notes --merge REF",
        )
    site = dialogs.settled(_site(sitting))
    repository = site.repository
    if ref:
        dialogs.take_in(ref.strip(), site=site)
    if option == "--apply":
        applied = notes_repair.apply(repository, now=SystemClock().now())
        dialogs.show_repairs(applied.repairs, applied=applied, screen=sitting.screen, typed=_typed)
    else:
        dialogs.show_repairs(notes_repair.plan(repository), applied=None, screen=sitting.screen, typed=_typed)


WORDS: Mapping[str, Callable[[Sitting, str], None]] = {
    "run": run,
    "resume": tdd_resume,
    "status": tdd_status,
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


_ANEW = "--anew"


def green(sitting: Sitting, argument: str) -> None:
    """Make the tests that are named pass, or go on with that; whoever listens goes on listening."""
    try:
        words = shlex.split(argument)
    except ValueError as error:
        raise UsageError(
            f"The tests cannot be read: {error}.", hint="quote what has spaces: /green 'tests/a b.py'"
        ) from error
    named = [word for word in words if word not in (_ANEW, _ALLOW_DIRTY)]
    wanted = wanted_below(sitting.crew.root, named)
    sitting.crew.follow(wanted.run_of(wanted.project or sitting.crew.root))
    run = sitting.crew.workshop.green(wanted)
    run.allows_dirty = run.allows_dirty or _ALLOW_DIRTY in words
    artifact = run.run(anew=_ANEW in words)
    show_artifact(artifact, screen=sitting.screen)
    artifact.require_green(wanted.ways.go_on)


_LOOK = {True: ("open", "green"), False: ("closed", "bold red"), None: ("note", "yellow")}
_SHORT = 8


def audit(sitting: Sitting, argument: str) -> None:
    """Hold the handoff notes of a range against history and tests."""
    sitting.screen.say("reading notes")
    show_audit(sitting.crew.auditor().run(argument or "HEAD"), screen=sitting.screen)


def show_audit(audited: Sequence[Audited], *, screen: Screen) -> None:
    """Every handoff with its claims, what does not hold or cannot be told, and what it all comes to."""
    for ticket, handoffs in groupby(audited, key=lambda each: each.ticket):
        screen.gap()
        screen.line(Text(clean(ticket) or "no ticket", style="bold"), indent=0, hang=2)
        _show_table(tuple(handoffs), screen=screen)
    screen.gap()
    for each in audited:
        for claim in each.claims:
            if not claim.holds:
                _tell(each, claim, screen=screen)
    _sum_up(audited, screen=screen)


def _show_table(audited: Sequence[Audited], *, screen: Screen) -> None:
    """The handoffs of one ticket with their claims."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("cycle", "phase", "commit", *CLAIMS):
        table.add_column(heading, no_wrap=True)
    for each in audited:
        marks = (_mark(each, name, screen=screen) for name in CLAIMS)
        table.add_row(str(each.cycle or ""), each.phase, each.commit[:_SHORT], *marks)
    screen.show(table)


def _mark(audited: Audited, name: str, *, screen: Screen) -> Text:
    """Whether a claim holds; nothing where it is not made."""
    claim = next((claim for claim in audited.claims if claim.name == name), None)
    if claim is None:
        return Text()
    symbol, style = _LOOK[claim.holds]
    return Text(screen.symbols[symbol], style=style)


def _tell(audited: Audited, claim: Claim, *, screen: Screen) -> None:
    """One claim that does not hold, or of which nothing can be told."""
    symbol, style = _LOOK[claim.holds]
    of = f"{audited.phase} of {audited.ticket}, cycle {audited.cycle}, " if audited.phase else ""
    head = Text.assemble((f"{screen.symbols[symbol]} {clean(of)}{audited.commit[:_SHORT]}: {claim.name}: ", style))
    screen.line(head + clean(claim.told), indent=0, hang=2)


def _sum_up(audited: Sequence[Audited], *, screen: Screen) -> None:
    """How many claims hold."""
    claims = [claim for each in audited for claim in each.claims]
    failed, unknown = (sum(claim.holds is holds for claim in claims) for holds in (False, None))
    told = f"{_count(len(audited), 'handoff')}, {_count(len(claims), 'claim')}: "
    if failed:
        screen.line(told + f"{failed} not true.", style="bold red", indent=0, hang=2)
    elif unknown:
        screen.line(told + f"{unknown} cannot be told, the rest true.", style="bold yellow", indent=0, hang=2)
    else:
        screen.line(told + "all true.", style="bold green", indent=0, hang=2)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
