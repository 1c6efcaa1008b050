""""""

from pathlib import Path

from cdd_agent.sandbox.backends import describe_confinement, drop_missing
from cdd_agent.sandbox.port import Access


def test_what_is_missing_is_not_mounted(tmp_path: Path) -> None:
    there, missing, nowhere = tmp_path / "there", tmp_path / "missing", tmp_path / "nowhere"
    there.mkdir()
    nowhere.symlink_to(missing)
    access = drop_missing(Access(read_write=(there, missing), read_only=(nowhere, there), network=True))
    assert access == Access(read_write=(there,), read_only=(there,), network=True)


def test_the_words_do_not_deny_a_network_that_is_allowed() -> None:
    assert "no network" in describe_confinement(Access())
    assert "no network" not in describe_confinement(Access(network=True))
