"""What a collective or a message returns: torch.distributed.Work."""
import ctypes

import torch
from torch._C._distributed_c10d import Work, _allow_inflight_collective_as_graph_input

from .._library import c


class DoneWork(Work):
    """A collective that the caller has waited for."""

    def __init__(self, result, number=0):
        super().__init__()
        self._result = result
        self._number = number

    def wait(self, timeout=None):
        return True

    synchronize = is_completed = is_success = wait

    def result(self):
        return self._result

    def get_future(self):
        future = torch.futures.Future()
        future.set_result(self._result)
        return future

    def _get_sequence_number(self):
        return self._number


class LockstepWork(Work):
    """A collective. `finish` runs when its request is complete; `result` are its tensors."""

    def __init__(self, result, finish, number):
        super().__init__()
        self._result = result
        self._finish = finish
        self._number = number
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
        if _allow_inflight_collective_as_graph_input():
            for tensor in self._result:  # torch keeps a collective until its tensor is waited for
                torch.ops._c10d_functional.wait_tensor(tensor)
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._ended.done()

    def is_success(self):
        return self._ended.done() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._result

    def get_future(self):
        return self._future

    def _get_sequence_number(self):
        return self._number


class Works(Work):
    """Several collectives. The error is the first one's that has one."""

    def __init__(self, works):
        super().__init__()
        self._works = works

    def wait(self, timeout=None):
        return all([work.wait() for work in self._works])

    synchronize = wait

    def is_completed(self):
        return all(work.is_completed() for work in self._works)

    def result(self):
        return [tensor for work in self._works for tensor in work.result()]

    def get_future(self):
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda done: [tensor for future in done.value()
                                          for tensor in future.value()])


class MessageWork(Work):
    """A message that is sent or received, by this thread alone. `source` is filled with the rank
    that has sent it. `dropped`: messages that nobody waits for, as this one may become.
    """

    def __init__(self, handle, tensors, dropped, source=None, finish=None):
        super().__init__()
        self._dropped = dropped
        self._handle = handle
        self._tensors = tensors
        self._source = source
        self._finish = finish
        complete_dropped(dropped)

    def wait(self, timeout=None):
        handle, self._handle = self._handle, None
        if handle is not None:
            c.wait(handle)
            if self._finish is not None:
                self._finish()
        return True

    synchronize = wait

    def is_completed(self):
        if self._handle is None:
            return True
        done = ctypes.c_int()
        c.test(self._handle, ctypes.byref(done))
        return bool(done.value) and self.wait()

    is_success = is_completed

    def _source_rank(self):
        return self._source.value

    source_rank = _source_rank

    def result(self):
        return self._tensors

    def get_future(self):
        future = torch.futures.Future()
        self.wait()
        future.set_result(self._tensors)
        return future

    def __del__(self):
        if self._handle is not None:  # its memory is in use for as long as it is not complete
            self._dropped.append((self._handle, self._tensors, self._source, self._finish))


def complete_dropped(dropped):
    """Frees the messages that are complete."""
    kept = []
    while dropped:
        message = dropped.pop()
        handle, _tensors, _source, finish = message
        done = ctypes.c_int()
        try:
            c.test(handle, ctypes.byref(done))
            if not done.value:
                kept.append(message)
                continue
            c.wait(handle)
        except Exception:  # the group has failed: the next call raises it
            continue
        if finish is not None:
            finish()
    dropped.extend(kept)
