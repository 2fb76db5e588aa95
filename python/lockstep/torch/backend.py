"""The backend "lockstep" of torch.distributed, for tensors in the host's memory."""
import atexit
import ctypes
import json
import queue
import secrets
import socket
import threading
import weakref

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, ReduceOp, Work

from .._library import OPS, TYPES, CommunicationError, InputError, c
from .._session import has_failed, watch_exceptions

NAME = "lockstep"
NATIVE = {getattr(torch, name): code for name, code in TYPES.items()}
# Reduced in another type with the same sums, or as pairs of numbers.
WIDENED = {torch.int8: torch.int32, torch.int16: torch.int32}
COMPLEX = (torch.complex64, torch.complex128)
REDUCTIONS = {ReduceOp.SUM: "sum", ReduceOp.AVG: "average", ReduceOp.PRODUCT: "product",
              ReduceOp.MIN: "min", ReduceOp.MAX: "max", ReduceOp.PREMUL_SUM: "sum"}
BITWISE = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or,
           ReduceOp.BXOR: torch.bitwise_xor}
LINE_BYTES = 64  # parts of a reduce-scatter are whole lines of a cache
USUAL_STALL_TIMEOUT = 120.0


def register():
    """Makes "lockstep" known to torch.distributed, which calls this itself from version 2.15 on."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(store, rank, size, timeout):
    return LockstepBackend(store, rank, size, timeout)


def _refuse(function, expected, actual):
    raise InputError(f"[{function}] expected {expected}, got {actual}")


class DoneWork(Work):
    """A collective that the caller has waited for."""

    def __init__(self, result):
        super().__init__()
        self._result = result

    def wait(self, timeout=None):
        return True

    synchronize = is_completed = is_success = wait

    def result(self):
        return self._result

    def get_future(self):
        future = torch.futures.Future()
        future.set_result(self._result)
        return future


class LockstepWork(Work):
    """A collective. `finish` runs when its request is complete; `result` are its tensors."""

    def __init__(self, result, finish=None):
        super().__init__()
        self._result = result
        self._finish = finish
        self._error = None
        # An error of a callback is one for torch's code in C++ too, that of set_exception() is not.
        self._ended = torch.futures.Future()
        self._future = self._ended.then(self._outcome)

    def complete(self, error=None):
        if error is None and self._finish is not None:
            try:
                self._finish()
            except Exception as raised:
                error = raised
        self._finish = None
        self._error = error
        self._ended.set_result(None)

    def _outcome(self, _ended):
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout=None):
        self._ended.wait()
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._future.done()

    def is_success(self):
        return self._future.done() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._result

    def get_future(self):
        return self._future


class MessageWork(Work):
    """A message that is sent or received, by this thread alone."""

    def __init__(self, handle, tensors, finish=None):
        super().__init__()
        self._handle = handle
        self._tensors = tensors
        self._finish = finish

    def wait(self, timeout=None):
        handle, self._handle = self._handle, None
        if handle is not None:
            c.wait(handle)
            if self._finish is not None:
                self._finish()
        return True

    synchronize = wait

    def result(self):
        return self._tensors

    def get_future(self):
        future = torch.futures.Future()
        self.wait()
        future.set_result(self._tensors)
        return future

    def __del__(self):
        if self._handle is not None:  # its memory is in use for as long as it is not complete
            _dropped.append((self._handle, self._tensors, self._finish))


def _waits_for_requests(works):
    """A thread: completes works in the order in which they were started."""
    while (item := works.get()) is not None:
        work, handle, _memory = item
        try:
            c.wait(handle)
        except Exception as error:
            work.complete(error)
        else:
            work.complete()


def _leave(session, works, thread):
    works.put(None)
    thread.join()
    c.finalize(session)


class LockstepBackend(Backend):
    """The ranks of one process group. Each has a session of its own, over the connections that its
    ranks make with each other when it is created.
    """

    # torch 2.15 asks for these without end if they are not here.
    supports_coalescing = supports_reconfigure = supports_shrinking = False
    supports_splitting = supports_window = _supports_time_estimate = False

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._session = _join(store, rank, size, timeout.total_seconds())
        watch_exceptions()
        self._works = queue.SimpleQueue()
        self._lock = threading.Lock()  # calls start one at a time
        self._thread = threading.Thread(target=_waits_for_requests, args=(self._works,),
                                        name="lockstep", daemon=True)
        self._thread.start()
        self._closed = False
        _open.add(self)

    # What the group is.

    def name(self):
        return NAME

    def _get_backend_name(self):
        return NAME

    getBackendName = _get_backend_name

    def shutdown(self):
        """Leaves the group. The ranks may do so in any order, so it ends in the background."""
        if self._closed:
            return
        self._closed = True
        leaving = threading.Thread(target=_leave, args=(self._session, self._works, self._thread),
                                   name="lockstep leaves")
        _leaving.append(leaving)
        leaving.start()

    abort = shutdown

    def __del__(self):
        if not getattr(self, "_closed", True):
            self.shutdown()

    # Starting calls.

    def _run(self, options, tensors, start, finish=None):
        """Calls start(request); in the background if the caller does not wait."""
        if self._closed:
            raise CommunicationError("[lockstep] expected a process group that is open, "
                                     "got one that was destroyed")
        if not getattr(options, "asyncOp", True):
            with self._lock:
                start(None)
            if finish is not None:
                finish()
            return DoneWork(tensors)
        work = LockstepWork(tensors, finish)
        handle = ctypes.c_void_p()
        with self._lock:
            start(ctypes.byref(handle))
            self._works.put((work, handle, tensors))
        return work

    # Reductions.

    def _reduce(self, function, tensor, op, options, results, finish=None):
        """Reduces `tensor`, which is contiguous, in place; then finish(), and `results`."""
        number, kind = getattr(op, "op", op), tensor.dtype
        before = 1.0
        if number == ReduceOp.PREMUL_SUM:
            before = float(op.factor)
        if number in BITWISE:
            return self._reduce_bits(function, tensor, BITWISE[number], options, results, finish)
        if kind in COMPLEX:
            if number not in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM):
                _refuse(function, f"a sum or an average of {kind}", op)
            return self._reduce(function, torch.view_as_real(tensor), op, options, results, finish)
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

        return self._run(options, results, start,
                         copy_back if kind in WIDENED or finish is not None else None)

    def _reduce_bits(self, function, tensor, combine, options, results, finish):
        if tensor.is_floating_point() or tensor.is_complex():
            _refuse(function, "integers for an operation on bits", tensor.dtype)
        gathered = torch.empty((self._size, *tensor.shape), dtype=tensor.dtype)

        def combine_all():
            tensor.copy_(gathered[0])
            for other in gathered[1:]:
                combine(tensor, other, out=tensor)
            if finish is not None:
                finish()

        return self._gather_into(options, gathered, tensor, results, combine_all)

    def allreduce(self, tensors, options=None):
        tensor, = self._dense("all_reduce", tensors)
        target = tensors[0]
        back = None if tensor is target else lambda: target.copy_(tensor)
        return self._reduce("all_reduce", tensor, options.reduceOp if options else ReduceOp.SUM,
                            options, tensors, back)

    def allreduce_coalesced(self, tensors, options=None):
        kinds = {tensor.dtype for tensor in tensors}
        if len(kinds) > 1:
            _refuse("all_reduce_coalesced", "tensors of one type", kinds)
        flat = torch.cat([tensor.reshape(-1) for tensor in self._dense("all_reduce", tensors)])

        def spread():
            for tensor, part in zip(tensors, flat.split([one.numel() for one in tensors])):
                tensor.copy_(part.view(tensor.shape))

        return self._reduce("all_reduce_coalesced", flat,
                            options.reduceOp if options else ReduceOp.SUM, options, tensors, spread)

    def reduce(self, tensors, options=None):
        tensor, = self._dense("reduce", tensors)
        kept, target = tensor.clone(), tensors[0]

        def on_root():
            if self._rank == options.rootRank:
                target.copy_(kept)

        return self._reduce("reduce", kept, options.reduceOp, options, tensors, on_root)

    def _reduce_scatter_single(self, output, tensor, options=None):
        self._same_parts("reduce_scatter", tensor, output)
        whole = self._dense("reduce_scatter", [tensor])[0].clone().view(-1)
        count = output.numel()
        op = options.reduceOp if options else ReduceOp.SUM
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

            return self._run(options, [output], start, copy_part)
        return self._reduce("reduce_scatter", whole, op, options, [output], copy_part)

    def reduce_scatter(self, outputs, inputs, options=None):
        whole = torch.cat([part.reshape(-1) for part in inputs[0]])
        return self._reduce_scatter_single(outputs[0], whole, options)

    def reduce_scatter_single_coalesced(self, outputs, inputs, options=None):
        return [self._reduce_scatter_single(*pair, options) for pair in zip(outputs, inputs)][-1]

    # Copies.

    def broadcast(self, tensors, options=None):
        tensor, = self._dense("broadcast", tensors)
        target = tensors[0]

        def start(request):
            c.broadcast_start(self._session, tensor.data_ptr(), _bytes(tensor), options.rootRank,
                              request)

        return self._run(options, tensors, start,
                         None if tensor is target else lambda: target.copy_(tensor))

    def _gather_into(self, options, output, tensor, results, finish=None):
        """Concatenates `tensor` of all ranks in `output`, which is contiguous."""
        sizes = (ctypes.c_size_t * self._size)()

        def start(request):
            c.all_gather_unequal_start(self._session, tensor.data_ptr(), _bytes(tensor),
                                       output.data_ptr(), _bytes(output), sizes, request)

        def check():
            if any(size != _bytes(tensor) for size in sizes):
                rank = next(i for i, size in enumerate(sizes) if size != _bytes(tensor))
                _refuse("all_gather", "tensors of the same size on all ranks",
                        f"{_bytes(tensor)} bytes on rank {self._rank} and {sizes[rank]} on rank "
                        f"{rank}")
            if finish is not None:
                finish()

        return self._run(options, results, start, check)

    def _all_gather_single(self, output, tensor, options=None):
        self._same_parts("all_gather", output, tensor)
        source, = self._dense("all_gather", [tensor])
        into, = self._dense("all_gather", [output])
        return self._gather_into(options, into, source, [output],
                                 None if into is output else lambda: output.copy_(into))

    def allgather(self, outputs, inputs, options=None):
        source, = self._dense("all_gather", inputs)
        gathered = torch.empty((self._size, *source.shape), dtype=source.dtype)
        for output in outputs[0]:
            if output.shape != source.shape or output.dtype != source.dtype:
                _refuse("all_gather", f"outputs of {source.dtype} {tuple(source.shape)}",
                        f"{output.dtype} {tuple(output.shape)}")

        def spread():
            for output, part in zip(outputs[0], gathered):
                output.copy_(part)

        return self._gather_into(options, gathered, source, outputs[0], spread)

    def allgather_coalesced(self, outputs, inputs, options=None):
        by_input = [[ranks[i] for ranks in outputs] for i in range(len(inputs))]
        return [self.allgather([parts], [one], options)
                for parts, one in zip(by_input, inputs)][-1]

    def all_gather_single_coalesced(self, outputs, inputs, options=None):
        return [self._all_gather_single(*pair, options) for pair in zip(outputs, inputs)][-1]

    def gather(self, outputs, inputs, options=None):
        source, = self._dense("gather", inputs)
        is_root = self._rank == options.rootRank
        sizes = [_bytes(source) if rank == options.rootRank else 0 for rank in range(self._size)]
        gathered = torch.empty((self._size if is_root else 0, *source.shape), dtype=source.dtype)

        def spread():
            for output, part in zip(outputs[0] if is_root else (), gathered):
                output.copy_(part)

        # Only the root's part of what this rank sends is not empty.
        return self._exchange("gather", options, source, sizes, gathered,
                              outputs[0] if is_root else [], spread)

    def scatter(self, outputs, inputs, options=None):
        is_root = self._rank == options.rootRank
        output = outputs[0]
        into, = self._dense("scatter", outputs)
        source = (torch.stack([part.reshape(output.shape) for part in inputs[0]]) if is_root
                  else torch.empty(0, dtype=output.dtype))
        sizes = [_bytes(output) if is_root else 0] * self._size
        return self._exchange("scatter", options, source, sizes, into, outputs,
                              None if into is output else lambda: output.copy_(into))

    def _exchange(self, function, options, source, sent, output, results, finish=None,
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

        return self._run(options, results, start, check)

    def _all_to_all_single(self, output, tensor, output_splits, input_splits, options=None):
        source, = self._dense("all_to_all", [tensor])
        into, = self._dense("all_to_all", [output])
        row = _bytes(source) // source.shape[0] if source.numel() else 0
        splits = input_splits or [source.shape[0] // self._size] * self._size
        if sum(splits) != source.shape[0]:
            _refuse("all_to_all", f"splits that add up to {source.shape[0]} rows", splits)
        expected = [rows * row for rows in output_splits] if output_splits and row else None
        return self._exchange("all_to_all", options, source, [rows * row for rows in splits], into,
                              [output], None if into is output else lambda: output.copy_(into),
                              expected)

    def alltoall(self, outputs, inputs, options=None):
        source = torch.cat([one.reshape(-1) for one in inputs])
        into = torch.empty(sum(one.numel() for one in outputs), dtype=source.dtype)

        def spread():
            for output, part in zip(outputs, into.split([one.numel() for one in outputs])):
                output.copy_(part.view(output.shape))

        return self._exchange("all_to_all", options, source, [_bytes(one) for one in inputs], into,
                              outputs, spread)

    def barrier(self, options=None):
        def start(request):
            if request is None:
                c.barrier(self._session)
            else:
                c.all_reduce_start(self._session, None, 0, TYPES["uint8"], OPS["sum"], 1.0, 1.0,
                                   request)

        return self._run(options, [], start)

    def send(self, tensors, to, tag):
        tensor, = self._dense("send", tensors)
        handle = ctypes.c_void_p()
        c.send_start(self._session, tensor.data_ptr(), _bytes(tensor), to, tag,
                     ctypes.byref(handle))
        return MessageWork(handle, [tensor])

    def recv(self, tensors, source, tag):
        into, = self._dense("recv", tensors)
        handle, target = ctypes.c_void_p(), tensors[0]
        c.receive_start(self._session, into.data_ptr(), _bytes(into), source, tag, None,
                        ctypes.byref(handle))
        return MessageWork(handle, [into],
                           None if into is target else lambda: target.copy_(into))

    def recv_anysource(self, tensors, tag):
        return self.recv(tensors, -1, tag)

    def monitored_barrier(self, options=None, wait_all_ranks=False):
        with self._lock:
            c.barrier(self._session)

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

    def _same_parts(self, function, whole, part):
        if whole.numel() != part.numel() * self._size or whole.dtype != part.dtype:
            _refuse(function, f"{self._size} parts of {part.numel()} {part.dtype}",
                    f"{whole.numel()} elements of {whole.dtype}")


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


# Groups that the program has not destroyed, and threads of those that it has.
_open = weakref.WeakSet()
_leaving = []
_dropped = []  # messages that nobody waits for


def _leave_all():
    if has_failed():
        return
    for group in list(_open):
        group.shutdown()
    for thread in _leaving:
        thread.join()


atexit.register(_leave_all)


def _own_address(store):
    """The address of this host for the others: that from which it reaches the store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    if host is None:
        return socket.gethostname()
    try:
        with socket.socket(socket.getaddrinfo(host, 1)[0][0], socket.SOCK_DGRAM) as probe:
            probe.connect((host, 1))
            own = probe.getsockname()[0]
    except OSError:
        return host
    return host if own.startswith("127.") or own == "::1" else own


def _join(store, rank, size, timeout):
    """A session of the ranks of `store`. Rank 0 draws a secret, and says where it listens."""
    options = c.default_session_options()
    options.quiet = 1
    options.start_timeout = timeout
    options.stall_timeout = min(timeout, USUAL_STALL_TIMEOUT)
    options.world_size, options.rank = size, rank
    key = "lockstep"
    if rank == 0:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) \
            if socket.has_dualstack_ipv6() else socket.create_server(("", 0))
        host = _own_address(store)
        place = {"address": f"[{host}]:{listener.getsockname()[1]}" if ":" in host
                 else f"{host}:{listener.getsockname()[1]}", "secret": secrets.token_hex(32)}
        store.set(key, json.dumps(place))
        options.listener = listener.detach()
    else:
        place = json.loads(store.get(key))
    options.address, options.secret = place["address"].encode(), place["secret"].encode()
    session = ctypes.c_void_p()
    c.init(ctypes.byref(options), ctypes.byref(session))
    return session
