"""The command that the conformance suite starts for each scenario: relays it to `client.py`, and waits for its end."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as line:
    line.connect(sys.argv[1])
    asked = {
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
        "url": sys.argv[2],
    }
    line.sendall(json.dumps(asked).encode() + b"\n")
    error = b"".join(iter(lambda: line.recv(65_536), b""))
sys.exit(error.decode() or 0)
