"""The commands /config, /permissions, /model and /cost: show what holds, where it comes from, and change it."""

from rich.text import Text

from cdd_agent.config.settings import CONFIG_FILE, flatten
from cdd_agent.config.trust import Decision
from cdd_agent.errors import UsageError, format_count, suggest
from cdd_agent.hooks import describe_hooks
from cdd_agent.model.budget import cost_usd, find_context_window, list_priced_models, load_prices
from cdd_agent.repl.render import format_cost
from cdd_agent.repl.state import SessionState
from cdd_agent.tickets.ticket import find
from cdd_agent.untrusted.text import clean
from cdd_agent.work.state import Usage
from cdd_agent.work.state_file import load_state

_GROUPS = {
    "model": "model and attempts",
    "refactor": "tests and checks",
    "max_tokens_per_step": "limits of cost and time",
    "run_tree_copy_mb": "run trees",
    "edit_format": "changes, questions and keys",
    "framework": "test framework",
    "hooks": "hooks",
    "green.max_iterations": "cdd green",
}
"""The first setting of each group -> the heading in the list of all settings."""
_MOST_COLUMNS = 24
"""Columns of names, and of values before a source."""

_SAMPLE_TOKENS = 1_000
"""Few enough to get the price of a short prompt."""


def configure(session: SessionState, argument: str) -> None:
    """Show all settings, or those whose names begin alike, with sources; with a value, change one in the file."""
    project, screen = session.project, session.screen
    name, _, text = argument.partition(" ")
    if text.strip():
        project.change_setting(name, text.strip())
        screen.shows_changes = project.settings.diffs
        session.rebuild_agents()
    values, sources = flatten(project.settings), project.find_setting_sources()
    shown = [name] if name in values else [each for each in values if each.startswith(name)]
    if not shown:
        hint = suggest(name, values, text="did you mean: /config {}", otherwise="/config lists all settings")
        raise UsageError(f"{name!r} is not a setting.", hint=hint)
    texts = {each: clean(_format_value(values[each])) for each in shown}
    wide, wide_value = (min(_MOST_COLUMNS, max(map(len, each))) for each in (shown, texts.values()))
    for each in shown:
        if each in _GROUPS and not name:
            screen.gap()
            screen.line(_GROUPS[each], style="bold")
        source = sources.get(each, "")
        value = f"{texts[each]:<{wide_value}}" if source else texts[each]
        row = Text.assemble((f"{each:<{wide}}  ", "bold" if source else "dim"), value)
        screen.line(row + Text(f"  {source}" if source else "", style="cyan"), indent=0 if name else 2, hang=wide + 2)
    if text.strip() and sources.get(name) not in (None, str(CONFIG_FILE)):
        screen.note(f"The value in {CONFIG_FILE} was changed, but another one holds: {sources[name]}.")
    if not name:
        screen.gap()
        text = f"Without a source it is the default. /config NAME VALUE changes {CONFIG_FILE}."
        screen.line(f"{text} /config max shows only the names that begin with max.", style="dim")


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        value = "; ".join(describe_hooks(value))
    return str(value).lower() if isinstance(value, bool) else str(value) or "(nothing)"


def manage_permissions(session: SessionState, argument: str) -> None:
    """List what the user has decided about this project, or take one of the decisions back."""
    approvals, screen = session.project.trust.approvals, session.screen
    decisions = approvals.list_decisions()
    word, _, number = argument.partition(" ")
    if argument and (word != "remove" or not number.strip().isdecimal()):
        raise UsageError(f"{argument!r} is not known here.", hint="type: /permissions, or /permissions remove 2")
    if argument:
        if not 1 <= int(number) <= len(decisions):
            raise UsageError(f"{number.strip()} is not the number of a permission.", hint="/permissions lists them")
        decision = decisions[int(number) - 1]
        approvals.forget(decision)
        screen.line(f"Removed: {_describe(decision)}. cdd asks again when it needs it.")
        return
    for number_of, decision in enumerate(decisions, start=1):
        screen.line(f"{number_of:>3}  {_describe(decision)}", hang=5)
    if decisions:
        screen.line("Take one back: /permissions remove N", style="dim")
    else:
        screen.line("You have decided about nothing here. cdd asks when the project or the model needs a permission.")


def _describe(decision: Decision) -> str:
    verdict = "allowed" if decision.approved else "declined"
    first, *more = decision.shown.splitlines() or [f"sha256 {decision.sha256[:12]}"]
    return f"{decision.subject} {verdict}: {first}{' ...' if more else ''}"


def choose_model(session: SessionState, argument: str) -> None:
    """Use another model from now on, or show the current one with its context and prices."""
    if not argument:
        _show_model(session)
        return
    if len(argument.split()) > 1:
        raise UsageError(f"{argument!r} is not the id of a model.", hint=f"/model {argument.split(maxsplit=1)[0]}")
    session.project.use_model(argument)
    session.progress.model = argument
    session.progress.tokens = 0
    session.screen.line(f"{argument} answers from now on. The conversations continue.")
    session.rebuild_agents()
    if find_context_window(argument) is None:
        question = suggest(argument, list_priced_models(), text=" Did you mean {}?")
        session.screen.note(f"Its price is unknown. cdd cannot show its cost or enforce limits in dollars.{question}")


def _show_model(session: SessionState) -> None:
    name, percent = session.project.model.name, session.prompt_status.context_percent
    size = find_context_window(name)
    if size is None:
        known = f"unknown; cdd knows those of {', '.join(list_priced_models())}"
        rows = [("model", name), ("context", "of unknown size"), ("prices", known)]
    else:
        kinds = ("input", "output", "cache_read", "cache_write")
        usages = {kind.replace("_", " "): Usage(**{f"{kind}_tokens": _SAMPLE_TOKENS}) for kind in kinds}
        costs = {word: (cost_usd(name, usage) or 0.0) / _SAMPLE_TOKENS for word, usage in usages.items()}
        listed = ", ".join(f"{word} {cost * 1_000_000:.2f}" for word, cost in costs.items())
        filled = "" if percent is None else f", {percent} % full"
        rows = [
            ("model", name),
            ("context", f"{size:,} tokens{filled}"),
            ("prices", f"USD per million tokens: {listed} (as of {load_prices().date})"),
        ]
    session.screen.fields(rows)


def show_cost(session: SessionState, _argument: str) -> None:
    """Show what this session and the execution of the current ticket have used."""
    usages = {"this session": session.progress.used}
    if session.slug:
        state = load_state(find(session.project.root, session.slug).state_path)
        if state is not None:
            usages[f"all of /exec {session.slug}"] = state.usage
    for name, used in usages.items():
        read = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
        parts = (
            format_count(used.calls, "call"),
            f"{read:,} tokens read",
            f"{used.cache_read_tokens:,} of them from the cache" if used.cache_read_tokens else "",
            f"{used.output_tokens:,} written",
            format_cost(used),
        )
        text = "; ".join(filter(None, parts)) if used.tokens or used.calls else "the model was not called"
        session.screen.line(f"{name}: {text}")
