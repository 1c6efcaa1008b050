"""What to do about a failure, by its kind: one line for the model. Pure."""

from collections.abc import Iterable, Mapping

from pytest_tdd_agent.report import Failure

REMEDIES: Mapping[str, str] = {
    "syntax_error": "a file cannot be parsed: write valid syntax at the place that is named",
    "missing_module": "the module does not exist: create it where the import looks for it",
    "import_error": "the module is there without that name: define the name in it",
    "collection_error": "the import of a test file raises: mend what it runs while it is imported",
    "fixture_missing": "the test asks for a fixture that does not exist, which only a test file can define: report it",
    "did_not_raise": "an exception is missing: raise the one that is named for that input",
    "did_not_warn": "a warning is missing: give the one that is named for that input",
    "raises_match_mismatch": "the exception is right and its message is not: word it as the test asks",
    "wrong_exception": "another exception is expected: raise that class, and define it if it is missing",
    "not_implemented": "there is only a stub: implement it",
    "attribute_error": "the attribute or method is missing: add it to the object that is named",
    "name_error": "the name is not defined: define or import it where it is used",
    "signature_mismatch": "the call does not fit: give the function the parameters that the test calls it with",
    "assertion": "the code runs and its result is wrong: mend its logic, from the values that are compared",
    "timeout": "it takes too long: look for a loop without end, or for waiting",
    "crash": "the process died: look for os._exit, a signal or native code, and take it out",
    "resource": "memory, disk or file descriptors ran out: use less, and close what is opened",
    "recursion": "it calls itself without end: give it a case that ends",
    "system_exit": "the code ends the process: raise an exception or return instead",
    "xpass_strict": "the test is marked to fail and passes, which only a test file can mend: report it",
    "pytest_fail": "the test fails itself: do what its message asks for",
    "exception": "an exception that no test expects: mend the cause at the place that is named",
}
"""Kind of a failure, one of ``pytest_tdd_agent.failure.KINDS`` -> what mends it."""


def remedies(failures: Iterable[Failure]) -> tuple[str, ...]:
    """A line for each kind of these failures, those that keep tests from running at all first."""
    kinds = [failure.kind for failure in failures]
    return tuple(f"{kind} ({kinds.count(kind)}): {remedy}" for kind, remedy in REMEDIES.items() if kind in kinds)
