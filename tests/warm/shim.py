"""The process that a test sees. It gives its streams, words and environment to the nest and ends as the copy ends.

Run without site packages, so that it costs next to nothing: SOCKET PYTHON WORD…
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

nest, python, *words = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(nest)
request = {"words": words, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
copy = int(connection.recv(100))
if copy:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # they are the copy's now: whoever reads from it sees it close them
        os.dup2(nothing, fd)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(copy, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
if not copy:
    os.execv(python, [python, *words])
status = int(connection.recv(100))
if status >= 0:
    os._exit(status)
if -status in PASSED_ON:
    signal.signal(-status, signal.SIG_DFL)
os.kill(os.getpid(), -status)
