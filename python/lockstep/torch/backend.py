"""The backend "lockstep" of torch.distributed, for tensors in the host's memory."""
import atexit
import ctypes
import datetime
import functools
import os
import queue
import threading
import time

import torch
from torch._C._autograd import _profiler_enabled
from torch._C._distributed_c10d import (
    Backend,
    ErrorType,
    ReduceOp,
    _allow_inflight_collective_as_graph_input,
    _register_work,
)
from torch._C._profiler import _RecordFunctionFast

from .._library import OPS, TYPES, CommunicationError, InputError, c
from .._session import has_failed, watch_exceptions
from .joining import Place, host_of, join
from .work import DoneWork, LockstepWork, MessageWork, Works, call

NAME = "lockstep"
NATIVE = {getattr(torch, name): code for name, code in TYPES.items()}
# Reduced in another type with the same sums, or as pairs of numbers.
WIDENED = {torch.int8: torch.int32, torch.int16: torch.int32}
COMPLEX = (torch.complex64, torch.complex128)
REDUCTIONS = {ReduceOp.SUM: "sum", ReduceOp.AVG: "average", ReduceOp.PRODUCT: "product",
              ReduceOp.MIN: "min", ReduceOp.MAX: "max", ReduceOp.PREMUL_SUM: "sum"}
PLAIN = {int(op): OPS[name] for op, name in REDUCTIONS.items() if op != ReduceOp.PREMUL_SUM}
BITWISE = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or,
           ReduceOp.BXOR: torch.bitwise_xor}
MONITORED = -1  # the tag of monitored barriers
LINE_BYTES = 64  # parts of a reduce-scatter are whole lines of a cache


def _refuse(function, expected, actual):
    raise InputError(f"[{function}] expected {expected}, got {actual}")


def _waits_for_requests(works):
    """A thread: completes works in the order in which they were started."""
    while (item := works.get()) is not None:
        work, handle, memory = item
        try:
            c.wait(handle)
        except Exception as error:
            work.complete(error)
        else:
            work.complete()
        del item, work, memory  # not until the next one


def _leave(session, works, thread, locks, messages):
    works.put(None)
    thread.join()
    for lock in locks:  # until calls of other threads have ended
        lock.acquire()
    c.finalize(session)
    messages.clear()  # whose memory was in use until now


def _base():
    """What a backend derives from: before torch 2.14 it cannot be written in Python, so that only
    LockstepGroup calls it.
    """
    try:
        Backend(0, 1)
    except TypeError:
        return object
    return Backend


