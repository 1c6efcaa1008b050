"""Engines whose answers a test decides."""

from collections.abc import Collection
from dataclasses import dataclass, field

from cdd_agent.symbols.symbol import Reference, Symbol, SymbolServerError, TextEdit


@dataclass
class FakeSymbolServer:
    """Answers the first question with the first of ``answers``, and so on; the last one again and again.

    An exception is raised; places are (path, line, column).
    """

    name: str
    answers: list[list[tuple[str, int, int]] | SymbolServerError]
    noted: list[set[str]] = field(default_factory=list)
    questions: int = 0
    is_closed: bool = False

    def find_references(self, symbol: Symbol) -> tuple[Reference, ...]:
        return tuple(
            Reference(path=path, line=line, column=column, text=symbol.last_name, inside="")
            for path, line, column in self._answer()
        )

    def plan_rename(self, symbol: Symbol, new: str) -> tuple[TextEdit, ...]:
        size = len(symbol.last_name)
        return tuple(
            TextEdit(path=path, line=line, column=column, end_line=line, end_column=column + size, new=new)
            for path, line, column in self._answer()
        )

    def note_changes(self, paths: Collection[str]) -> None:
        self.noted.append(set(paths))

    def close(self) -> None:
        self.is_closed = True

    def _answer(self) -> list[tuple[str, int, int]]:
        answer = self.answers[min(self.questions, len(self.answers) - 1)]
        self.questions += 1
        if isinstance(answer, SymbolServerError):
            raise answer
        return answer
