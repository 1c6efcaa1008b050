"""What every test may use."""

from hypothesis import settings

pytest_plugins = ["pytester"]

settings.register_profile("repeatable", derandomize=True)  # a change is judged by the same examples everywhere
settings.register_profile("searching", max_examples=500)
settings.load_profile("repeatable")
