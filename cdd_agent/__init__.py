"""Turns a ticket into tested commits; the gate of ``pytest --tdd-agent`` decides what is done."""

__version__ = "0.1.0"
