"""The symbols that Markdown is drawn with, and whether code has colors."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """What a terminal can show."""

    bullets: str
    """One for each level of nesting, and round again."""
    bar: str
    """Left of a quotation."""
    rule: str
    column: str
    """Between two columns of a table."""
    cross: str
    """Where ``rule`` and ``column`` meet."""
    done: str
    """A box that is ticked."""
    todo: str
    cut: str
    """In place of what a row has no room for."""
    color: bool = True

    @property
    def symbols(self) -> str:
        """All characters that are printed besides the text's own."""
        return self.bullets + self.bar + self.rule + self.column + self.cross + self.done + self.todo + self.cut


UNICODE = Look(bullets="•◦▪", bar="│", rule="─", column="│", cross="┼", done="☑", todo="☐", cut="…")
ASCII = Look(bullets="-*", bar="|", rule="-", column="|", cross="+", done="[x]", todo="[ ]", cut="~")
