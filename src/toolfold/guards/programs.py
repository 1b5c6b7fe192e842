"""What is done about a program's risk before it runs (`review` in the settings)."""

from __future__ import annotations

from collections.abc import Callable

from toolfold.config.policy import ReviewSettings
from toolfold.guards.approval import SAID_NO, put
from toolfold.guards.context import RunContext
from toolfold.guards.events import Question, RunError
from toolfold.review.risk import Risk


class Programs:
    """Notes, asks or refuses, by the level of the risk. `recorded` says whether a note would be kept anywhere."""

    def __init__(self, settings: ReviewSettings, *, recorded: bool, timeout: float) -> None:
        """A person has `timeout` seconds to answer."""
        self._settings = settings
        self._timeout = timeout
        reactions = {settings.low, settings.medium, settings.high}
        self.reads = recorded or reactions != {"note"} or settings.imports is not None
        """Whether a program's risk makes a difference to anything here."""

    async def refusal(self, run: RunContext, assess: Callable[[], Risk]) -> RunError | None:
        """Why a program is not run; None when it may be. What was found is noted for the record of the run."""
        if not self.reads:
            return None
        risk = assess()
        run.notes.review = f"{run.notes.review}, {risk}"
        allowed = self._settings.imports
        unknown = [] if allowed is None else [name for name in risk.imports if name not in allowed]
        if unknown:
            message = f"Imports are limited here, and {', '.join(unknown)} is not allowed."
            hint = f"Allowed are {', '.join(allowed or ()) or 'none'}, and servers, skills and toolfold."
            return _refused("imports", message, hint)
        reaction = self._settings.model_dump()[risk.level]
        if reaction == "refuse":
            return _refused("risk", f"Programs of {risk.level} risk are not run here: {_reasons(risk)}.", _hint(risk))
        if reaction == "ask":
            if run.asker is None:
                message = f"Programs of {risk.level} risk need a person's approval, and there is nobody to ask"
                return _refused("risk", f"{message}: {_reasons(risk)}.", _hint(risk))
            question = Question(f"Run a program of {risk.level} risk? {_reasons(risk)}.")
            replied = await put(run, question, self._timeout, "decide about the program")
            if replied.reply == "no":
                if replied.by == SAID_NO:
                    return _refused("approval_denied", "A person refused to run this program.")
                return _refused("approval_denied", f"This program was not allowed: {replied.by}.")
        return None


def _refused(code: str, message: str, hint: str = "") -> RunError:
    text = " ".join(filter(None, ["Nothing was run.", message, hint]))
    return RunError(code=code, message=message, hint=hint, text=text)


def _reasons(risk: Risk) -> str:
    return "; ".join(map(str, risk.reasons)) or "nothing in particular"


def _hint(risk: Risk) -> str:
    return f"The setting is `review.{risk.level}`."
