"""Test frameworks of JavaScript and TypeScript."""

from cdd_agent.testrun.frameworks.javascript.jest import JEST
from cdd_agent.testrun.frameworks.javascript.mocha import MOCHA
from cdd_agent.testrun.frameworks.javascript.node import NODE
from cdd_agent.testrun.frameworks.javascript.vitest import VITEST

__all__ = ["JEST", "MOCHA", "NODE", "VITEST"]
