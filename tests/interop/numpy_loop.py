"""A loop of numpy over the C interface by ctypes: double precision, numbers of samples that differ
between ranks, and a loader that ends earlier on one rank. Equals one process to 1e-12.

    mpirun -np N python3 numpy_loop.py LIBRARY
"""

import ctypes
import sys
from ctypes import byref, c_double, c_int, c_size_t, c_void_p

import numpy as np

lib = ctypes.CDLL(sys.argv[1])
lib.lockstep_last_error.restype = ctypes.c_char_p
UPDATE = ctypes.CFUNCTYPE(c_int, c_void_p)
FLOAT64, UINT8, SUM, AVERAGE = 1, 6, 0, 4


class Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("values", c_void_p), ("gradient", c_void_p),
                ("elements", c_size_t), ("type", c_int)]


def require(status):
    if status:
        raise RuntimeError(f"status {status}: {lib.lockstep_last_error().decode()}")


def gradient(weights, rows):
    x = np.sin(np.add.outer(1.7 * rows, 2.3 * np.arange(weights.size)))
    error = x @ (weights - np.arange(weights.size))
    return 2 * x.T @ error / len(rows)


def batch(step):
    return np.arange(11 * step, 11 * step + (11 if step < 5 else 6))


session = c_void_p()
require(lib.lockstep_init(None, byref(session)))
rank, size = lib.lockstep_rank(session), lib.lockstep_world_size(session)
weights, slopes, alone = np.full(4, float(rank)), np.zeros(4), np.zeros(4)


@UPDATE
def descend(_):
    weights[:] -= 0.05 * slopes
    return 0


parameter = Parameter(b"weights", weights.ctypes.data, slopes.ctypes.data, weights.size, FLOAT64)
optimizer = c_void_p()
require(lib.lockstep_optimizer_create(session, byref(parameter), c_size_t(1), None, descend, None,
                                      byref(optimizer)))
require(lib.lockstep_broadcast_parameters(optimizer, 0))
for step in range(6):
    rows = batch(step)
    alone -= 0.05 * gradient(alone, rows)
    rows = np.array_split(rows, size)[rank]
    if rank == size - 1 and size > 1 and step == 5:
        break  # its loader ends one batch early: the others take its part
    if step == 5 and size > 1:
        rows = np.array_split(batch(step), size - 1)[rank]
    slopes[:] = gradient(weights, rows)
    require(lib.lockstep_backward_done(optimizer, c_double(len(rows))))
    require(lib.lockstep_step(optimizer, None))
require(lib.lockstep_join(optimizer, None))
assert np.abs(weights - alone).max() <= 1e-12, (weights, alone)

mean, total = np.arange(5.0) + rank, np.full(3, 100 + rank, np.uint8)
requests = [c_void_p(), c_void_p()]
require(lib.lockstep_all_reduce_start(
    session, c_void_p(mean.ctypes.data), c_size_t(mean.size), FLOAT64, AVERAGE, c_double(1),
    c_double(1), byref(requests[0])))
require(lib.lockstep_all_reduce_start(
    session, c_void_p(total.ctypes.data), c_size_t(total.size), UINT8, SUM, c_double(1),
    c_double(1), byref(requests[1])))
for request in requests:
    require(lib.lockstep_wait(request))
assert np.array_equal(mean, np.arange(5.0) + (size - 1) / 2), mean
assert np.all(total == (100 * size + size * (size - 1) // 2) % 256), total
lib.lockstep_optimizer_free(optimizer)
lib.lockstep_finalize(session)
if rank == 0:
    print(f"numpy_loop: right on {size} ranks")
