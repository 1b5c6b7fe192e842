"""A process that runs a fleet, so that a test can kill it. It prints the ids of everything its server started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from toolfold.config.settings import ServerConfig
from toolfold.definitions import TextPart
from toolfold.upstream.fleet import Fleet


async def main(folder: str, flags: list[str]) -> None:
    config = ServerConfig(command=sys.executable, args=(str(Path(__file__).with_name("awkward.py")), *flags))
    async with Fleet({"a": config}, log_dir=Path(folder)) as fleet:
        (part,) = (await fleet.call("a", "family", {})).parts
        assert isinstance(part, TextPart)
        print(part.text, flush=True)
        # Until the test ends us, or closes our stdin.
        closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), closed.set)
        await closed.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
