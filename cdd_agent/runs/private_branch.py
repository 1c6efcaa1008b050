"""The private branch of a run: its commits wait there, in a work tree of cdd, until they land together.

A run that lands in the user's branch only now and then works on such a branch, as others work on the user's.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from cdd_agent.git.commits import require_base
from cdd_agent.git.repository import CommitId, Repository
from cdd_agent.git.run_tree import RunTree, RunTrees


@dataclass(frozen=True, kw_only=True)
class PrivateBranch:
    """A branch with a work tree in cdd's records."""

    home: Repository
    """The user's work tree."""
    trees: RunTrees
    slug: str
    """The name of the run."""

    @property
    def name(self) -> str:
        """The branch."""
        return f"generate/{self.slug}"

    @property
    def _folder(self) -> str:
        return f"generate-{self.slug}"

    @cached_property
    def _tree(self) -> RunTree:
        return self.trees.tree(self._folder)

    @property
    def repository(self) -> Repository:
        """The work tree of the branch."""
        return self._tree.repository

    def read_tip(self) -> CommitId | None:
        """Return the last commit of the branch; None if the branch does not exist."""
        return self.home.read_ref(f"refs/heads/{self.name}")

    def open(self, named: Collection[str]) -> CommitId:
        """Return the tip from which the run continues.

        If the branch has commits of the run that wait to land (``named`` are those of its state), it stays; else it
        begins anew at the user's HEAD, with the user's commits.
        """
        head, tip = require_base(self.home), self.read_tip()
        waits = tip is not None and any(
            self.home.objects.read(f"{commit}^{{commit}}") is not None
            and not self.home.is_ancestor(commit, of=head)
            and self.home.is_ancestor(commit, of=tip)
            for commit in named
        )
        target = tip if waits and tip is not None else head
        if target != tip or not self._tree.is_on(target) or self.repository.read_branch() != self.name:
            self.move(target)
        return target

    def move(self, target: CommitId) -> None:
        """Make ``target`` the tip, with its files."""
        self._tree.reset(target)
        if not self.trees.is_locked(self._folder):
            self.trees.lock(self._folder, why=f"cdd: the run {self.slug}")
        self.home.git("update-ref", f"refs/heads/{self.name}", target)
        self.repository.git("symbolic-ref", "HEAD", f"refs/heads/{self.name}")
