"""Who looks, and what they may see."""

from __future__ import annotations

from dataclasses import dataclass

from toolfold.errors import InvalidRequest, ToolfoldError


class NotFoundError(InvalidRequest):
    """There is none, or none that the viewer may know of: the two are not told apart."""

    code = "not_found"


class ForbiddenError(ToolfoldError):
    code = "forbidden"


class TooLargeError(ToolfoldError):
    code = "too_large"


@dataclass(frozen=True)
class Viewer:
    """A caller sees its own runs, sessions and skills and the tools that the rules show it; the owner sees those of all
    callers. What a person sees on a page of this machine no model reads, so paths and private values may be in it."""

    caller: str
    owner: bool = False
    person: bool = False

    def only(self, asked: str | None) -> str | None:
        """The caller to show; None is all of them. `asked` is who was asked for, None for everyone whom the viewer may
        see. Raises ForbiddenError for another caller's."""
        if self.owner or asked == self.caller:
            return asked
        if asked is None:
            return self.caller
        raise ForbiddenError("Only the owner of this gateway may see what other callers do.")

    def one(self, asked: str | None) -> str:
        """The same where only one caller can be shown: by default the viewer itself."""
        return self.only(asked) or self.caller
