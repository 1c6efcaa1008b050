"""A prompt over a project, its lines given one by one, the model's turns written down."""

from pathlib import Path

from cdd_agent.errors import ExitCode
from cdd_agent.model.conversation import Model
from cdd_agent.repl.terminal import PromptStatus
from tests.fakes.demo import ProjectCrew, captured, open_session


class ScriptedCrew(ProjectCrew):
    """The agents of a real project, with a model of a test's."""

    def use(self, model: Model) -> None:
        """Let ``model`` answer."""
        vars(self)["model"] = model


class Prompt:
    """One sitting; another one over the same project is another start of the program."""

    def __init__(
        self, project: Path, *, model: Model | None = None, replay: Path | None = None, runs_pytest: bool = False
    ) -> None:
        with captured(width=120) as (screen, self._shown):
            self.crew = ScriptedCrew(project, screen=screen, replay=replay, runs_pytest=runs_pytest)
        if model is not None:
            self.crew.use(model)
        self.session = open_session(self.crew, screen=screen, read=self._no_line)

    def says(self, line: str) -> str:
        """What is printed in answer to ``line``."""
        before = len(self._shown.getvalue())
        self.code: ExitCode = self.session.handle(line)
        return self._shown.getvalue()[before:]

    @property
    def where(self) -> tuple[str, str]:
        """Who listens, on which ticket."""
        place = self.session.prompt_status
        return place.agent, place.ticket

    @property
    def id(self) -> str:
        """The id of the session."""
        assert self.crew.transcript is not None
        return self.crew.transcript.id

    def die(self) -> None:
        """End as if killed: nothing is told to anybody, and the kernel lets go of the files."""
        assert self.crew.transcript is not None
        self.crew.transcript.close()

    @staticmethod
    def _no_line(_: PromptStatus) -> str:
        raise EOFError
