"""The filter, run by a small BPF machine of our own for both architectures, and by the kernel elsewhere."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolfold.sandbox.walls.seccomp import compile_filter
from toolfold.sandbox.walls.syscalls import Machine, numbers

MACHINES: tuple[Machine, ...] = ("x86_64", "aarch64")
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
ERRNO = 0x00050000


def answer(machine: Machine, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter says: an interpreter for the few instructions that it uses."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    wanted = ARCHITECTURE[machine] if architecture is None else architecture
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, wanted, 0, *(value & (1 << 64) - 1 for value in padded))
    program = list(struct.iter_unpack("=HBBI", compile_filter(machine)))
    accumulator = position = 0
    for _ in range(len(program)):
        code, if_true, if_false, value = program[position]
        position += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                position += if_true if accumulator == value else if_false
            case 0x35:
                position += if_true if accumulator >= value else if_false
            case 0x25:
                position += if_true if accumulator > value else if_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"an instruction {code:#x} that the filter should not have")
    raise AssertionError("the filter does not end")


def call(machine: Machine, name: str, *arguments: int) -> int:
    return answer(machine, numbers(machine)[name], *arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_ordinary_calls_are_allowed(machine: Machine) -> None:
    for name in (
        "read",
        "write",
        "openat",
        "mmap",
        "futex",
        "execve",
        "exit_group",
        "epoll_pwait",
        "getrandom",
        "clone",
    ):
        assert call(machine, name) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "name", ["ptrace", "mount", "unshare", "bpf", "io_uring_setup", "keyctl", "setns", "memfd_create"]
)
def test_dangerous_calls_are_refused(machine: Machine, name: str) -> None:
    assert call(machine, name) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_nobody_listed_do_not_exist(machine: Machine) -> None:
    assert answer(machine, 999) == ERRNO | errno.ENOSYS
    assert call(machine, "clone3") == ERRNO | errno.ENOSYS
    assert call(machine, "openat2") == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_fatal(machine: Machine) -> None:
    assert answer(machine, 1, architecture=0x40000003) == KILL


@given(number=st.integers(0, 1000))
def test_x32_calls_are_fatal(number: int) -> None:
    assert answer("x86_64", 0x40000000 | number) == KILL


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_get_no_new_namespaces(machine: Machine) -> None:
    assert call(machine, "clone", 0x003D0F00) == ALLOW
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert call(machine, "clone", 1 << bit | 17) == ERRNO | errno.EPERM, bit


@pytest.mark.parametrize("machine", MACHINES)
def test_only_pairs_of_streams_can_be_made(machine: Machine) -> None:
    assert call(machine, "socketpair", 1, 1 | 0o2000000) == ALLOW
    assert call(machine, "socketpair", 1, 2) == ERRNO | errno.EACCES
    assert call(machine, "socketpair", 2, 1) == ERRNO | errno.EACCES
    assert call(machine, "socket", 2, 1) == ERRNO | errno.ENETUNREACH
    assert call(machine, "socket", 10, 2) == ERRNO | errno.ENETUNREACH
    for family in (1, 16, 17, 38, 40):
        assert call(machine, "socket", family, 1) == ERRNO | errno.EACCES


@pytest.mark.parametrize("machine", MACHINES)
@given(level=st.integers(0, 300), option=st.integers(0, 100))
def test_only_plain_socket_options_exist(machine: Machine, level: int, option: int) -> None:
    settings = {2, 9, 13, 20, 21, 66, 67} if level == 1 else set[int]()
    facts = settings | {3, 4, 7, 8, 30, 38, 39} if level == 1 else set[int]()
    refused = ERRNO | errno.EPERM
    assert call(machine, "setsockopt", 3, level, option) == (ALLOW if option in settings else refused)
    assert call(machine, "getsockopt", 3, level, option) == (ALLOW if option in facts else refused)


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_sent_out_of_band(machine: Machine) -> None:
    for flags in (0, 0x40, 0x4000, 0x4040):
        assert call(machine, "sendto", 3, 0, 1, flags) == call(machine, "recvfrom", 3, 0, 1, flags & 0x40) == ALLOW
    for flags in (0x1, 0x41, 0x2000, 0x4000000, 0x20000000):
        assert call(machine, "sendto", 3, 0, 1, flags) == ERRNO | errno.EOPNOTSUPP
        assert call(machine, "recvfrom", 3, 0, 1, flags) == ERRNO | errno.EOPNOTSUPP


@pytest.mark.parametrize("machine", MACHINES)
@given(command=st.one_of(st.integers(0, 50), st.integers(1020, 1050)))
def test_files_have_locks_but_neither_leases_nor_watchers(machine: Machine, command: int) -> None:
    allowed = {*range(8), 36, 37, 38, 1030, 1032}
    assert call(machine, "fcntl", 3, command) == (ALLOW if command in allowed else ERRNO | errno.EINVAL)


@pytest.mark.parametrize("machine", MACHINES)
def test_huge_pages_and_pipes_of_the_kernel_are_out_of_reach(machine: Machine) -> None:
    assert call(machine, "mmap", 0, 4096, 3, 0x22) == ALLOW
    assert call(machine, "mmap", 0, 4096, 3, 0x22 | 0x40000) == ERRNO | errno.ENOMEM
    assert call(machine, "pipe2", 0, 0o2004000) == ALLOW
    assert call(machine, "pipe2", 0, 0o200) == call(machine, "pipe2", 0, 0o40000) == ERRNO | errno.EINVAL


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_in_memory_is_not_decided_inside(machine: Machine) -> None:
    assert call(machine, "fadvise64", 3, 0, 0, 4) == call(machine, "readahead", 3) == ERRNO


@pytest.mark.parametrize("machine", MACHINES)
def test_terminals_cannot_be_typed_into(machine: Machine) -> None:
    for request in (0x5412, 0x541C, 0x5412 | 1 << 32, 0x40049409):
        assert call(machine, "ioctl", 0, request) == ERRNO | errno.ENOTTY
    assert call(machine, "ioctl", 0, 0x5401) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@given(mode=st.integers(0, 0o7777), flags=st.integers(0, (1 << 32) - 1))
def test_no_way_makes_a_set_id_file(machine: Machine, mode: int, flags: int) -> None:
    refused = ERRNO | errno.EPERM if mode & 0o6000 else ALLOW
    creates = flags & (0o100 | 0o20000000)
    assert call(machine, "openat", 3, 0, flags, mode) == (refused if creates else ALLOW)
    assert call(machine, "fchmodat", 3, 0, mode) == refused
    assert call(machine, "fchmod", 3, mode) == refused
    assert call(machine, "mkdirat", 3, 0, mode) == refused


@pytest.mark.parametrize("machine", MACHINES)
def test_nodes_are_files_and_pipes(machine: Machine) -> None:
    for kind, allowed in ((0, True), (0o100000, True), (0o010000, True), (0o020000, False), (0o060000, False)):
        wanted = ALLOW if allowed else ERRNO | errno.EPERM
        assert call(machine, "mknodat", 3, 0, kind | 0o644) == wanted
    assert call(machine, "mknodat", 3, 0, 0o140000) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_limits_of_other_processes_are_out_of_reach(machine: Machine) -> None:
    assert call(machine, "prlimit64", 0, 7) == ALLOW
    assert call(machine, "prlimit64", 1, 7) == ERRNO | errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_the_limit_of_core_files_can_be_read_and_not_changed(machine: Machine) -> None:
    assert call(machine, "prlimit64", 0, 4, 0) == ALLOW
    for pointer in (0x1000, 1 << 32, 0x7FFF_0000_0000, 0x7FFF_0000_1000):
        assert call(machine, "prlimit64", 0, 4, pointer) == ERRNO | errno.EPERM
        assert call(machine, "prlimit64", 0, 7, pointer) == ALLOW
    assert call(machine, "setrlimit", 4) == ERRNO | errno.EPERM
    assert call(machine, "setrlimit", 7) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_the_program_fits_into_the_kernel(machine: Machine) -> None:
    assert len(compile_filter(machine)) // 8 < 4096


@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_may_show_itself_and_never_hide(machine: Machine) -> None:
    dumpable = 4
    assert call(machine, "prctl", dumpable, 1) == ALLOW
    assert call(machine, "prctl", dumpable, 0) == ERRNO | errno.EPERM
    assert call(machine, "prctl", dumpable, 2) == ERRNO | errno.EPERM
