"""How many examples a property that is expensive to check is tried with."""

from hypothesis import settings


def fewer() -> settings:
    """Return settings with a quarter of the examples in the suite, and as many as ever in the soak."""
    most = settings.default.max_examples if settings.default else 100
    return settings(max_examples=25 if most <= 100 else most)
