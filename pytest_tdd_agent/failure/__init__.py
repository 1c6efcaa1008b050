"""Why a test failed: from an exception to a failure kind, its origin, the name that was missing, and the places."""

from __future__ import annotations

from .description import FRAMES_CAP, TEXT_CAP, describe, from_text
from .kinds import KINDS, MESSAGE_CAP, classify, message_of
from .missing import covers, is_in_project
from .stage import BEHAVIORAL, STRUCTURAL, is_of_third_party, kind_inside, stage

__all__ = [
    "BEHAVIORAL",
    "FRAMES_CAP",
    "KINDS",
    "MESSAGE_CAP",
    "STRUCTURAL",
    "TEXT_CAP",
    "classify",
    "covers",
    "describe",
    "from_text",
    "is_in_project",
    "is_of_third_party",
    "kind_inside",
    "message_of",
    "stage",
]
