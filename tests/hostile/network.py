"""Programs that reach for a network, or for the host's sockets."""

from __future__ import annotations

from tests.hostile.attempt import Attempt

NETWORK = [
    Attempt(
        "tcp",
        "connects to a port of the host",
        """
        def attempt():
            with socket.create_connection(("127.0.0.1", BAITS["port"]), 2) as peer:
                peer.sendall(b"here")
            return True
        """,
        extra={"untouched": "tcp"},
    ),
    Attempt(
        "tcp6",
        "connects to a port of the host over IPv6",
        """
        def attempt():
            with socket.create_connection(("::1", BAITS["port6"]), 2) as peer:
                peer.sendall(b"here")
            return True
        """,
        needs="no IPv6",
        extra={"untouched": "tcp6"},
    ),
    Attempt(
        "listen",
        "opens a port and listens",
        """
        def attempt():
            with socket.socket() as server:
                server.bind(("0.0.0.0", 0))
                server.listen()
                return server.getsockname()[1] > 0
        """,
    ),
    Attempt(
        "udp",
        "sends a datagram to the host",
        """
        def attempt():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                return sender.sendto(b"here", ("127.0.0.1", BAITS["udp"])) == 4
        """,
        extra={"untouched": "udp"},
    ),
    Attempt(
        "raw",
        "opens a raw socket",
        """
        def attempt():
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
            return True
        """,
        needs_root=True,
    ),
    Attempt(
        "netlink",
        "asks the kernel for its network interfaces",
        """
        def attempt():
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as talk:
                talk.bind((0, 0))
            return True
        """,
    ),
    Attempt(
        "packet",
        "opens a socket that sees every packet",
        """
        def attempt():
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
            return True
        """,
        needs_root=True,
    ),
    Attempt(
        "vsock",
        "talks to the machine under this virtual machine",
        """
        def attempt():
            try:
                socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    return "no vsock"
                raise
            return True
        """,
        needs="no vsock",
    ),
    Attempt(
        "kernel_crypto",
        "opens the kernel's cryptography, a frequent way into the kernel",
        """
        def attempt():
            try:
                socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET).close()
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT:
                    return "no AF_ALG"
                raise
            return True
        """,
        needs="no AF_ALG",
    ),
    Attempt(
        "abstract_socket",
        "connects to a socket of the host by its abstract name",
        """
        def attempt():
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect("\\0" + BAITS["abstract"])
            return True
        """,
        extra={"untouched": "abstract"},
    ),
    Attempt(
        "path_socket",
        "connects to a socket of the host by its path",
        """
        def attempt():
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(BAITS["unix"])
            return True
        """,
        extra={"untouched": "unix"},
    ),
    Attempt(
        "socket_in_workspace",
        "connects to a socket that a program of the host left in the workspace",
        """
        def attempt():
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect("workspace/host.sock" if HERE == "workspace" else BAITS["unix"])
            return True
        """,
        extra={"socket_in_workspace": True},
    ),
    Attempt(
        "leave_a_socket",
        "leaves a socket in its folder for programs of the host to connect to",
        """
        def attempt():
            for way in (
                lambda: socket.socket(socket.AF_UNIX).bind(HERE + "/trap"),
                lambda: os.mknod(HERE + "/trap2", stat.S_IFSOCK | 0o666),
            ):
                try:
                    way()
                except OSError:
                    pass
            return any(stat.S_ISSOCK(entry.stat().st_mode) for entry in os.scandir(HERE))
        """,
    ),
    Attempt(
        "datagram_pair",
        "makes a pair of datagram sockets, and sends from one of them to the host",
        """
        def attempt():
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            return one.sendto(b"here", "\\0" + BAITS["abstract_datagram"]) == 4
        """,
        extra={"untouched": "abstract_datagram"},
    ),
    Attempt(
        "descriptor_to_host",
        "sends an open file along with bytes on a socket",
        """
        def attempt():
            one, other = socket.socketpair()
            socket.send_fds(one, [b"x"], [os.open(HERE, os.O_RDONLY)])
            return len(socket.recv_fds(other, 1, 1)[1]) == 1
        """,
    ),
    Attempt(
        "name_lookup",
        "leaks data through a name lookup",
        """
        def attempt():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.connect(("127.0.0.53", 53))
            return True
        """,
    ),
]
