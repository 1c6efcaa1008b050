"""The folders to work in that the sandbox's own tests take."""

from tests.cdd_agent.sandbox.conftest import confined, ground

__all__ = ["confined", "ground"]
