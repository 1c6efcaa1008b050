"""Ten libraries whose source distributions hold their own tests, and what those tests need."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Library:
    """One library, pinned."""

    name: str
    version: str
    needs: tuple[str, ...] = ()
    """Requirements of its tests."""

    @property
    def pin(self) -> str:
        return f"{self.name}=={self.version}"


LIBRARIES = (
    Library("asgiref", "3.13.0", ("pytest-asyncio==1.5.0",)),  # asyncio, threads, xfail
    Library("attrs", "26.1.0", ("hypothesis", "cloudpickle")),  # property tests, classes, xfail
    Library("boltons", "26.2.0"),  # doctests of every module
    Library("cachetools", "8.0.1"),  # unittest with inherited tests and subtests
    Library("click", "8.5.1"),  # parametrized, tests that are deselected by default
    Library("idna", "3.20"),  # unittest, thousands of subtests
    Library("jinja2", "3.1.6", ("trio",)),  # two event loops in parametrized tests
    Library("parso", "0.8.7"),  # node ids with source code in them, doctests
    Library("python-dateutil", "4.0.0", ("freezegun", "hypothesis", "pytest-cov", "attrs")),  # xfail, frozen time
    Library("sqlparse", "0.6.1"),  # xfail, xpass
)
