"""The job that lockstep.torch.init() makes this process a rank of, and sets of its ranks."""
import atexit
import ctypes
import datetime
import os
import sys

import torch
import torch.distributed as dist

import lockstep

from .. import _session
from .._library import InputError, c
from .backend import LockstepBackend
from .calls import FUSED_BYTES, Group
from .joining import USUAL_STALL_TIMEOUT, Place, join, own_address
from .negotiation import Call, Negotiation
from .timeline import Timeline
from .variables import name_ignored_variables, number_of

__all__ = ["HostsUpdatedInterrupt", "ProcessSet", "add_process_set", "cross_rank", "cross_size",
           "global_process_set", "init", "is_homogeneous", "is_initialized", "local_rank",
           "local_size", "rank", "remove_process_set", "shutdown", "size", "start_timeline",
           "still_at_work", "stop_timeline"]

_PLACE_BYTES = 4096


class HostsUpdatedInterrupt(RuntimeError):
    """Hosts have come or gone. With the name that Horovod gives it."""


class ProcessSet:
    """Some ranks of the job, which make calls of their own.

    Args:
        ranks_or_comm: numbers of ranks in the job; or a communicator of mpi4py, whose ranks they
            are, which only init() knows.
    """

    def __init__(self, ranks_or_comm):
        self.process_set_id = None
        self.ranks = self.mpi_comm = None
        self._group = self._calls = None
        if hasattr(ranks_or_comm, "py2f"):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = sorted(set(ranks_or_comm))

    def size(self):
        """The number of its ranks; None before it is added."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """The number of this rank in it; None before it is added."""
        if self.process_set_id is None:
            return None
        if not self.included():
            raise InputError(f"[{self}] expected one of its ranks, got rank {rank()}")
        return self.ranks.index(rank())

    def included(self):
        """Whether this rank is in it; None before it is added."""
        return None if self.process_set_id is None else rank() in self.ranks

    def __reduce__(self):
        # A model that has it is copied, not its connections.
        return (_set_of, (self.ranks if self.process_set_id != 0 else None,))

    def __deepcopy__(self, _memory):
        return self

    def __str__(self):
        return (f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
                f"mpi_comm={self.mpi_comm})")

    def become(self, other):
        """Another object for the same ranks."""
        self.process_set_id = other.process_set_id
        self._group, self._calls = other._group, other._calls

    def _use(self, function):
        """Its group and its calls."""
        if _job is None:
            raise InputError(f"[{function}] expected init() first, got no call of it")
        if self._calls is None:
            raise InputError(f"[{function}] expected a process set that was added, with rank "
                             f"{rank()}, got {self}")
        return self._group, self._calls


def _set_of(ranks):
    return global_process_set if ranks is None else ProcessSet(ranks)


global_process_set = ProcessSet([])
_job = None


class _Job:
    """What there is once in a job."""

    def __init__(self, communicator):
        start = number_of("GLOO_TIMEOUT_SECONDS", 0)
        self._stall = number_of("STALL_CHECK_TIME_SECONDS", 60)
        self._end = number_of("STALL_SHUTDOWN_TIME_SECONDS", 0)
        self._stall_timeout = self._end or USUAL_STALL_TIMEOUT
        if number_of("STALL_CHECK_DISABLE", 0):
            self._stall = self._end = self._stall_timeout = 0
        lockstep.init(communicator=communicator, start_timeout=start or None, quiet=True,
                      stall_timeout=self._stall_timeout)
        try:
            self._begin(start or 60.0)
        except BaseException:
            _session.lend(None)
            lockstep.shutdown()
            raise

    def _begin(self, timeout):
        session = _session.lend(self)
        self.rank, self.size = lockstep.rank(), lockstep.size()
        mine = (ctypes.c_int * 3)(lockstep.node(), lockstep.local_rank(), lockstep.local_size())
        places = (ctypes.c_int * (3 * self.size))()
        c.all_gather(session, mine, ctypes.sizeof(mine), places)
        places = [tuple(places[3 * rank:3 * rank + 3]) for rank in range(self.size)]
        peers = [node for node, local_rank, _ in places if local_rank == mine[1]]
        self.cross_rank, self.cross_size = peers.index(mine[0]), len(peers)
        self.is_homogeneous = len({local_size for _, _, local_size in places}) == 1
        self.has_one_node = len({node for node, _, _ in places}) == 1
        self.timeline = Timeline(self.rank, self.size)
        self._timeout = timeout
        self.sets, self._next = {0: global_process_set}, 1
        self._optimizers = {}  # how many have the same names of parameters
        global_process_set.process_set_id = 0
        global_process_set.ranks = list(range(self.size))
        self._open(global_process_set, session, self.rank, self.size)
        if self.rank == 0:
            name_ignored_variables()
            path = os.environ.get("HOROVOD_TIMELINE", "DYNAMIC")
            if path != "DYNAMIC":
                try:
                    self.timeline.start(path, number_of("TIMELINE_MARK_CYCLES", 0) != 0)
                except OSError as error:
                    print(f"lockstep: warning: [HOROVOD_TIMELINE] expected a file, got {error}",
                          file=sys.stderr, flush=True)

    def _open(self, process_set, session, rank, size):
        backend = LockstepBackend(None, rank, size, datetime.timedelta(seconds=self._timeout),
                                  session=session)
        process_set._group = Group(backend, session, self._gpu_backend(process_set),
                                   int(number_of("FUSION_THRESHOLD", FUSED_BYTES)))
        process_set._calls = Negotiation(
            session, rank, process_set.ranks, process_set._group.make, process_set._group.stand_in,
            self._stall, self._end, self.timeline.observe)

    def _gpu_backend(self, process_set):
        """NCCL of PyTorch, which is made at the first call with tensors on a GPU."""
        def make():
            if not dist.is_nccl_available():
                raise InputError("[lockstep.torch] expected a PyTorch with NCCL for tensors on a "
                                 f"GPU, got {torch.__version__}")
            text = b""
            if process_set.rank() == 0:
                store = dist.TCPStore(own_address(self._address()), 0, process_set.size(), True,
                                      wait_for_workers=False)
                text = f"{own_address(self._address())} {store.port}".encode()
            host, port = self._share(process_set, text)[0].decode().split()
            if process_set.rank() != 0:
                store = dist.TCPStore(host, int(port), process_set.size(), False)
            return dist.ProcessGroupNCCL(store, process_set.rank(), process_set.size())
        return make

    def _address(self):
        """Where the other hosts reach this one."""
        if self.has_one_node:
            return "127.0.0.1"
        return os.environ.get("MASTER_ADDR")

    @staticmethod
    def _share(process_set, text):
        """The texts of all ranks of the set, which are short."""
        size = process_set.size()
        mine = ctypes.create_string_buffer(text, _PLACE_BYTES)
        texts = ctypes.create_string_buffer(_PLACE_BYTES * size)
        c.all_gather(process_set._group.session, mine, _PLACE_BYTES, texts)
        return [texts.raw[at:at + _PLACE_BYTES].rstrip(b"\0")
                for at in range(0, _PLACE_BYTES * size, _PLACE_BYTES)]

    def add(self, process_set):
        ranks = process_set.ranks
        if not ranks or ranks[0] < 0 or ranks[-1] >= self.size:
            raise InputError(f"[ProcessSet] expected ranks from 0 to {self.size - 1}, got {ranks}")
        if any(other.ranks == ranks for other in self.sets.values()):
            raise InputError(f"[ProcessSet] expected ranks that no other set has, got {ranks}")
        global_process_set._calls.run(Call("add", str(ranks), str(ranks),
                                           lambda _sizes: self._form(process_set)))

    def _form(self, process_set):
        ranks = process_set.ranks
        place = Place(self._address()) if self.rank == ranks[0] else None
        text = self._share(global_process_set, place.text.encode() if place else b"")[ranks[0]]
        process_set.process_set_id, self._next = self._next, self._next + 1
        self.sets[process_set.process_set_id] = process_set
        if self.rank in ranks:
            number = ranks.index(self.rank)
            session = join(text.decode(), number, len(ranks), self._timeout, place,
                           stall_timeout=self._stall_timeout)
            self._open(process_set, session, number, len(ranks))

    def prefix(self, names):
        """What makes the names of an optimizer's gradients differ from those of earlier ones."""
        names = tuple(names)
        number = self._optimizers[names] = self._optimizers.get(names, 0) + 1
        return f"optimizer {number}." if number > 1 else ""

    def remove(self, process_set):
        if process_set._calls is not None:
            process_set._calls.leave()
        global_process_set._calls.run(Call("remove", str(process_set.ranks), "[]",
                                           lambda _sizes: self._close(process_set)))

    def _close(self, process_set):
        self.sets.pop(process_set.process_set_id)
        process_set.process_set_id = None
        if process_set._calls is not None:
            process_set._group.close(owns_session=process_set is not global_process_set)
        process_set._group = process_set._calls = None

    def leave(self):
        own = [one for one in self.sets.values() if one._calls is not None]
        for process_set in own:  # first, because others may wait in another one
            process_set._calls.begin_to_leave()
        for process_set in reversed(own):
            process_set._calls.leave()
        for process_set in reversed(list(self.sets.values())):
            self._close(process_set)
        self.timeline.stop()
        _session.lend(None)
        lockstep.shutdown()


