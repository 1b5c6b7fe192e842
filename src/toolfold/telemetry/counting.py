"""Exact counts of texts in a process of their own, which ends when it has counted.

A vocabulary takes 60 MB and a fifth of a second to load: a gateway that counts now and then keeps neither. Run as a
module, this is that process: a JSON list of texts on its standard input, a list of numbers on its standard output.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

from toolfold.errors import ConfigError
from toolfold.telemetry.tokens import count, load_tokenizer

Tokenizer = Callable[[str], int]
"""How many tokens a text is."""
_TIMEOUT = 60.0
_NICENESS = 10


class CountingProcess:
    """Counts one list of texts after the other; from any thread."""

    def __init__(self, tokenizer: str = "") -> None:
        """`tokenizer` is `package.module:function`; o200k without one."""
        self._tokenizer = tokenizer
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._turn = threading.Lock()
        """Held by the one that counts."""
        self._lock = threading.Lock()

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text; raises OSError or ValueError where they cannot be counted."""
        with self._turn:
            return self._count(texts)

    def _count(self, texts: Sequence[str]) -> list[int]:
        # `-P`: the folder that the gateway was started in may be anybody's project.
        command = [sys.executable, "-P", "-m", __name__, self._tokenizer]
        with self._lock:
            if self._stopped:
                raise OSError("the ledger is closed")
            pipe = subprocess.PIPE
            self._process = process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            written, said = process.communicate(msgspec.json.encode(list(texts)), timeout=_TIMEOUT)
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.communicate()
            raise OSError(f"not counted within {_TIMEOUT:g} s") from late
        if process.returncode:
            raise ValueError(said.decode(errors="replace").strip().rpartition("\n")[2] or "the count was ended")
        counts = msgspec.json.decode(written, type=list[int])
        if len(counts) != len(texts) or min(counts, default=0) < 0:
            raise ValueError("the tokenizer has not counted all texts")
        return counts

    def close(self) -> None:
        """End what is under way; nothing is counted after this."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.returncode is None:
                self._process.kill()


def can_count(tokenizer: str = "") -> bool:
    """Whether exact counts are possible here, without loading anything."""
    from importlib.util import find_spec

    return bool(tokenizer) or find_spec("rs_bpe") is not None


def main() -> None:
    os.nice(_NICENESS)
    texts = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
    try:
        count_one = load_tokenizer(sys.argv[1]) if sys.argv[1] else count
        counts = [int(count_one(text)) for text in texts]
    except ConfigError as error:
        sys.exit(error.message)
    sys.stdout.buffer.write(msgspec.json.encode(counts))


if __name__ == "__main__":
    main()
