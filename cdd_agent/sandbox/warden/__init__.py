"""The warden: a process that supervises one run.

``python -I -S`` starts it for every run, so it must not import ``typing``, ``signal``, ``re``, ``pathlib`` or
``dataclasses``: each takes as long as all the rest together.
"""
