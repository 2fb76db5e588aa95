"""What a collective or a message returns: torch.distributed.Work."""
import concurrent.futures
import ctypes
import threading
import time

import torch
from torch._C._distributed_c10d import Work, _allow_inflight_collective_as_graph_input

from .._library import CommunicationError, c


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


def call(finish):
    """Calls what completes a call: it writes to tensors of any kind, whatever the caller's mode."""
    with torch.inference_mode():
        finish()


# Where callbacks of futures run, which may themselves wait for collectives.
_callbacks = concurrent.futures.ThreadPoolExecutor(64, "lockstep callbacks")


class LockstepWork(Work):
    """A collective. `finish` runs when its request is complete; `result` are its tensors."""

    def __init__(self, result, finish, number):
        super().__init__()
        self._result = result
        self._finish = finish
        self._number = number
        self._error = None
        self._is_done = False
        self._pending = threading.Lock()  # held until it is done
        self._pending.acquire()
        self._guard = threading.Lock()
        self._ended = self._future = None

    def complete(self, error=None):
        if error is None and self._finish is not None:
            try:
                call(self._finish)
            except Exception as raised:
                error = raised
        self._finish = None
        self._error = error
        with self._guard:
            self._is_done = True
        self._pending.release()
        if self._ended is not None:
            try:
                _callbacks.submit(self._ended.set_result, None)
            except RuntimeError:  # the interpreter ends
                self._ended.set_result(None)

    def _outcome(self, _ended):
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else 0
        if not self._pending.acquire(timeout=seconds if seconds > 0 else -1):
            raise CommunicationError(f"[wait] expected the collective within {seconds:g} s, got "
                                     "none (timeout)")
        self._pending.release()
        if self._error is not None:
            raise self._error
        if _allow_inflight_collective_as_graph_input():
            for tensor in self._result:  # torch keeps a collective until its tensor is waited for
                torch.ops._c10d_functional.wait_tensor(tensor)
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self._is_done

    def is_success(self):
        return self._is_done and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._result

    def get_future(self):
        with self._guard:
            is_new = self._future is None
            if is_new:
                # An error of a callback is one for torch's code in C++ too, that of
                # set_exception() is not.
                self._ended = torch.futures.Future()
                self._future = self._ended.then(self._outcome)
            is_done = self._is_done
        if is_new and is_done:
            self._ended.set_result(None)
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
    """A message that is sent or received, by one thread. `source` is filled with the rank that has
    sent it. `dropped`: messages that nobody waits for, as this one may become.
    """

    def __init__(self, handle, tensors, dropped, source=None, finish=None):
        super().__init__()
        self._handle = handle
        self._tensors = tensors
        self._dropped = dropped
        self._source = source
        self._finish = finish
        self._error = None
        complete_dropped(dropped)

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else 0
        deadline = time.monotonic() + seconds
        while seconds > 0 and not self._is_there():
            if time.monotonic() > deadline:
                raise CommunicationError(f"[wait] expected the message within {seconds:g} s, got "
                                         "none (timeout)")
            time.sleep(0.0002)
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                c.wait(handle)
                if self._finish is not None:
                    call(self._finish)
            except Exception as error:
                self._error = error
                # The transport may still have the memory, until the group ends.
                self._dropped.append((None, self._tensors, self._source, None))
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self):
        self.wait()

    def _is_there(self):
        """Whether wait() returns or raises at once."""
        if self._handle is None:
            return True
        done = ctypes.c_int()
        try:
            c.test(self._handle, ctypes.byref(done))
        except Exception:
            return True
        return bool(done.value)

    def is_completed(self):
        if not self._is_there():
            return False
        try:
            self.wait()
        except Exception:  # which wait() raises again
            pass
        return True

    def is_success(self):
        return self._handle is None and self._error is None

    def exception(self):
        return self._error

    def _source_rank(self):
        return self._source.value

    source_rank = _source_rank

    def result(self):
        return self._tensors

    def get_future(self):
        future = torch.futures.Future()
        try:
            self.wait()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(self._tensors)
        return future

    def __del__(self):
        if self._handle is not None:  # its memory is in use for as long as it is not complete
            self._dropped.append((self._handle, self._tensors, self._source, self._finish))


def complete_dropped(dropped):
    """Frees the messages that are complete."""
    for _ in range(len(dropped)):
        message = dropped.pop(0)
        handle, _tensors, _source, finish = message
        if handle is None:
            dropped.append(message)
            continue
        done = ctypes.c_int(1)
        try:
            c.test(handle, ctypes.byref(done))
        except Exception:  # wait() ends it with the same error
            pass
        if not done.value:
            dropped.append(message)
            continue
        try:
            c.wait(handle)
            if finish is not None:
                call(finish)
        except Exception:  # the next call raises it; the transport may still have the memory
            dropped.append((None, *message[1:]))
