"""The system's keyring, for the secrets of a sign-in where `token_store = "keyring"`.

A keyring that cannot be used is an error that says what to do: secrets never go to a file instead.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TypeVar

from toolfold.errors import ConfigError

SERVICE = "toolfold"
_TIMEOUT = 30.0
"""Seconds for one request: a keyring may ask the person for its password."""
_QUOTED = 200
_INSTALL = "Run: pip install 'toolfold[keyring]', or set `token_store = \"file\"`."
_UNLOCK = 'Unlock the keyring of this system and try again, or set `token_store = "file"` and sign in again.'

Value = TypeVar("Value")


class KeyringEntry:
    """One record's secrets. Its user name is the path of the record: data folders do not share entries. All methods
    raise ConfigError."""

    def __init__(self, path: Path) -> None:
        self._user = str(path.resolve())

    def read(self) -> str | None:
        keyring = _package()
        return _ask(lambda: keyring.get_password(SERVICE, self._user))

    def write(self, text: str) -> None:
        keyring = _package()
        _ask(lambda: keyring.set_password(SERVICE, self._user, text))
        if self.read() != text:
            # One backend keeps nothing and says nothing.
            raise ConfigError("The keyring did not keep what was written to it.", hint=_UNLOCK)

    def delete(self) -> None:
        """Also where there is none."""
        keyring = _package()
        if self.read() is not None:
            _ask(lambda: keyring.delete_password(SERVICE, self._user))


def _package():
    try:
        import keyring
    except ImportError:
        raise ConfigError("Tokens are to be kept in the keyring, which needs a package.", hint=_INSTALL) from None
    return keyring


def _ask(request: Callable[[], Value]) -> Value:
    """Its result, in limited time: a dialog that nobody answers must not hold up the end of this process."""
    from keyring.errors import KeyringError, NoKeyringError

    answer: Future[Value] = Future()

    def run() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, name="keyring", daemon=True).start()
    try:
        return answer.result(_TIMEOUT)
    except NoKeyringError:
        raise ConfigError("This system has no keyring that can be used.", hint=_UNLOCK) from None
    except TimeoutError:
        raise ConfigError(f"The keyring did not answer within {_TIMEOUT:g} s.", hint=_UNLOCK) from None
    except Exception as error:
        # Others' errors may quote what they were given.
        said = str(error)[:_QUOTED] if isinstance(error, KeyringError) else ""
        what = ": ".join(filter(None, (type(error).__name__, said)))
        raise ConfigError(f"The keyring cannot be used ({what}).", hint=_UNLOCK) from None
