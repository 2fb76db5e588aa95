"""A rank of jobs that this program describes itself: two at a time, then one that loses a rank.

The ranks find each other by files in the folder PLACE.
"""
import ctypes
import os
import pathlib
import socket
import threading
import time

from lockstep._library import OPS, TYPES, CommunicationError, InputError, c

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = pathlib.Path(os.environ["PLACE"])


def join(name, secret=b"0123456789abcdef"):
    options = c.default_session_options()
    options.quiet, options.stall_timeout = 1, 50
    options.world_size, options.rank, options.secret = SIZE, RANK, secret
    place = PLACE / name
    if RANK == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        options.listener = listener.fileno()
        draft = place.with_suffix(".draft")
        draft.write_text(f"127.0.0.1:{listener.getsockname()[1]}")
        draft.rename(place)
        listener.detach()
    while not place.exists():
        time.sleep(0.01)
    options.address = place.read_text().encode()
    session = ctypes.c_void_p()
    c.init(ctypes.byref(options), ctypes.byref(session))
    return session


def start_sum(session, values):
    request = ctypes.c_void_p()
    c.all_reduce_start(session, values, len(values), TYPES["int32"], OPS["sum"], 1, 1,
                       ctypes.byref(request))
    return request


def numbers():
    return (ctypes.c_int32 * 1000)(*range(1000))


both = [join("first"), join("second")]
assert [c.rank(one) for one in both] == [RANK, RANK]
# In another order on each rank.
order = both if RANK == 0 else both[::-1]
for _ in range(50):
    values = [numbers() for _ in order]
    for request in [start_sum(*pair) for pair in zip(order, values)]:
        c.wait(request)
    assert all(list(one) == [SIZE * number for number in range(1000)] for one in values)
endings = []
for one in order:
    endings.append(threading.Thread(target=c.finalize, args=(one,)))
    endings[-1].start()
for ending in endings:
    ending.join()

options = c.default_session_options()
options.world_size, options.rank, options.address = 2, 2, b"127.0.0.1:1"
try:
    c.init(ctypes.byref(options), ctypes.byref(ctypes.c_void_p()))
    raise AssertionError("a rank out of range was accepted")
except InputError as error:
    assert "expected a rank from 0 to 1" in str(error), error

def fails(request, pattern):
    try:
        c.wait(request)
    except CommunicationError as error:
        assert pattern in str(error), error
        return
    raise AssertionError("expected an error of " + pattern)


# A rank ends what is in progress, and a message outlives its session.
ended = join("ended")
message, into = ctypes.c_void_p(), ctypes.create_string_buffer(4)
c.receive_start(ended, into, 4, (RANK + 1) % SIZE, 7, None, ctypes.byref(message))
if RANK == 0:
    c.abort(ended)
else:
    fails(start_sum(ended, numbers()), "rank 0 called lockstep_abort")
c.finalize(ended)
fails(message, "rank 0 called lockstep_abort" if RANK == 0 else "the session has ended")

third = join("third")
c.barrier(third)
if RANK == SIZE - 1:
    os._exit(0)
try:
    for _ in range(100):
        c.wait(start_sum(third, numbers()))
        time.sleep(0.05)
    raise AssertionError("the rank was not missed")
except CommunicationError as error:
    assert f"rank {SIZE - 1}" in str(error), error
c.finalize(third)
print(f"rank {RANK}: goes on", flush=True)
