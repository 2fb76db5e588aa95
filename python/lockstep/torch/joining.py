"""How the ranks of a process group find each other: one listens, and says where."""
import ctypes
import json
import secrets
import socket

from .._library import InputError, c

USUAL_STALL_TIMEOUT = 120.0


def host_of(store):
    """Where a store of torch is; None for a file."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", None)


def own_address(host):
    """The address of this host for the others: that from which it reaches another."""
    if host is None:
        return socket.gethostname()
    try:
        with socket.socket(socket.getaddrinfo(host, 1)[0][0], socket.SOCK_DGRAM) as probe:
            probe.connect((host, 1))
            own = probe.getsockname()[0]
    except OSError:
        return host
    return host if own.startswith("127.") or own == "::1" else own


class Place:
    """Where a rank listens, for as long as this object exists, and a secret: what the other ranks
    need to join it. `host` is one that they all reach.
    """

    def __init__(self, host):
        self._listener = (
            socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
            if socket.has_dualstack_ipv6() else socket.create_server(("", 0)))
        host, port = own_address(host), self._listener.getsockname()[1]
        self.text = json.dumps({"address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                                "secret": secrets.token_hex(32)})

    def listener(self):
        """A file descriptor of its own, for join()."""
        return self._listener.dup().detach()


def join(text, rank, size, timeout, place=None, generation="", stall_timeout=None):
    """A session of the ranks that join the same place, whose text they have, and name the same
    generation. Rank 0 gives the place.
    """
    options = c.default_session_options()
    options.quiet = 1
    options.start_timeout = timeout
    options.stall_timeout = (min(timeout, USUAL_STALL_TIMEOUT) if stall_timeout is None
                             else stall_timeout)
    options.world_size, options.rank = size, rank
    try:
        told = json.loads(text)
        address, secret = told["address"].encode(), told["secret"].encode()
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError("[lockstep] expected an address and a secret, which "
                         "get_reconfigure_handle() returns, got another text") from None
    options.address, options.secret = address, secret + generation.encode()
    if place is not None and size > 1:
        options.listener = place.listener()
    session = ctypes.c_void_p()
    c.init(ctypes.byref(options), ctypes.byref(session))
    return session
