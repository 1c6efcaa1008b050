"""The command ``cdd fork``: make forks of a ticket, compare, merge and drop them."""

from typing import TYPE_CHECKING

import click

from cdd_agent.cli.invocation import Invocation, headless, print_json
from cdd_agent.errors import GateClosed, UsageError, format_count, join_first

if TYPE_CHECKING:
    from cdd_agent.events import ForkListed
    from cdd_agent.git.fork import Fork, Forks, MergePlan
    from cdd_agent.git.landing import Favor
    from cdd_agent.repl.screen import Screen

_MOST_FILES = 20
_MOST_DIRECTION = 200
_OWN = "main"
"""The word for the user's own branch, whatever its name is."""
_CHOICES = {
    "abort": "change nothing",
    "resolve": "write both versions into the fork's files, and edit them there",
    "ours": "take the lines of your branch",
    "theirs": "take the lines of the fork",
}


class _ForkCommands(click.Group):
    """A group that lists the forks by default, and takes other words than its commands for those of ``start``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["list"])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "diff":  # as in other commands
            args = ["compare", *args[1:]]
        elif args[0] not in self.commands and not args[0].startswith("-"):
            args = ["start", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_ForkCommands, short_help="Try a step in another way, beside the first one.")
def fork() -> None:
    """Try a step of a ticket in another way, on a new branch and in another work tree.

    `cdd fork SLUG [STEP] DIRECTION` is short for `cdd fork start SLUG [STEP] DIRECTION`, and `cdd fork` for
    `cdd fork list`. A fork is named by any part of its name.
    """


@fork.command(short_help="Make a fork, and switch to it.")
@click.argument("slug")
@click.argument("words", nargs=-1, required=True, metavar="[STEP] DIRECTION")
@headless
def start(invocation: Invocation, *, slug: str, words: tuple[str, ...]) -> None:
    """Make a fork of the ticket SLUG as it was before STEP, and switch to it.

    DIRECTION tells the model what to do differently. The default of STEP is the step that was begun last.
    """
    from cdd_agent.events import Notice
    from cdd_agent.runs.places import find_run
    from cdd_agent.work.state_file import load_state

    number = int(words[0]) if words[0].isdecimal() else None
    direction = " ".join(words if number is None else words[1:])
    project = invocation.project
    made, remarks = project.ticket_forks().start(
        find_run(project.root, slug), direction, number=number, checkpoints=project.checkpoints
    )
    for remark in remarks:
        project.emit(Notice(text=remark))
    if invocation.as_json:
        print_json(_describe(made, project.forks, status="active"))
        return
    screen = invocation.screen
    screen.line(f"{screen.symbols['open']} Fork {made.name}, before step {made.step} of {slug}", style="bold green")
    screen.line(f"branch {made.branch}, work tree {project.forks.locate(made)}", style="dim")
    resume = f"; its conversations: cdd --project {project.forks.find_project(made)} --resume" if made.session else ""
    state = load_state(find_run(project.forks.find_project(made), slug).state_path)
    following = state.resume if state is not None else f"cdd exec {slug}"
    screen.line(f"Next: {screen.as_typed(following)} runs the step there{resume}")


@fork.command(name="list", short_help="List the forks as a tree.")
@headless
def list_(invocation: Invocation) -> None:
    """List the forks below the branches that they were made from. The status is active, merged or abandoned.

    A fork is merged if merging it into your branch would change nothing, also after it was dropped.
    """
    from cdd_agent.runs.fork import arrange
    from cdd_agent.untrusted.text import shorten

    forks = invocation.project.forks
    known = forks.list_all()
    statuses = forks.find_statuses(known)
    if invocation.as_json:
        for each in known:
            print_json(_describe(each, forks, status=statuses[each.name]))
        return
    screen = invocation.screen
    if not known:
        screen.line(f"No forks yet. To make one: {screen.as_typed('cdd fork SLUG DIRECTION')}")
        return
    for row, depth in arrange(known):
        if isinstance(row, str):
            screen.line(row, style="bold")
            continue
        status = statuses[row.name]
        current = ", current" if forks.find_current(row.ticket) == row else ""
        style = {"active": "green", "merged": "cyan", "abandoned": "dim"}[status]
        screen.line(f"{row.name}  {status}{current}", style=style, indent=2 * depth)
        work = f"kept: {row.kept}" if row.is_abandoned else format_count(forks.count_commits(row), "commit")
        direction = shorten(row.direction, _MOST_DIRECTION)
        screen.line(f"{row.ticket} step {row.step}: {direction}  ({work})", style="dim", indent=2 * depth + 2)


@fork.command(short_help="Choose where the plan of a ticket is carried out.")
@click.argument("name")
@click.option("--ticket", metavar="SLUG", help="With main: the ticket; the default is every ticket.")
@headless
def switch(invocation: Invocation, name: str, *, ticket: str | None) -> None:
    """Carry out the plan in the fork NAME from now on; main means your own branch."""
    forks, screen = invocation.project.forks, invocation.screen
    if name == _OWN:
        slugs = (ticket,) if ticket else tuple(dict.fromkeys(each.ticket for each in forks.list_all()))
        for slug in slugs:
            forks.switch(slug, None)
        screen.line("Runs work on your own branch.")
        return
    chosen = forks.find(name)
    forks.switch(chosen.ticket, chosen)
    back = screen.as_typed(f"cdd fork switch {_OWN}")
    screen.line(f"cdd exec {chosen.ticket} works in the fork {chosen.name}. Back: {back}")


@fork.command(short_help="Show two forks side by side.")
@click.argument("one", metavar="A")
@click.argument("other", metavar="[B]", default=_OWN)
@headless
def compare(invocation: Invocation, *, one: str, other: str) -> None:
    """Show steps, gates, tests, evidence, changes and cost of two forks; without B, of a fork and your own branch.

    Then follow the lines that differ, from A to B.
    """
    from cdd_agent.repl.render import create_table, show_files
    from cdd_agent.review import describe_size
    from cdd_agent.untrusted.text import clean

    forks, ticket_forks = invocation.project.forks, invocation.project.ticket_forks()
    pair = [None if name == _OWN else forks.find(name) for name in (one, other)]
    like = next((each for each in pair if each is not None), None)
    if like is None:
        raise UsageError("Name at least one fork.", hint="cdd fork list")
    rows = [ticket_forks.summarize(each, like=like) for each in pair]
    files = ticket_forks.diff(*pair)
    if invocation.as_json:
        for file in files:
            print_json(file)
        for row in rows:
            print_json(row)
        return
    table = create_table("", *(row.name for row in rows))
    for key in rows[0].__struct_fields__:
        if key not in ("name", "files"):
            table.add_row(key, *(clean(_format(getattr(row, key))) for row in rows))
    invocation.screen.show(table)
    if not files:
        invocation.screen.line("Their files are the same.")
        return
    invocation.screen.line(f"From {rows[0].name} to {rows[1].name}: {describe_size(files)}", style="bold")
    show_files(files, screen=invocation.screen)


def _format(value: object) -> str:
    """Return a cell of the comparison.

    >>> _format({"1": "completed"}), _format(()), _format(0.25)
    ('1 completed', '-', '$0.25')
    """
    match value:
        case dict():
            return "\n".join(f"{name} {each}" for name, each in value.items()) or "-"
        case tuple():
            return "\n".join(map(str, value)) or "-"
        case float():
            return f"${value:.2f}"
    return "-" if value is None else str(value)


@fork.command(short_help="Merge a fork into your branch.")
@click.argument("name")
@click.option("--resolve", is_flag=True, help="Write conflicts into the fork's files, to edit them.")
@click.option("--ours", is_flag=True, help="Where lines conflict, take those of your branch.")
@click.option("--theirs", is_flag=True, help="Where lines conflict, take those of the fork.")
@click.option("--abort", is_flag=True, help="End a merge that waits to be resolved in the fork.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@headless
def merge(invocation: Invocation, name: str, *, dry_run: bool, **given: bool) -> None:
    """Show what merging the fork NAME would change, and merge it. Your uncommitted changes stay as they are.

    After you have resolved conflicts in the fork's files, the same command continues.
    """
    from cdd_agent.git.commits import list_pointers

    how = _find_way(name, given)
    project, screen = invocation.project, invocation.screen
    forks, ticket_forks = project.forks, project.ticket_forks()
    finished, chosen = ticket_forks.finish_merges(), forks.find(name)
    if how == "abort":
        forks.abort(chosen)
        screen.line(f"The merge has ended; the fork {chosen.name} is as it was before.")
        return
    if chosen.name in finished:
        screen.line(f"Finished the merge of {chosen.name}, which was interrupted.", style="bold green")
        _report_steps(chosen, finished[chosen.name], screen=screen)
        return
    plan = forks.plan_merge(chosen)
    _show_plan(plan, invocation=invocation)
    if dry_run:
        return
    if plan.conflicts:
        how = how or _choose(plan, invocation=invocation)
        if how == "abort":
            screen.line("Nothing was changed.")
            return
        favors: dict[str, Favor] = {"ours": "ours", "theirs": "theirs"}
        if how in favors:
            plan = forks.settle(plan, favors[how])
        elif waiting := forks.resolve(plan):
            names = join_first(waiting, most=_MOST_FILES)
            screen.line(f"Edit these files in {forks.locate(chosen)}: {names}.", style="yellow")
            again = screen.as_typed(f"cdd fork merge {chosen.name}")
            screen.line(f"Then: {again}; or end it: {again} --abort")
            return
        else:
            plan = forks.plan_merge(chosen)
        _show_plan(plan, invocation=invocation)
    if not plan.subjects:
        raise UsageError(f"The fork {chosen.name} has no commits that {plan.branch} lacks.", hint="cdd fork list")
    if not invocation.is_agreed(f"Merge it into {plan.branch}?", otherwise="Nothing was merged."):
        return
    ticket_forks.check_merge(plan, make_suite=lambda: project.make_copied_suite(forks.project), emit=project.emit)
    landed, taken = ticket_forks.merge(plan)
    if invocation.as_json:
        from cdd_agent.events import ForkMerged

        print_json(ForkMerged(name=chosen.name, commit=landed.commit, steps=taken))
        return
    screen.line(f"{screen.symbols['open']} Merged into {plan.branch}: {landed.commit[:10]}", style="bold green")
    changed = {change.path for change in plan.changes}
    if pointers := changed.intersection(list_pointers(forks.repository)):
        names = join_first(sorted(pointers), most=_MOST_FILES)
        screen.line(f"Only pointers of Git LFS for now: {names}. Their content: git lfs checkout", style="yellow")
    _report_steps(chosen, taken, screen=screen)


def _find_way(name: str, given: dict[str, bool]) -> str | None:
    ways = [way for way, is_given in given.items() if is_given]
    if len(ways) > 1:
        named = " and ".join(f"--{way}" for way in ways)
        raise UsageError(f"{named} cannot be combined.", hint=f"name one: cdd fork merge {name} --{ways[0]}")
    return next(iter(ways), None)


def _report_steps(chosen: "Fork", taken: tuple[int, ...], *, screen: "Screen") -> None:
    if taken:
        steps = ", ".join(map(str, taken))
        screen.line(f"The ticket {chosen.ticket} takes over what the fork says of step {steps}.")
    screen.line(f"Next: {screen.as_typed(f'cdd fork drop {chosen.name}')} removes its work tree and its branch.")


def _show_plan(plan: "MergePlan", *, invocation: Invocation) -> None:
    from cdd_agent.events import CHANGE_LETTERS, ForkMergePlanned

    if invocation.as_json:
        line = ForkMergePlanned(
            name=plan.fork.name,
            branch=plan.branch,
            commits=plan.subjects,
            conflicts=plan.conflicts,
            changes=plan.changes,
        )
        print_json(line)
        return
    screen = invocation.screen
    screen.line(f"{plan.fork.branch} into {plan.branch}: {format_count(len(plan.subjects), 'commit')}", style="bold")
    screen.items(plan.subjects, most=_MOST_FILES)
    screen.items([f"{CHANGE_LETTERS[change.kind]} {change.path}" for change in plan.changes], most=_MOST_FILES)
    if plan.conflicts:
        screen.line(f"Conflicts in {format_count(len(plan.conflicts), 'file')}:", style="bold yellow")
        screen.items(plan.conflicts, most=_MOST_FILES)


def _choose(plan: "MergePlan", *, invocation: Invocation) -> str:
    if not invocation.is_interactive:
        hint = f"cdd fork merge {plan.fork.name} --resolve, --ours or --theirs"
        raise GateClosed(f"{format_count(len(plan.conflicts), 'file')} in conflict. Nothing was merged.", hint=hint)
    from cdd_agent.repl.question import ask_choice

    shown = tuple(f"{name}: {meaning}" for name, meaning in _CHOICES.items())
    return tuple(_CHOICES)[ask_choice("What about the conflicts?", shown, screen=invocation.screen)]


@fork.command(short_help="Remove a fork; its work stays under a ref.")
@click.argument("name")
@click.option("--confirm", "typed", metavar="NAME", help="The full name, if the fork holds work that is not merged.")
@headless
def drop(invocation: Invocation, name: str, *, typed: str | None) -> None:
    """Remove the work tree and the branch of the fork NAME. All of its work stays under refs/cdd/abandoned/NAME.

    A fork with work that is not merged or not committed is removed only if you type its full name.
    """
    project, screen = invocation.project, invocation.screen
    chosen = project.forks.find(name)
    loss = _format_loss(*project.forks.require_droppable(chosen))
    if loss:
        screen.line(f"The fork {chosen.name} has {loss}.", style="bold yellow")
        if typed is None and invocation.is_interactive:
            typed = screen.ask("Type its full name to remove it:").strip()
    if typed != chosen.name and (loss or typed is not None):
        hint = f"merge it: cdd fork merge {chosen.name}; or: cdd fork drop {chosen.name} --confirm {chosen.name}"
        raise UsageError("That is not its full name. Nothing was removed.", hint=hint)
    if typed is None and not invocation.is_agreed(f"Remove the fork {chosen.name}?", otherwise="Nothing was removed."):
        return
    project.ticket_forks().drop(chosen)
    if invocation.as_json:
        from cdd_agent.events import ForkDropped

        print_json(ForkDropped(name=chosen.name, kept=chosen.kept))
        return
    screen.line(f"Removed. Its work is in {chosen.kept}; to have it back: git branch NAME {chosen.kept}")


def _format_loss(commits: int, changed: tuple[str, ...]) -> str:
    """Return what a fork holds that is nowhere else; empty if that is nothing.

    >>> _format_loss(2, ("a.py",))
    '2 commits that are not merged and 1 uncommitted file'
    """
    parts = [f"{format_count(commits, 'commit')} that {'is' if commits == 1 else 'are'} not merged"] if commits else []
    parts += [format_count(len(changed), "uncommitted file")] if changed else []
    return " and ".join(parts)


def _describe(each: "Fork", forks: "Forks", *, status: str) -> "ForkListed":
    from cdd_agent.events import ForkListed

    return ForkListed(
        name=each.name,
        ticket=each.ticket,
        step=each.step,
        direction=each.direction,
        branch=each.branch,
        parent=each.parent,
        base=each.base,
        folder=str(forks.locate(each)),
        session=each.session,
        is_current=forks.find_current(each.ticket) == each,
        status=status,
    )
