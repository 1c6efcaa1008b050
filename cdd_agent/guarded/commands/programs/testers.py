"""Runs of the project's tests: pytest and unittest with the options that only choose tests and how to tell of them."""

import re
from collections.abc import Mapping, Sequence

from cdd_agent.guarded.commands.classes import READ, Finding, joined, other
from cdd_agent.guarded.commands.paths import Setting, reads
from cdd_agent.guarded.commands.programs.readers import Judge
from cdd_agent.guarded.commands.words import Word, of_value

TESTS = Finding(kind="tests")

_FLAGS = re.compile(r"-[xqvslhV]+|-r[A-Za-z]+|-p ?no:\w+|-n(?:\d+|auto)|-k.+|-m.+")
_LONG_FLAGS = re.compile(
    r"--(?:exitfirst|quiet|verbose|collect-only|co|no-header|no-summary|last-failed|lf|failed-first|ff|new-first|nf"
    r"|stepwise|sw|stepwise-skip|sw-skip|showlocals|strict-markers|strict-config|strict|disable-warnings|no-cov"
    r"|disable-pytest-warnings|runxfail|version|help|fixtures|markers|setup-show|setup-plan|full-trace|cache-show"
    r"|doctest-modules|continue-on-collection-errors"
    r"|(?:tb|maxfail|durations|durations-min|capture|color|timeout|verbosity|show-capture|deselect|numprocesses)=.+)"
)
_TAKE_TEXT = frozenset({"-k", "-m", "-n", "-r", "--tb", "--maxfail", "--durations", "--color", "--timeout"})
_TAKE_TEST = frozenset({"--deselect"})
_UNITTEST_FLAGS = re.compile(r"-[vqfbch]+|--(?:verbose|quiet|failfast|buffer|catch|locals)")
_PYTHON_FLAGS = re.compile(r"-[BusqIE]+|-W(?:error|ignore|default|always|once|module)|-Xdev")


def judge_pytest(words: Sequence[Word], setting: Setting) -> Finding:
    """pytest; what loads plugins, other configuration or other folders is not among the options that are known."""
    rest = iter(words[1:])
    findings = [TESTS]
    for word in rest:
        value = word.value
        if value == "-p":
            after = next(rest, None)
            if after is None or not re.fullmatch(r"no:\w+", after.value or ""):
                return other("this option of pytest is not known to be harmless")
        elif value in _TAKE_TEXT or value in _TAKE_TEST:
            after = next(rest, None)
            if after is None or not after.is_single:
                return other("an option of pytest cannot be told from its text")
        elif value is not None and value.startswith("-"):
            if not (_FLAGS.fullmatch(value) or _LONG_FLAGS.fullmatch(value)):
                return other(f"{value.partition('=')[0]} of pytest is not known to be harmless")
        else:
            findings.append(_target(word, setting))
    return joined(findings)


def _target(word: Word, setting: Setting) -> Finding:
    """A test file, a folder or a node id."""
    value = word.value
    if value is None or value.startswith("@") or (word.is_pattern and value[0] in "*?["):
        return other("which tests it runs cannot be told from its text")
    file = value.partition("::")[0]
    return reads(Word(text=word.text, value=file, is_pattern=word.is_pattern), setting)


def judge_python(words: Sequence[Word], setting: Setting) -> Finding:
    """python: its version, or one of the modules that run tests; code and scripts can do anything."""
    at = 1
    while at < len(words) and words[at].is_exact and _PYTHON_FLAGS.fullmatch(words[at].value or ""):
        at += 1
    told = [word.value for word in words[at : at + 2]]
    if told[:1] in (["--version"], ["-V"]) and len(words) == at + 1:
        return READ
    if told == ["-m", "pytest"]:
        return judge_pytest(words[at + 1 :], setting)
    if told == ["-m", "unittest"]:
        return _judge_unittest(words[at + 2 :], setting)
    return other("a program of Python's can do anything")


def _judge_unittest(words: Sequence[Word], setting: Setting) -> Finding:
    """unittest with names of modules, tests and files."""
    for word in words:
        value = word.value
        if not word.is_exact or value is None or (value.startswith("-") and not _UNITTEST_FLAGS.fullmatch(value)):
            return other("an option of unittest is not known to be harmless")
    return joined((TESTS, *(reads(of_value(word.value or ""), setting) for word in words if word.text[0] != "-")))


TESTERS: Mapping[str, Judge] = {
    **dict.fromkeys(("pytest", "py.test"), judge_pytest),
    **dict.fromkeys(("python", "python3", *(f"python3.{minor}" for minor in range(8, 20))), judge_python),
}
