"""Signs that something in the process bends what tests come to: hooks of the project, patched functions, other bodies.

Code under test shares the process with pytest, so a sign is evidence, never proof, and what matters is which signs a
run has that its baseline has not. So a sign says the same in every run of the same code, and does not name the test
where the project does the same to all of them.
"""

from __future__ import annotations

from .auditor import SIGNS, SIGNS_CAP, Auditor, register

__all__ = ["SIGNS", "SIGNS_CAP", "Auditor", "register"]
