"""The small real project of the cycle's tests."""

from tests.cdd_agent.tdd.conftest import bytecode, interpreter, project

__all__ = ["bytecode", "interpreter", "project"]
