"""The small project that the program's own tests take, and the interpreter that was found for it."""

from tests.cdd_agent.conftest import bytecode, finished, finished_once, interpreter, project

__all__ = ["bytecode", "finished", "finished_once", "interpreter", "project"]
