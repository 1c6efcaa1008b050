"""What watches over one run from a process of its own.

``python -I -S`` starts it for every run, so that it imports little: none of ``typing``, ``signal``, ``re``,
``pathlib``, ``dataclasses``, each of which takes as long as the rest together.
"""
