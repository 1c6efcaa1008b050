"""Reasons of a gate."""

from pytest_tdd_agent.report import Reason


def make_reason(sentence: str) -> Reason:
    """Return a reason that is shown as ``sentence``, which is ``code: text``."""
    code, _, text = sentence.partition(": ")
    return Reason(code=code, nodeid=None, case="text", parts={"text": text})
