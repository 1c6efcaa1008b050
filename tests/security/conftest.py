"""The small project that the program's own tests take, and the interpreter that was found for it."""

from tests.cdd_agent.conftest import bytecode, interpreter, project

__all__ = ["bytecode", "interpreter", "project"]
