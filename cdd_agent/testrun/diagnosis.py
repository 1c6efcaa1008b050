"""Why a run has no report to judge, in words: what stopped it, in which test, and what to do about it."""

import io
import re
import signal
from pathlib import Path

from cdd_agent.storage import read_ordinary
from pytest_tdd_agent.recording.stream import in_flight
from pytest_tdd_agent.report import SuiteReport

SHOWN_TESTS = 5
_STREAM_LIMIT_BYTES = 64 * 1024 * 1024
"""Of a stream that is read: half a million tests."""
REASON_CAP = 400

_STOP_LINE = re.compile(r"^!{3,} (.+?) !{3,}$", re.MULTILINE)
_REFUSAL = re.compile(
    r"(?:: error: |^ERROR: (?!usage: )|^ImportError: (?=Error importing plugin))"
    r"(.+?)(?=\n  (?:config source|inifile|rootdir): |\n={3,} |\Z)",
    re.MULTILINE | re.DOTALL,
)
_CONFTEST = re.compile(r"^(ImportError while loading conftest '.+?')\..*?^E +(.+?)$", re.M | re.S)
_INTERNAL_ERROR = re.compile(r"^INTERNALERROR> ([\w.]+(?:Error|Exception|Exit|Warning)\b.*)$", re.MULTILINE)


def running_in(stream: Path) -> str:
    """`` while ... was running``, by the stream of a run; nothing where no test was."""
    try:
        tests = in_flight(io.BytesIO(read_ordinary(stream, limit_bytes=_STREAM_LIMIT_BYTES)))
    except OSError:
        return ""
    if not tests:
        return ""
    more = f" and {len(tests) - SHOWN_TESTS} more" if len(tests) > SHOWN_TESTS else ""
    return f" while {', '.join(tests[:SHOWN_TESTS])}{more} {'was' if len(tests) == 1 else 'were'} running"


def not_installed(report: SuiteReport, root: Path) -> str | None:
    """The module in the project's ``src`` for want of which no test could be collected; None if it is not that."""
    if report.tests:
        return None
    wanted = {error.failure.missing_name for error in report.collect_errors if error.failure.kind == "missing_module"}
    for name in sorted(name for name in wanted if name and name.isidentifier()):
        if (root / "src" / name / "__init__.py").is_file() or (root / "src" / f"{name}.py").is_file():
            return name
    return None


def ending(status: int) -> str:
    """How a process ended, by its status; negative: by a signal."""
    if status >= 0:
        return f"pytest ended with status {status}"
    names = {item.value: item.name for item in signal.Signals}
    return f"pytest was ended by {names.get(-status, f'signal {-status}')}"


def stop(output: str) -> str:
    """``: `` and what pytest said of its stopping, the last of that kind; options that stop a run are named."""
    said = _STOP_LINE.findall(output) or _INTERNAL_ERROR.findall(output)
    if not said:
        refused = refusal(output)
        return f": {refused}" if refused else ""
    is_option = "stopping after" in said[-1] or "continuing from this test" in said[-1]
    hint = "; take -x, --maxfail and --stepwise out of the tests' configuration" if is_option else ""
    return f": {said[-1]}{hint}"


def refusal(output: str) -> str | None:
    """Why pytest refused its options, its configuration or a ``conftest.py``, on one line."""
    if found := _CONFTEST.search(output):
        return f"{found[1]}: {found[2]}"[:REASON_CAP]
    found = _REFUSAL.search(output)
    if found is None:
        return None
    said = found[1].splitlines()[0] if is_absent_plugin(found[1]) else found[1]
    return " ".join(said.split())[:REASON_CAP]


def is_absent_plugin(reason: str) -> bool:
    """Whether pytest refused an option that no plugin has, or a plugin that is not there."""
    return reason.startswith(("unrecognized arguments", "ambiguous option", "Error importing plugin"))


def advice(reason: str, python: Path) -> str:
    """What to do about a refusal of pytest's in the interpreter ``python``."""
    pip = f"{python} -m pip install"
    if reason.startswith("Missing required plugins: "):
        return f"{pip} {reason.partition(': ')[2].replace(',', '')}"
    if found := re.search(r"'minversion' requires pytest-([\w.]+)", reason):
        return f"{pip} 'pytest>={found[1]}'"
    if is_absent_plugin(reason):
        return f"install what this belongs to with `{pip} PLUGIN`, or take it out of pytest's configuration"
    if reason.startswith(("file or directory not found", "not found: ", "found no collectors")):
        return "name tests that are there"
    if reason.startswith("ImportError while loading conftest"):
        return f"mend that file, or install what it misses with `{pip} PACKAGE`"
    return "correct pytest's configuration"
