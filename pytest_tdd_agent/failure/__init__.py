"""Why a test failed: from an exception to a failure kind, its origin, the name that was missing, and the places."""

from __future__ import annotations

from .description import FRAMES_CAP, TEXT_CAP, describe, from_text
from .kinds import KINDS, MESSAGE_CAP, classify, message_of
from .missing import KINDS as MISSING_KINDS
from .missing import covers, is_in_project

__all__ = [
    "FRAMES_CAP",
    "KINDS",
    "MESSAGE_CAP",
    "MISSING_KINDS",
    "TEXT_CAP",
    "classify",
    "covers",
    "describe",
    "from_text",
    "is_in_project",
    "message_of",
]