class LockstepBackend(_base()):
    """The ranks of one process group. Each has a session of its own, over the connections that its
    ranks make with each other when it is created.
    """

    # torch 2.15 asks for these without end if they are not here.
    supports_coalescing = supports_reconfigure = supports_shrinking = False
    supports_splitting = supports_window = _supports_time_estimate = False

    def __init__(self, store, rank, size, timeout, is_reconfigured=False, session=None):
        if isinstance(self, Backend):
            super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout = timeout.total_seconds()
        self._lock, self._message_lock = threading.Lock(), threading.Lock()
        self._session = None
        self._number = 0
        self._place = None
        self._generations = set()
        self.is_direct = False  # called by torch's dispatcher, which registers works
        self.supports_reconfigure = is_reconfigured
        self.supports_splitting = not is_reconfigured
        watch_exceptions()
        # torchrun keeps its store when it starts the ranks again.
        key = "lockstep " + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if session is not None:
            self._enter(session)
        elif is_reconfigured:
            self._place = Place(host_of(store))
        elif rank == 0:
            place = Place(host_of(store))
            store.set(key, place.text)
            self._enter(join(place.text, rank, size, self._timeout, place))
            try:
                store.delete_key(key)  # all have read it; the next group may have the same store
            except RuntimeError:  # not in this store
                pass
        else:
            self._enter(join(store.get(key), rank, size, self._timeout))

    def _enter(self, session):
        self._session = session
        _open[self] = None
        # Collectives start one at a time, and so do messages. Both end before the session does.
        self._lock, self._message_lock = threading.Lock(), threading.Lock()
        self._number = 0  # of the collectives that have started
        self._dropped = []  # messages that nobody waits for
        self._works = queue.SimpleQueue()
        self._thread = threading.Thread(target=_waits_for_requests, args=(self._works,),
                                        name="lockstep", daemon=True)
        self._thread.start()

    def end_works(self):
        """shutdown() without the end of the session."""
        _open.pop(self, None)
        self._session = None
        self._works.put(None)
        self._thread.join()

    # What the group is.

    def name(self):
        return NAME

    def _get_backend_name(self):
        return NAME

    getBackendName = _get_backend_name

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def shutdown(self):
        """Leaves the group. The ranks may do so in any order, so it ends in the background."""
        leave = self._prepare_to_leave()
        if leave is not None:
            leaving = threading.Thread(target=leave, name="lockstep leaves", daemon=True)
            _leaving.append(leaving)
            leaving.start()

    def _prepare_to_leave(self):
        """What is left to do, if there is a session."""
        _open.pop(self, None)
        session, self._session = self._session, None
        if session is None:
            return None
        return functools.partial(_leave, session, self._works, self._thread,
                                 (self._lock, self._message_lock), self._dropped)

    def abort(self):
        """shutdown() that ends the calls in progress with an error, on all ranks."""
        if self._session is not None:
            c.abort(self._session)
        self.shutdown()

    def get_error(self):
        return ErrorType.SUCCESS  # errors are exceptions

    def _set_sequence_number_for_group(self):
        """Numbers start at 0 on all ranks."""

    def _get_sequence_number_for_group(self):
        return self._number

    # Other groups.

    def get_reconfigure_handle(self):
        """What the other ranks give to reconfigure() for this one."""
        return self._place.text

    def reconfigure(self, opts):
        """Leaves the ranks with which this one has been in the group, if any, and enters a group of
        those whose handles the caller gives: in this order if they are a list.

        Raises:
            InputError: ``opts.uuid`` was used before, or this rank's handle is not among them.
            CommunicationError: the ranks do not find each other in time.
        """
        if opts.uuid in self._generations:
            _refuse("reconfigure", "a new uuid", f"{opts.uuid}, which is already used")
        handles = opts.handles if isinstance(opts.handles, list) else sorted(opts.handles)
        if self._place.text not in handles:
            _refuse("reconfigure", "this rank's handle among those of the group", handles)
        self.shutdown()
        self._generations.add(opts.uuid)
        self._rank, self._size = handles.index(self._place.text), len(handles)
        self._enter(join(handles[0], self._rank, self._size,
                         opts.timeout.total_seconds() if opts.timeout else self._timeout,
                         self._place if self._rank == 0 else None, str(opts.uuid)))
        return DoneWork([])

    def split(self, store, ranks, opts):
        """The part of this rank in the group of some of the ranks."""
        if self._rank not in ranks:
            _refuse("split_group", "all ranks in one of the groups (or use new_group())",
                    f"rank {self._rank} in none")
        return LockstepBackend(store, ranks.index(self._rank), len(ranks), opts._timeout)

    @property
    def options(self):
        return Backend.Options(NAME, datetime.timedelta(seconds=self._timeout))

    # Starting calls.

    def _run(self, function, opts, tensors, start, finish=None):
        """Calls start(request); in the background if the caller does not wait."""
        if _profiler_enabled():
            with _RecordFunctionFast(f"{NAME}:{function}", tensors, {}):
                return self._start(opts, tensors, start, finish)
        return self._start(opts, tensors, start, finish)

    def _start(self, opts, tensors, start, finish):
        if not getattr(opts, "asyncOp", True):
            with self._lock:
                self._in_group()
                self._number += 1
                start(None)
            if finish is not None:
                call(finish)
            return DoneWork(tensors, self._number)
        handle = ctypes.c_void_p()
        with self._lock:
            self._in_group()
            self._number += 1
            work = LockstepWork(tensors, finish, self._number)
            start(ctypes.byref(handle))
            if self.is_direct and _allow_inflight_collective_as_graph_input():
                for tensor in tensors:
                    _register_work(tensor, work)
            self._works.put((work, handle, start))  # `start` holds the memory that is in use
        return work

    def _in_group(self):
        """The session, if there is one."""
        if self._session is not None:
            return self._session
        if self._place is not None:
            raise CommunicationError("[lockstep] expected reconfigure() before the first call, and "
                                     "after abort(), got another call")
        raise CommunicationError("[lockstep] expected a process group that is open, got one that "
                                 "was destroyed")

    # Reductions.

    def _reduce(self, function, tensor, op, opts, results, finish=None):
        """Reduces `tensor`, which is contiguous, in place; then finish(), and `results`."""
        number, kind = getattr(op, "op", op), tensor.dtype
        before = 1.0
        if number == ReduceOp.PREMUL_SUM:
            if not hasattr(op, "factor"):
                _refuse(function, "torch 2.13 or later for PREMUL_SUM", torch.__version__)
            before = float(op.factor)
        if number in BITWISE:
            return self._reduce_bits(function, tensor, BITWISE[number], opts, results, finish)
        if kind in COMPLEX:
            if number not in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM):
                _refuse(function, f"a sum or an average of {kind}", op)
            return self._reduce(function, torch.view_as_real(tensor), op, opts, results, finish)
        reduced = tensor
        if kind == torch.bool:  # true or false: any is the largest, all the smallest
            if number in (ReduceOp.AVG, ReduceOp.PREMUL_SUM):
                _refuse(function, "floating-point numbers for an average or a factor", kind)
            reduced = tensor.view(torch.uint8)
            number = ReduceOp.MIN if number in (ReduceOp.MIN, ReduceOp.PRODUCT) else ReduceOp.MAX
        elif kind in WIDENED:
            reduced = tensor.to(WIDENED[kind])
        if reduced.dtype not in NATIVE:
            _refuse(function, f"a type among {', '.join(map(str, (*NATIVE, *WIDENED, *COMPLEX)))}, "
                    "torch.bool", kind)
        if number == ReduceOp.AVG and not reduced.is_floating_point():
            _refuse(function, "floating-point numbers for an average", kind)

        def start(request):
            c.all_reduce_start(self._session, reduced.data_ptr(), reduced.numel(),
                               NATIVE[reduced.dtype], OPS[REDUCTIONS[number]], before, 1.0, request)

        def copy_back():
            if kind in WIDENED:
                tensor.copy_(reduced)
            if finish is not None:
                finish()

        return self._run(function, opts, results, start,
                         copy_back if kind in WIDENED or finish is not None else None)

    def _reduce_bits(self, function, tensor, combine, opts, results, finish):
        if tensor.is_floating_point() or tensor.is_complex():
            _refuse(function, "integers for an operation on bits", tensor.dtype)
        gathered = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)

        def combine_all():
            tensor.copy_(gathered[0])
            for other in gathered[1:]:
                combine(tensor, other, out=tensor)
            if finish is not None:
                finish()

        return self._gather_into(opts, gathered, tensor, results, combine_all)

    def _reduce_sparse(self, target, op, opts):
        """The sum of the indices and values of all ranks, whose numbers may differ."""
        if op != ReduceOp.SUM or target.layout != torch.sparse_coo:
            _refuse("all_reduce", "a sum of tensors of layout torch.sparse_coo",
                    f"{op} of {target.layout}")
        own = target.coalesce()
        indices, values = own.indices(), own.values()
        parts = [part.contiguous().view(-1).view(torch.uint8) for part in (indices, values)]
        counts = torch.empty(self._size, 2, dtype=torch.int64)
        mine = torch.tensor([part.numel() for part in parts])
        self._gather_into(None, counts, mine, []).wait()
        gathered = torch.empty(int(counts.sum()), dtype=torch.uint8)

        def add():
            # Copies, because a part may begin between two numbers of its type.
            pieces = [one.clone() for one in gathered.split(counts.flatten().tolist())]
            all_indices = [piece.view(indices.dtype).view(indices.shape[0], -1)
                           for piece in pieces[::2]]
            all_values = [piece.view(values.dtype).view(-1, *values.shape[1:])
                          for piece in pieces[1::2]]
            target.copy_(torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values),
                                                 target.shape, check_invariants=True).coalesce())

        return self._gather_into(opts, gathered, torch.cat(parts), [target], add,
                                 counts.sum(1).tolist())

    def allreduce(self, tensors, opts=None):
        target = tensors[0]
        if target.layout != torch.strided:
            return self._reduce_sparse(target, opts.reduceOp if opts else ReduceOp.SUM, opts)
        # The usual call, which may take no longer than the reduction of a few numbers.
        if (opts is not None and target.is_cpu and target.is_contiguous() and not opts.asyncOp
                and len(tensors) == 1 and not _profiler_enabled()):
            kind, op = NATIVE.get(target.dtype), PLAIN.get(int(opts.reduceOp.op))
            if kind is not None and op is not None and (op != OPS["average"] or
                                                        target.is_floating_point()):
                with self._lock:
                    session = self._in_group()
                    self._number += 1
                    c.all_reduce_start(session, target.data_ptr(), target.numel(), kind, op, 1.0,
                                       1.0, None)
                return DoneWork(tensors, self._number)
        tensor, = self._dense("all_reduce", tensors)
        back = None if tensor is target else lambda: target.copy_(tensor)
        return self._reduce("all_reduce", tensor, opts.reduceOp if opts else ReduceOp.SUM,
                            opts, tensors, back)

    def allreduce_coalesced(self, tensors, opts=None):
        kinds = {tensor.dtype for tensor in tensors}
        if len(kinds) > 1:
            _refuse("all_reduce_coalesced", "tensors of one type", kinds)
        flat = torch.cat([tensor.detach().reshape(-1)
                          for tensor in self._dense("all_reduce", tensors)])

        def spread():
            for tensor, part in zip(tensors, flat.split([one.numel() for one in tensors])):
                tensor.copy_(part.view(tensor.shape))

        return self._reduce("all_reduce_coalesced", flat,
                            opts.reduceOp if opts else ReduceOp.SUM, opts, tensors, spread)

    def reduce(self, tensors, opts=None):
        tensor, = self._dense("reduce", tensors)
        self._root("reduce", opts)
        kept, target = tensor.detach().clone(), tensors[0]

        def on_root():
            if self._rank == opts.rootRank:
                target.copy_(kept)

        return self._reduce("reduce", kept, opts.reduceOp, opts, tensors, on_root)

    def _reduce_scatter_single(self, output, tensor, opts=None):
        self._same_parts("reduce_scatter", tensor, output)
        whole = self._dense("reduce_scatter", [tensor])[0].detach().clone().view(-1)
        count = output.numel()
        op = opts.reduceOp if opts else ReduceOp.SUM
        number = getattr(op, "op", op)
        target = whole[self._rank * count:(self._rank + 1) * count]

        def copy_part():
            output.copy_(target.view(output.shape))  # also into one that is not contiguous

        # The core's parts are those of torch if they are whole lines.
        if (whole.dtype in NATIVE and number in REDUCTIONS and number != ReduceOp.PREMUL_SUM
                and count * whole.element_size() % LINE_BYTES == 0
                and (number != ReduceOp.AVG or whole.is_floating_point())):
            begin, end = ctypes.c_size_t(), ctypes.c_size_t()

            def start(request):
                c.reduce_scatter_start(self._session, whole.data_ptr(), whole.numel(),
                                       NATIVE[whole.dtype], OPS[REDUCTIONS[number]],
                                       ctypes.byref(begin), ctypes.byref(end), request)

            return self._run("reduce_scatter", opts, [output], start, copy_part)
        return self._reduce("reduce_scatter", whole, op, opts, [output], copy_part)

    def reduce_scatter(self, outputs, inputs, opts=None):
        self._one_each("reduce_scatter", inputs[0])
        whole = torch.cat([part.detach().reshape(-1) for part in inputs[0]])
        return self._reduce_scatter_single(outputs[0], whole, opts)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        return Works([self._reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs)])

    # Copies.

    def broadcast(self, tensors, opts=None):
        self._root("broadcast", opts)
        tensor, = self._dense("broadcast", tensors)
        target = tensors[0]

        def start(request):
            c.broadcast_start(self._session, tensor.data_ptr(), _bytes(tensor), opts.rootRank,
                              request)

        return self._run("broadcast", opts, tensors, start,
                         None if tensor is target else lambda: target.copy_(tensor))

    def _gather_into(self, opts, output, tensor, results, finish=None, expected=None):
        """Concatenates `tensor` of all ranks in `output`, which is contiguous. `expected`: the
        numbers of bytes; by default the same for all.
        """
        sizes = (ctypes.c_size_t * self._size)()

        def start(request):
            c.all_gather_unequal_start(self._session, tensor.data_ptr(), _bytes(tensor),
                                       output.data_ptr(), _bytes(output), sizes, request)

        def check():
            right = expected or [_bytes(tensor)] * self._size
            if list(sizes) != right:
                rank = next(i for i in range(self._size) if sizes[i] != right[i])
                _refuse("all_gather", "tensors of the same size on all ranks",
                        f"{right[rank]} bytes on rank {self._rank} and {sizes[rank]} on rank "
                        f"{rank}")
            if finish is not None:
                finish()

        return self._run("all_gather", opts, results, start, check)

    def _all_gather_single(self, output, tensor, opts=None):
        self._same_parts("all_gather", output, tensor)
        source, = self._dense("all_gather", [tensor])
        into, = self._dense("all_gather", [output])
        return self._gather_into(opts, into, source, [output],
                                 None if into is output else lambda: output.copy_(into))

    def allgather(self, outputs, inputs, opts=None):
        source, = self._dense("all_gather", inputs)
        self._one_each("all_gather", outputs[0])
        own = outputs[0][self._rank]
        if own.shape != source.shape or any(one.dtype != source.dtype for one in outputs[0]):
            _refuse("all_gather", f"outputs of {source.dtype}, for this rank {tuple(source.shape)}",
                    [f"{one.dtype} {tuple(one.shape)}" for one in outputs[0]])
        counts = [one.numel() for one in outputs[0]]
        gathered = torch.empty(sum(counts), dtype=source.dtype)

        def spread():
            for output, part in zip(outputs[0], gathered.split(counts)):
                output.copy_(part.view(output.shape))

        return self._gather_into(opts, gathered, source, outputs[0], spread,
                                 [_bytes(one) for one in outputs[0]])

    def allgather_coalesced(self, outputs, inputs, opts=None):
        by_input = [[ranks[i] for ranks in outputs] for i in range(len(inputs))]
        return Works([self.allgather([parts], [one], opts)
                      for parts, one in zip(by_input, inputs)])

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return Works([self._all_gather_single(*pair, opts) for pair in zip(outputs, inputs)])

    def gather(self, outputs, inputs, opts=None):
        source, = self._dense("gather", inputs)
        self._root("gather", opts)
        is_root = self._rank == opts.rootRank
        if is_root:
            self._one_each("gather", outputs[0])
        sizes = [_bytes(source) if rank == opts.rootRank else 0 for rank in range(self._size)]
        gathered = torch.empty((self._size if is_root else 0, *source.shape), dtype=source.dtype)

        def spread():
            for output, part in zip(outputs[0] if is_root else (), gathered):
                output.copy_(part)

        # Only the root's part of what this rank sends is not empty.
        return self._exchange("gather", opts, source, sizes, gathered,
                              outputs[0] if is_root else [], spread)

    def scatter(self, outputs, inputs, opts=None):
        self._root("scatter", opts)
        is_root = self._rank == opts.rootRank
        output = outputs[0]
        if is_root:
            self._one_each("scatter", inputs[0])
        into, = self._dense("scatter", outputs)
        source = (torch.stack([part.detach().reshape(output.shape) for part in inputs[0]])
                  if is_root else torch.empty(0, dtype=output.dtype))
        sizes = [_bytes(output) if is_root else 0] * self._size
        return self._exchange("scatter", opts, source, sizes, into, outputs,
                              None if into is output else lambda: output.copy_(into))

    def _exchange(self, function, opts, source, sent, output, results, finish=None,
                  expected=None):
        """Sends sent[i] bytes of `source` to rank i; fills `output` with what arrives, which is
        expected[i] bytes of rank i if that is known.
        """
        sizes = (ctypes.c_size_t * self._size)()
        parts = (ctypes.c_size_t * self._size)(*sent)

        def start(request):
            c.all_to_all_start(self._session, source.data_ptr(), parts, output.data_ptr(),
                               _bytes(output), sizes, request)

        def check():
            if sum(sizes) != _bytes(output):
                _refuse(function, f"{_bytes(output)} bytes from all ranks", sum(sizes))
            if expected is not None and list(sizes) != expected:
                _refuse(function, f"{expected} bytes from the ranks", list(sizes))
            if finish is not None:
                finish()

        return self._run(function, opts, results, start, check)

    def _all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        for one in (output, tensor):
            if not one.is_contiguous():
                _refuse("all_to_all_single", "contiguous tensors (Tensors must be contiguous)",
                        f"one of strides {one.stride()}")
        source, = self._dense("all_to_all", [tensor])
        into, = self._dense("all_to_all", [output])
        row = _bytes(source) // source.shape[0] if source.numel() else 0
        splits = input_splits or [source.shape[0] // self._size] * self._size
        if len(splits) != self._size or min(splits) < 0 or sum(splits) != source.shape[0]:
            _refuse("all_to_all", f"{self._size} splits that add up to {source.shape[0]} rows",
                    splits)
        expected = [rows * row for rows in output_splits] if output_splits and row else None
        return self._exchange("all_to_all", opts, source, [rows * row for rows in splits], into,
                              [output], None if into is output else lambda: output.copy_(into),
                              expected)

    def alltoall(self, outputs, inputs, opts=None):
        for one in (inputs, outputs):
            self._one_each("all_to_all", one)
        source = torch.cat([one.detach().reshape(-1) for one in inputs])
        into = torch.empty(sum(one.numel() for one in outputs), dtype=source.dtype)

        def spread():
            for output, part in zip(outputs, into.split([one.numel() for one in outputs])):
                output.copy_(part.view(output.shape))

        return self._exchange("all_to_all", opts, source, [_bytes(one) for one in inputs], into,
                              outputs, spread, [_bytes(one) for one in outputs])

    def barrier(self, opts=None):
        def start(request):
            if request is None:
                c.barrier(self._session)
            else:
                c.all_reduce_start(self._session, None, 0, TYPES["uint8"], OPS["sum"], 1.0, 1.0,
                                   request)

        return self._run("barrier", opts, [], start)

    def send(self, tensors, to, tag):
        tensor, = self._dense("send", tensors)
        handle = ctypes.c_void_p()
        with self._message_lock:
            c.send_start(self._in_group(), tensor.data_ptr(), _bytes(tensor), to, tag,
                         ctypes.byref(handle))
        return MessageWork(handle, [tensor], self._dropped)

    def recv(self, tensors, source, tag):
        into, = self._dense("recv", tensors)
        handle, target, sender = ctypes.c_void_p(), tensors[0], ctypes.c_int(source)
        with self._message_lock:
            c.receive_start(self._in_group(), into.data_ptr(), _bytes(into), source, tag,
                            ctypes.byref(sender), ctypes.byref(handle))
        return MessageWork(handle, [into], self._dropped, sender,
                           None if into is target else lambda: target.copy_(into))

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, -1, tag)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """barrier() that says on rank 0 which rank, or with `wait_all_ranks` all of those, that has
        not called it before `timeout`.
        """
        timeout = getattr(timeout, "timeout", timeout)  # those of torch's code in C++ are options
        if isinstance(timeout, datetime.timedelta):
            timeout = timeout.total_seconds()
        if timeout is None or timeout < 0:
            timeout = self._timeout
        deadline = time.monotonic() + timeout
        where, limit = "[monitored_barrier] expected every rank", f"in {timeout * 1000:.0f} ms"
        if self._rank > 0:
            self.send([torch.empty(0)], 0, MONITORED).wait()
            if not self._hears_from(0, deadline):
                raise CommunicationError(
                    f"{where}; Rank {self._rank} successfully reached monitoredBarrier, but "
                    f"received errors while waiting for send/recv from rank 0 {limit}")
            return
        missing = []
        for rank in range(1, self._size):
            if (wait_all_ranks or not missing) and not self._hears_from(rank, deadline):
                missing.append(str(rank))
        if missing:
            raise CommunicationError(
                f"{where}; Rank 0 timed out in monitoredBarrier: Rank{'s' * (len(missing) > 1)} "
                f"{', '.join(missing)} failed to pass monitoredBarrier {limit}")
        for rank in range(1, self._size):
            self.send([torch.empty(0)], rank, MONITORED).wait()

    def _hears_from(self, rank, deadline):
        message = self.recv([torch.empty(0)], rank, MONITORED)
        try:
            while not message.is_completed():
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.0002)
        except CommunicationError:  # it has left
            return False
        return True

    # Names of versions before 2.15.
    reduce_scatter_single = _reduce_scatter_base = _reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    all_gather_single = _allgather_base = _all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    all_to_all_single = alltoall_base = _all_to_all_single

    def _dense(self, function, tensors):
        """The tensors, contiguous, in the host's memory."""
        for tensor in tensors:
            if tensor.device.type != "cpu":
                _refuse(function, "tensors in the host's memory", f"one on {tensor.device}")
            if tensor.layout != torch.strided:
                _refuse(function, "a dense tensor", tensor.layout)
        return [tensor if tensor.is_contiguous() else tensor.contiguous() for tensor in tensors]

    def _root(self, function, opts):
        if not 0 <= opts.rootRank < self._size:
            _refuse(function, f"a root from 0 to {self._size - 1}", opts.rootRank)

    def _one_each(self, function, tensors):
        if len(tensors) != self._size:
            _refuse(function, f"a tensor for each of {self._size} ranks", f"{len(tensors)}")

    def _same_parts(self, function, whole, part):
        if whole.numel() != part.numel() * self._size or whole.dtype != part.dtype:
            _refuse(function, f"{self._size} parts of {part.numel()} {part.dtype}",
                    f"{whole.numel()} elements of {whole.dtype}")


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


# Groups that the program has not destroyed, and threads of those that it has.
# torch's code in C++ may be all that knows of a group, and needs its methods.
_open = {}
_leaving = []


_process = os.getpid()


def _leave_all():
    if has_failed() or os.getpid() != _process:  # which one that was forked does not leave
        return
    # As they were made, in one order on all ranks: Python starts no threads any more.
    for group in list(_open):
        group._prepare_to_leave()()
    for thread in _leaving:
        thread.join()


atexit.register(_leave_all)
