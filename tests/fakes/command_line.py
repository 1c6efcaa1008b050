"""Runs git in a repository of cdd with the words of a command line."""

from collections.abc import Mapping

from cdd_agent.git.repository import Repository


def run_words(repository: Repository, *words: str, variables: Mapping[str, str] | None = None) -> str:
    """Run ``git WORDS``, where each word that begins with ``-`` is an option, as for a shell."""
    verb, *rest = words
    return repository.git(verb, *((word,) if word.startswith("-") else word for word in rest), variables=variables)
