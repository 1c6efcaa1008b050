"""Tests that are run by what a language has of its own, or by a target that somebody wrote."""

from cdd_agent.testrun.frameworks.plain.make import MAKE
from cdd_agent.testrun.frameworks.plain.unittests import UNITTEST

__all__ = ["MAKE", "UNITTEST"]
