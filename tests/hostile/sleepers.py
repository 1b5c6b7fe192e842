"""Programs that leave something behind which works, or wakes itself, while their session sleeps."""

from __future__ import annotations

# Each leaves something that writes to `workspace/count` for as long as it works.
LEAVES = {
    "a thread": "start(beat)",
    "a process": "fork(beat)",
    "a process in a session of its own": "fork(lambda: (os.setsid(), fork(beat)))",
    "many processes": "for _ in range(20): fork(beat)",
    "processes that start each other": "fork(relay)",
    "a timer that continues the process": "timer(signal.SIGCONT); start(beat)",
    "a timer that continues another thread": "start(lambda: (timer(signal.SIGCONT), beat()))",
    "an interval timer with a handler": """
signal.signal(signal.SIGALRM, lambda *_: once())
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
""",
    "a process that continues the others": "pid = os.getpid(); fork(lambda: waker(pid)); start(beat)",
    "a parent that waits for its child in the kernel": "start(vfork); start(beat)",
    "a program that says it has ended": """
from toolfold_guest.channel import channel
channel().send({"t": "done", "error": "", "names": [], "shown": "", "value": None}, last=True)
beat()
""",
    "a loop that waits for descriptors": """
import asyncio
def loop():
    async def main():
        while True:
            once()
            await asyncio.sleep(0.005)
    asyncio.run(main())
start(loop)
""",
}
PRELUDE = """
import ctypes, os, signal, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
signal.signal(signal.SIGCONT, lambda *_: None)  # what has no handler, newer kernels send only once
def once():
    number = os.open("workspace/count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(number, b"x")
    os.close(number)
def beat():
    while True:
        once()
        time.sleep(0.002)
def start(work):
    threading.Thread(target=work, daemon=True).start()
def fork(work):
    if os.fork() == 0:
        try:
            work()
        finally:
            os._exit(0)
def relay():
    while True:
        once()
        if os.fork() != 0:
            os._exit(0)
def timer(number):
    event = ctypes.create_string_buffer(struct.pack("Qii", 0, number, 0) + bytes(64))
    made = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(made)) == 0
    assert libc.timer_settime(made, 0, struct.pack("4q", 0, 20_000_000, 0, 20_000_000), None) == 0
def waker(pid):
    while True:
        for number in (pid, -1):
            try:
                os.kill(number, signal.SIGCONT)
            except OSError:
                pass
        time.sleep(0.002)
def vfork():
    clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    if libc.syscall(clone, 0x4000 | signal.SIGCHLD, None, None, None, None) == 0:
        time.sleep(60)
        os._exit(0)
"""
