"""``cdd schema``: the form of what the program writes for other programs, as JSON Schema."""

import sys

import click

from cdd_agent.errors import UsageError

SCHEMAS = {
    "report": ("pytest_tdd_agent", "report.schema.json"),
    "green-artifact": ("cdd_agent.workflows.green", "artifact.schema.json"),
}
"""Name -> the package and the file in it."""


@click.command(short_help="Print a JSON Schema: report, green-artifact.")
@click.argument("name", default="")
def schema(name: str) -> None:
    """Print the JSON Schema of the document NAME.

    report: what `pytest --tdd-agent` writes; a line of its stream is #/$defs/event there. green-artifact: what `cdd
    green --out` writes.
    """
    from importlib.resources import files

    if name not in SCHEMAS:
        happened = f"There is no schema {name!r}." if name else "Which schema? None was named."
        import difflib

        near = difflib.get_close_matches(name, SCHEMAS, n=1)
        hint = f"did you mean: cdd schema {near[0]}" if near else f"cdd schema {' | '.join(SCHEMAS)}"
        raise UsageError(happened, hint=hint)
    package, file = SCHEMAS[name]
    sys.stdout.write(files(package).joinpath(file).read_text(encoding="utf-8"))
