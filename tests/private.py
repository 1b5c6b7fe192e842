"""A session's privacy without a fold around it, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from toolfold.config.privacy import PrivacySettings
from toolfold.privacy.matches import Recogniser
from toolfold.privacy.privacy import Privacy, RunPrivacy
from toolfold.privacy.stream import StreamTokeniser


class Room:
    """One session. Everything comes from, and goes to, the server `crm` unless another one is named."""

    def __init__(self, *own: Recogniser, data_dir: Path = Path("unused"), **settings: Any) -> None:
        self.privacy = Privacy(PrivacySettings(enabled=True, **settings), data_dir, own)
        self.vault = self.privacy.new_vault()
        self.run = RunPrivacy(self.privacy, "ada", None, self.vault)

    def text(self, text: str, server: str = "crm") -> str:
        return self.run.incoming(server, None).data([text])[0]

    def data(self, value: Any, server: str = "crm") -> Any:
        return self.run.incoming(server, None).data(value)

    def shown(self, value: Any) -> Any:
        """As the model sees it."""
        return self.run.tokenise(value)

    def restore(self, value: Any, server: str = "crm") -> Any:
        return self.run.restorer(server).data(value)

    def stream(self) -> StreamTokeniser:
        return self.run.stream()

    def found(self, text: str) -> list[tuple[str, str]]:
        """The values in a text and their kinds, in order."""
        room = Room.__new__(Room)
        room.privacy, room.vault = self.privacy, self.privacy.new_vault()
        room.run = RunPrivacy(self.privacy, "ada", None, room.vault)
        room.text(text)
        entries = room.vault.snapshot(with_values=True).entries
        return [(entry[0], name.rpartition("_")[0].lower()) for name, entry in entries.items()]


def value_texts() -> st.SearchStrategy[str]:
    """E-mail addresses, phones and cards that are surely recognised, whatever stands beside them after a space."""
    names = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12)
    emails = st.tuples(names, names).map(lambda pair: f"{pair[0]}@{pair[1]}.example.com")
    phones = st.integers(0, 9999).map(lambda number: f"+1 415 555 {number:04d}")
    return emails | phones | st.sampled_from(["4111 1111 1111 1111", "DE89370400440532013000", "192.168.7.31"])
