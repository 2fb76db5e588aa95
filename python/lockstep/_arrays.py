"""Collectives of numpy arrays. numpy is imported when an array is there."""
import ctypes
import json
import sys

from ._library import OPS, TYPES, InputError, c
from ._session import session


class Request:
    """A collective in the background. The arrays of the call are in use until it is complete."""

    def __init__(self, handle, result):
        self._handle = handle
        self._result = result

    def test(self):
        """Whether the collective is complete.

        Raises:
            CommunicationError: it failed.
        """
        done = ctypes.c_int(1)
        if self._handle:
            c.test(self._handle, ctypes.byref(done))
        return done.value != 0

    def wait(self):
        """Returns the result when the collective is complete.

        Raises:
            CommunicationError: it failed.
        """
        handle, self._handle = self._handle, None
        if handle:
            c.wait(handle)
        return self._result

    def __del__(self):
        if self._handle:
            try:
                c.wait(self._handle)
            except Exception:  # the next collective raises it
                pass


def _refuse(where, expected, actual):
    raise InputError(f"[lockstep.{where}] expected {expected}, got {actual}")


def _address(array):
    return array.__array_interface__["data"][0]


def _array(where, array):
    """`array` as a contiguous array of this machine's byte order."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        import numpy
    array = numpy.asarray(array)
    if array.dtype.hasobject:
        _refuse(where, "an array of numbers", f"one of {array.dtype}")
    return numpy.asarray(array, array.dtype.newbyteorder("="), order="C")


def _result(where, array, out):
    """Where the result goes that has the shape and type of `array`, filled with its values."""
    if out is None:
        return array.copy()
    if (out.shape != array.shape or out.dtype != array.dtype or not out.flags.c_contiguous
            or not out.flags.writeable):
        _refuse(where, f"a writable contiguous `out` of {array.dtype} {array.shape}",
                f"{out.dtype} {out.shape}, strides {out.strides}")
    if _address(out) != _address(array):
        out[...] = array
    return out


def _code(where, what, names, value):
    code = names.get(value)
    if code is None:
        _refuse(where, f"{what} among {', '.join(names)}", repr(value))
    return code


def _allreduce(where, array, op, out, prescale_factor, postscale_factor, request):
    array = _array(where, array)
    kind = _code(where, "an array of a type", TYPES, array.dtype.name)
    result = _result(where, array, out)
    c.all_reduce_start(session(), _address(result), result.size, kind, _code(where, "op", OPS, op),
                       prescale_factor, postscale_factor, request)
    return result


def allreduce(array, op="sum", *, out=None, prescale_factor=1.0, postscale_factor=1.0):
    """Reduces an array over all ranks, element by element.

    The result is the same to the bit on all ranks and in every run. Integers wrap around; a NaN on
    any rank makes the element NaN.

    Args:
        array: of the same shape and type on all ranks: float32, float64, int32, int64, float16,
            bfloat16 (of ml_dtypes) or uint8.
        op: "sum", "average" (of floating-point numbers), "min", "max" or "product".
        out: an array for the result, such as `array` itself; by default a new one.
        prescale_factor, postscale_factor: factors of the elements before and after the reduction;
            floating-point numbers only.

    Returns:
        The result, of the shape and type of `array`.

    Raises:
        InputError: an argument is invalid; nothing was reduced.
        CommunicationError: shapes or types of ranks differ, or a rank was lost.

    Collective.
    """
    return _allreduce("allreduce", array, op, out, prescale_factor, postscale_factor, None)


def allreduce_async(array, op="sum", *, out=None, prescale_factor=1.0, postscale_factor=1.0):
    """allreduce() in the background, after the collectives that were started before.

    Returns:
        A Request, whose wait() returns the result.
    """
    handle = ctypes.c_void_p()
    result = _allreduce("allreduce_async", array, op, out, prescale_factor, postscale_factor,
                        ctypes.byref(handle))
    return Request(handle, result)


def _broadcast(where, array, root, out, request):
    array = _array(where, array)
    result = _result(where, array, out)
    c.broadcast_start(session(), _address(result), result.nbytes, root, request)
    return result


def broadcast(array, root=0, *, out=None):
    """Copies the array of rank `root` to all ranks.

    Args:
        array: of the same shape and type on all ranks; its values matter on `root`.
        root: the rank that has the values.
        out: an array for the result, such as `array` itself; by default a new one.

    Returns:
        The values of `root`, in the shape of `array`.

    Raises:
        InputError: an argument is invalid.
        CommunicationError: numbers of bytes differ, or a rank was lost.

    Collective.
    """
    return _broadcast("broadcast", array, root, out, None)


def broadcast_async(array, root=0, *, out=None):
    """broadcast() in the background, after the collectives that were started before.

    Returns:
        A Request, whose wait() returns the result.
    """
    handle = ctypes.c_void_p()
    result = _broadcast("broadcast_async", array, root, out, ctypes.byref(handle))
    return Request(handle, result)


def _sizes(count):
    return (ctypes.c_size_t * count)()


def _with_rows(where, array):
    """`array` as above, with at least one axis."""
    array = _array(where, array)
    if array.ndim == 0:
        _refuse(where, "an array with at least one axis", "a scalar")
    return array


def _gather_numbers(where, array, numbers):
    """The `numbers` of all ranks, in rank order. Raises InputError on all ranks unless their rows
    have the same shape and type.
    """
    ranks = c.world_size(session())
    mine = json.dumps([array.dtype.str, array.shape[1:], numbers]).encode()
    length, lengths = ctypes.c_size_t(len(mine)), _sizes(ranks)
    c.all_gather(session(), ctypes.byref(length), ctypes.sizeof(length), lengths)
    total = sum(lengths)
    joined, sizes = ctypes.create_string_buffer(total), _sizes(ranks)
    c.all_gather_unequal_start(session(), mine, len(mine), joined, total, sizes, None)
    gathered, begin = [], 0
    for rank, length in enumerate(sizes):
        *rows, numbers = json.loads(joined.raw[begin:begin + length])
        begin += length
        if rank == 0:
            first = rows
        elif rows != first:
            _refuse(where, "rows of the same type and shape on all ranks",
                    f"{first} on rank 0 and {rows} on rank {rank}")
        gathered.append(numbers)
    return gathered


def allgather(array):
    """Concatenates the arrays of all ranks along the first axis.

    Args:
        array: of any type of numbers and at least one axis. The first extent may differ between
            ranks; the others, and the type, are the same.

    Returns:
        A new array with the rows of all ranks, in rank order.

    Raises:
        InputError: an argument is invalid, or the ranks' rows differ; then on all ranks.
        CommunicationError: a rank was lost, or called something else.

    Collective.
    """
    import numpy
    array = _with_rows("allgather", array)
    counts = _gather_numbers("allgather", array, array.shape[0])
    result = numpy.empty((sum(counts), *array.shape[1:]), array.dtype)
    c.all_gather_unequal_start(session(), _address(array), array.nbytes, _address(result),
                               result.nbytes, _sizes(len(counts)), None)
    return result


def alltoall(array, splits=None):
    """Sends to each rank some rows of the array, and returns the rows that were sent to this one.

    Args:
        array: of any type of numbers and at least one axis. The first extent may differ between
            ranks; the others, and the type, are the same.
        splits: the number of rows for each rank, in rank order; by default the same for all.

    Returns:
        A new array with the received rows, in rank order, and the number of those from each rank.

    Raises:
        InputError: an argument is invalid, or the ranks' rows differ; then on all ranks.
        CommunicationError: a rank was lost, or called something else.

    Collective.
    """
    import numpy
    array = _with_rows("alltoall", array)
    ranks = c.world_size(session())
    rows = array.shape[0]
    if splits is None:
        if rows % ranks:
            _refuse("alltoall", f"splits, or rows for {ranks} ranks", f"{rows} rows")
        splits = [rows // ranks] * ranks
    splits = [int(split) for split in splits]
    if len(splits) != ranks or min(splits) < 0 or sum(splits) != rows:
        _refuse("alltoall", f"{ranks} splits that add up to {rows} rows", splits)
    received = [numbers[c.rank(session())]
                for numbers in _gather_numbers("alltoall", array, splits)]
    result = numpy.empty((sum(received), *array.shape[1:]), array.dtype)
    row = array.nbytes // rows if rows else 0
    sent = (ctypes.c_size_t * ranks)(*(split * row for split in splits))
    c.all_to_all_start(session(), _address(array), sent, _address(result), result.nbytes,
                       _sizes(ranks), None)
    return result, numpy.array(received)
