"""This process as one rank of a job."""
import atexit
import ctypes
import os
import sys

from ._library import InputError, c

_session = None
_borrower = None  # who alone makes collective calls, if somebody does
_process = None  # that has called init(): one that it forks is no member
_has_failed = False
_watched = []  # the hook for exceptions before init()


def init(*, stall_timeout=None, start_timeout=None, allreduce="auto", communicator=None,
         quiet=False):
    """Makes this process a rank of its job, which its launcher has described in the environment.

    Args:
        stall_timeout: seconds, by default 120. When other ranks have waited this long for a rank, a
            warning names it if it computes, reads or writes; otherwise the job ends with an error
            that names it. 0: never. ``LOCKSTEP_STALL_TIMEOUT`` in the environment overrides it.
        start_timeout: seconds that this call may wait for other ranks before the process ends; 0:
            no limit. By default 60, or ``stall_timeout`` if that is shorter.
        allreduce: the route between ranks, as for ``lockstep train --allreduce``.
        communicator: the MPI communicator of the ranks that call this: that of mpi4py, or its
            Fortran handle. By default all ranks.
        quiet: print warnings and errors only.

    Raises:
        InputError: this process is a rank already, or an argument is invalid.
        CommunicationError: the ranks do not find each other, or differ.

    Collective.
    """
    global _session, _process
    if _session is not None:
        raise InputError("[lockstep.init] expected one call, or shutdown() before the next, "
                         "got another call")
    options = c.default_session_options()
    options.all_reduce = allreduce.encode()
    options.quiet = quiet
    if stall_timeout is not None:
        options.stall_timeout = stall_timeout
    if start_timeout is not None:
        options.start_timeout = start_timeout
    if communicator is not None:
        options.communicator = (communicator.py2f() if hasattr(communicator, "py2f")
                                else communicator)
    session = ctypes.c_void_p()
    c.init(ctypes.byref(options), ctypes.byref(session))
    _session, _process = session, os.getpid()
    atexit.register(_end)
    watch_exceptions()


def watch_exceptions():
    """An exception that ends the program ends this rank without shutdown(), for which the other
    ranks are not ready.
    """
    earlier = sys.excepthook

    def hook(*exception):
        global _has_failed
        _has_failed = True
        earlier(*exception)

    if not _watched:
        _watched.append(earlier)
        sys.excepthook = hook


def has_failed():
    """Whether an exception ends the program."""
    return _has_failed


def _end():
    if not _has_failed and os.getpid() == _process:
        shutdown()


def shutdown():
    """Leaves the job; without init(), does nothing. Called at the end of the program if it is not
    called before. Collective.
    """
    global _session
    if _session is not None:
        session, _session = _session, None
        atexit.unregister(_end)
        c.finalize(session)


def _own():
    if _session is None:
        raise InputError("[lockstep] expected lockstep.init() first, got no call of it")
    return _session


def session():
    """The session of the C interface, for a collective call.

    Raises:
        InputError: init() has not been called, or lockstep.torch.init() was.
    """
    if _borrower is not None:
        raise InputError("[lockstep] expected functions of lockstep.torch after its init(), got a "
                         "collective call of lockstep")
    return _own()


def lend(borrower):
    """Makes `borrower` the only one to make collective calls; None: everybody again. Returns the
    session.
    """
    global _borrower
    _borrower = borrower
    return _own()


def is_initialized():
    """Whether init() has been called."""
    return _session is not None


def rank():
    """The number of this process: 0 to ``size() - 1``."""
    return c.rank(_own())


def size():
    """The number of processes of the job."""
    return c.world_size(_own())


def local_rank():
    """The number of this process among those of its node."""
    return c.local_rank(_own())


def local_size():
    """The number of processes on this node."""
    return c.local_size(_own())


def node():
    """The number of this process's node."""
    return c.node(_own())


def still_at_work():
    """Reports that this rank is still working, so that it is not taken for a lost one. Call it in
    work that takes longer than the stall timeout while other ranks wait.
    """
    c.still_at_work(_own())


def barrier():
    """Returns once every rank has called it. Collective.

    Raises:
        CommunicationError: a rank was lost, or called something else.
    """
    c.barrier(session())


def any(flag):
    """Whether ``flag`` is true on any rank, for example to stop or save together. Collective.

    Raises:
        CommunicationError: a rank was lost, or called something else.
    """
    result = ctypes.c_int()
    c.any(session(), bool(flag), ctypes.byref(result))
    return result.value != 0


def version():
    """The version, such as "0.1.0"."""
    return c.version().decode()
