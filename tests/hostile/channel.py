"""Programs that speak on the channel to the host themselves.

`raw(bytes)` writes to the channel's socket, around the guest's own code; `frame(object)` makes one frame. That this
reaches the host at all is shown by `test_raw_bytes_reach_the_host`.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

_PRELUDE = """
import json, os, socket, struct, sys, threading, time
from toolfold_guest.channel import channel
_sock = channel()._sock
def raw(data):
    _sock.sendall(data)
def pack(body):
    return struct.pack(">I", len(body)) + body
def frame(value):
    return pack(json.dumps(value).encode())
CALL = {"t": "call", "id": 1, "server": "s", "tool": "t", "arguments": {}}
"""


@dataclass(frozen=True)
class Speech:
    """`ends` is in the error that the run must end with; empty when the run must go on and answer "still here"."""

    name: str
    tries: str
    code: str
    ends: str = "protocol"
    timeout: float = 10.0
    slow_replies: bool = False

    @property
    def program(self) -> str:
        rest = "time.sleep(30)" if self.ends else "'still here'"
        return f"{_PRELUDE}\n{textwrap.dedent(self.code)}\n{rest}\n"


CHANNEL = [
    Speech("garbage", "sends bytes that are no frame", "raw(b'\\xff' * 64)"),
    Speech("not_json", "sends a frame that is not JSON", "raw(pack(b'hello'))"),
    Speech("not_utf8", "sends a frame that is not UTF-8", r"""raw(pack(b'{"t":"progress","text":"\xff\xfe"}'))"""),
    Speech("half_character", "sends half of a character pair", r"""raw(pack(b'{"t":"progress","text":"\\ud800"}'))"""),
    Speech("not_a_number", "sends NaN", """raw(pack(b'{"t":"progress","text":"x","fraction":NaN}'))"""),
    Speech("infinite", "sends a number without end", """raw(pack(b'{"t":"progress","text":"x","fraction":1e999}'))"""),
    Speech("empty", "sends an empty frame", "raw(pack(b''))"),
    Speech("null", "sends null", "raw(pack(b'null'))"),
    Speech("unknown_kind", "sends a message that does not exist", "raw(frame({'t': 'shutdown'}))"),
    Speech("unknown_field", "adds a field to a message", "raw(frame({**CALL, 'approved': True}))"),
    Speech("wrong_type", "sends a text where a number belongs", "raw(frame({**CALL, 'id': '1'}))"),
    Speech("boolean_id", "sends true where a number belongs", "raw(frame({**CALL, 'id': True}))"),
    Speech("deep", "nests 100,000 arrays", "raw(pack(b'[' * 100_000 + b']' * 100_000))"),
    Speech(
        "deep_arguments",
        "nests 100,000 objects in a call's arguments",
        """raw(pack(json.dumps(CALL).encode()[:-2] + b'"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_002))""",
    ),
    Speech("oversized", "announces a frame of four gigabytes", "raw(struct.pack('>I', 0xFFFFFFFF) + b'x' * 1000)"),
    Speech(
        "expanding",
        "sends a frame that grows to many times its size when it is read",
        """raw(pack(json.dumps(CALL).encode()[:-2] + b'"x":[' + b'[],' * 4_000_000 + b'1]}}'))""",
    ),
    Speech("endless_frame", "begins a frame and never ends it", "raw(struct.pack('>I', 1000) + b'x')", "timeout", 1.0),
    Speech(
        "slow_loris",
        "sends one byte of a frame at a time",
        """
        for byte in frame(CALL)[:-1]:
            raw(bytes([byte]))
            time.sleep(0.05)
        """,
        "timeout",
        1.0,
    ),
    Speech("duplicate_keys", "names a field twice", """raw(pack(b'{"t":"ready","t":"done"}'))"""),
    Speech("same_id", "opens two requests under one number", "raw(frame(CALL) * 2)", slow_replies=True),
    Speech("reply_to_host", "sends a reply that nobody asked for", "raw(frame({'id': 1, 'ok': {'parts': []}}))"),
    Speech("ready_again", "says that it is ready once more", "raw(frame({'t': 'ready'}))"),
    Speech(
        "two_endings",
        "ends its run twice",
        "raw(frame({'t': 'done', 'error': '', 'names': []}) * 2)",
    ),
    Speech(
        "ending_and_more",
        "ends its run and goes on asking in the same breath",
        "raw(frame({'t': 'done', 'error': '', 'names': []}) + frame(CALL))",
    ),
    Speech(
        "ending_and_a_half",
        "ends its run and begins a frame for the next one",
        "raw(frame({'t': 'done', 'error': '', 'names': []}) + b'\\0\\0')",
    ),
    Speech("many_names", "ends with endless names", "raw(frame({'t': 'done', 'error': '', 'names': ['x'] * 10_000}))"),
    Speech(
        "never_reads",
        "asks for large answers and never reads them",
        """
        for number in range(1, 1_000_000):
            raw(frame({**CALL, "id": number, "tool": "large"}))
        """,
        "timeout",
        3.0,
    ),
    Speech(
        "large_requests",
        "opens many large requests at once",
        """
        body = "x" * 4_000_000
        for number in range(1, 10_000):
            raw(frame({**CALL, "id": number, "arguments": {"x": body}}))
        """,
        "timeout",
        3.0,
        slow_replies=True,
    ),
    Speech("close", "closes the channel", "_sock.close(); os.close(0)", "ended its interpreter", timeout=5.0),
    Speech(
        "only_one_way",
        "closes one direction of the channel",
        "_sock.shutdown(socket.SHUT_WR)",
        "ended its interpreter",
        timeout=5.0,
    ),
    Speech(
        "child_keeps_it",
        "gives the channel to a child, and ends itself",
        """
        if os.fork() == 0:
            time.sleep(30)
        os._exit(7)
        """,
        "exit code 7",
    ),
    Speech(
        "child_speaks",
        "lets a child speak on the channel",
        """
        if os.fork() == 0:
            raw(b"\\xff" * 64)
            os._exit(0)
        """,
    ),
    Speech(
        "print_on_channel",
        "prints on the channel's descriptor",
        "os.write(_sock.fileno(), b'hello, world\\n')",
    ),
    Speech(
        "descriptor_along",
        "sends an open file along with a frame",
        """
        try:
            socket.send_fds(_sock, [frame({"t": "progress", "text": "x"})], [os.open("workspace", os.O_RDONLY)])
        except OSError:
            pass
        """,
        "",
    ),
    Speech(
        "unknown_tool",
        "calls a tool that is not in the catalog",
        """
        raw(frame({**CALL, "server": "root", "tool": "shell"}))
        assert b"error" in _sock.recv(10_000)
        """,
        "",
    ),
    Speech(
        "huge_id",
        "uses numbers that no counter reaches",
        """
        raw(frame({**CALL, "id": -1}) + frame({**CALL, "id": 10**30}))
        replies = b""
        while not (b"-1" in replies and str(10**30).encode() in replies):
            replies += _sock.recv(10_000)
        """,
        "",
    ),
]

FLOOD = Speech(
    "flood",
    "sends messages as fast as it can",
    """
    block = frame({"t": "progress", "text": "x"}) * 2000
    while True:
        raw(block)
    """,
    "sandbox.messages",
)