def init(comm=None, process_sets=None):
    """Makes this process a rank of its job. Does nothing if it is one already.

    Args:
        comm: a communicator of mpi4py, or a list of ranks of the launcher's job (under ``mpirun``,
            with mpi4py): those which call this. By default all.
        process_sets: a list of sets to be added unless they are there; "dynamic" and None mean
            none: add_process_set() adds them at any time.

    Raises:
        InputError: a process set is there twice, or an argument is invalid. The job, and the sets,
            are there all the same.
        CommunicationError: the ranks do not find each other.

    Collective.
    """
    global _job
    if _job is None:
        _job = _Job(_communicator(comm))
        if hasattr(comm, "py2f"):
            global_process_set.mpi_comm = comm
        atexit.register(_end)
    if process_sets and not isinstance(process_sets, str):
        _add_all(list(process_sets))


def _communicator(comm):
    if comm is None or hasattr(comm, "py2f"):
        return comm
    ranks = list(comm)
    if not ranks:
        return None
    try:
        from mpi4py import MPI
    except ImportError:
        raise InputError("[init] expected mpi4py, with which a job of some ranks is made (or "
                         f"process sets, which need none), got ranks {ranks} without it") from None
    if max(ranks) >= MPI.COMM_WORLD.size:
        raise InputError(f"[init] expected ranks of mpirun, which has started "
                         f"{MPI.COMM_WORLD.size}, got {ranks} (or use process sets)")
    return MPI.COMM_WORLD.Create_group(MPI.COMM_WORLD.Get_group().Incl(ranks))


def _add_all(sets):
    """Sets of which some may be known to some ranks only, by communicators."""
    for one in sets:
        if one.ranks is None:
            world = global_process_set.mpi_comm
            if world is None:
                raise InputError("[init] expected a communicator for the job, got one for a "
                                 "process set only")
            one.ranks = sorted(one.mpi_comm.allgather(world.Get_rank()))
    lists = _objects([one.ranks for one in sets])
    known = {tuple(one.ranks): one for one in _job.sets.values()}
    for index in range(max(map(len, lists))):
        for ranks in (one[index] for one in lists if index < len(one)):
            if tuple(ranks) not in known:
                known[tuple(ranks)] = ProcessSet(ranks)
                _job.add(known[tuple(ranks)])
    earlier = [global_process_set.ranks]
    for index, one in enumerate(sets):
        if one.ranks in earlier:
            raise InputError(f"[init] expected process sets that differ, got entry {index} again: "
                             f"{one}")
        earlier.append(one.ranks)
        one.become(known[tuple(one.ranks)])


def _objects(value):
    from .state import allgather_object
    return allgather_object(value)


def shutdown():
    """Leaves the job. Returns when all ranks have called it; without init(), does nothing. Called
    at the end of the program if it is not called before.
    """
    global _job
    if _job is not None:
        job, _job = _job, None
        atexit.unregister(_end)
        job.leave()


_process = os.getpid()


def _end():
    if not _session.has_failed() and os.getpid() == _process:
        shutdown()


def in_job(function):
    """The job."""
    if _job is None:
        raise InputError(f"[{function}] expected init() first, got no call of it")
    return _job


def is_initialized():
    """Whether init() was called, and shutdown() was not."""
    return _job is not None


def rank():
    """The number of this process: 0 to ``size() - 1``."""
    return in_job("rank").rank


def size():
    """The number of processes of the job."""
    return in_job("size").size


def local_rank():
    """The number of this process among those of its node."""
    in_job("local_rank")
    return lockstep.local_rank()


def local_size():
    """The number of processes on this node."""
    in_job("local_size")
    return lockstep.local_size()


def cross_rank():
    """The number of this node among those with a process of the same local rank."""
    return in_job("cross_rank").cross_rank


def cross_size():
    """The number of nodes with a process of the same local rank."""
    return in_job("cross_size").cross_size


def is_homogeneous():
    """Whether all nodes have the same number of processes."""
    return in_job("is_homogeneous").is_homogeneous


def still_at_work():
    """lockstep.still_at_work(), for work of this rank while the others wait."""
    in_job("still_at_work")
    lockstep.still_at_work()


def add_process_set(process_set):
    """Adds a process set, or one of the ranks given, and returns it. Collective over all ranks of
    the job.

    Raises:
        InputError: a set of these ranks is there already.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise InputError("[add_process_set] expected a list of ranks, got a communicator, which "
                         "only init() takes")
    in_job("add_process_set").add(process_set)
    return process_set


def remove_process_set(process_set):
    """Removes a process set; returns whether it was there. Collective over all ranks of the job."""
    if process_set.process_set_id in (None, 0):
        return False
    in_job("remove_process_set").remove(process_set)
    return True


def start_timeline(file_path, mark_cycles=False):
    """Begins to write the times of all calls of rank 0 to a file, for a viewer of Chrome's traces.

    Args:
        file_path: the file, which is overwritten.
        mark_cycles: also when ranks exchange announcements.
    """
    in_job("start_timeline").timeline.start(file_path, mark_cycles)


def stop_timeline():
    """Ends and closes the file."""
    in_job("stop_timeline").timeline.stop()
