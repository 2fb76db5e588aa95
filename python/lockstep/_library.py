"""The C interface of the core (lockstep/interop/c_api.h): c.NAME is lockstep_NAME(). Functions that
return a status raise exceptions instead.

tests/python/c_interface_test.py compares the table with the header.
"""
import ctypes
import types
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_void_p

from ._folder import FOLDER

TYPES = {"float32": 0, "float64": 1, "int32": 2, "int64": 3, "float16": 4, "bfloat16": 5,
         "uint8": 6}
OPS = {"sum": 0, "max": 1, "min": 2, "product": 3, "average": 4}


class Error(RuntimeError):
    """An error of the core: ``[where] expected …, got …``.

    ``status`` is the exit status of the program ``lockstep`` for errors of this kind.
    """

    status = 1


class InputError(Error, ValueError):
    """An invalid argument, or a call out of order. Nothing has changed."""

    status = 2


class DataError(Error):
    """Data, or a checkpoint, cannot be used."""

    status = 3


class CommunicationError(Error):
    """Ranks called different functions, or a rank was lost. The job can only end."""

    status = 4


class DeviceError(Error):
    """A device is missing or has failed."""

    status = 5


ERRORS = {kind.status: kind for kind in (Error, InputError, DataError, CommunicationError,
                                         DeviceError)}


class SessionOptions(ctypes.Structure):
    """lockstep_session_options."""

    _fields_ = [("size", c_size_t), ("stall_timeout", c_double), ("all_reduce", c_char_p),
                ("quiet", c_int), ("start_timeout", c_double), ("communicator", c_int),
                ("world_size", c_int), ("rank", c_int), ("address", c_char_p),
                ("listener", c_int), ("secret", c_char_p)]


# Functions that return a status: name, types of the arguments.
CHECKED = {
    "init": (POINTER(SessionOptions), POINTER(c_void_p)),
    "group_create": (c_void_p, POINTER(c_int), c_size_t, POINTER(c_void_p)),
    "all_reduce_start": (c_void_p, c_void_p, c_size_t, c_int, c_int, c_double, c_double,
                         POINTER(c_void_p)),
    "grouped_all_reduce_start": (c_void_p, POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_int,
                                 c_int, c_double, c_double, POINTER(c_void_p)),
    "broadcast_start": (c_void_p, c_void_p, c_size_t, c_int, POINTER(c_void_p)),
    "all_gather": (c_void_p, c_void_p, c_size_t, c_void_p),
    "all_gather_unequal_start": (c_void_p, c_void_p, c_size_t, c_void_p, c_size_t,
                                 POINTER(c_size_t), POINTER(c_void_p)),
    "all_to_all_start": (c_void_p, c_void_p, POINTER(c_size_t), c_void_p, c_size_t,
                         POINTER(c_size_t), POINTER(c_void_p)),
    "reduce_scatter_start": (c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_size_t),
                             POINTER(c_size_t), POINTER(c_void_p)),
    "send_start": (c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_void_p)),
    "receive_start": (c_void_p, c_void_p, c_size_t, c_int, c_int, POINTER(c_int),
                      POINTER(c_void_p)),
    "wait": (c_void_p,),
    "test": (c_void_p, POINTER(c_int)),
    "barrier": (c_void_p,),
    "any": (c_void_p, c_int, POINTER(c_int)),
}
# Other functions: type of the result, types of the arguments.
PLAIN = {
    "version": (c_char_p,),
    "last_error": (c_char_p,),
    "default_session_options": (SessionOptions,),
    "abort": (None, c_void_p),
    "finalize": (None, c_void_p),
    "still_at_work": (None, c_void_p),
    "rank": (c_int, c_void_p),
    "world_size": (c_int, c_void_p),
    "local_rank": (c_int, c_void_p),
    "local_size": (c_int, c_void_p),
    "node": (c_int, c_void_p),
}


def _load():
    path = FOLDER / "lib" / "liblockstep_core.so.0.1"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(
            f"[lockstep] expected the core library of this package, got: {error}") from None
    functions = {}

    def declare(name, result, arguments):
        function = functions[name] = getattr(library, "lockstep_" + name)
        function.restype, function.argtypes = result, arguments
        return function

    for name, (result, *arguments) in PLAIN.items():
        declare(name, result, arguments)
    last_error = functions["last_error"]

    def check(status, _function, _arguments):
        if status:
            raise ERRORS.get(status, Error)(last_error().decode(errors="replace"))

    for name, arguments in CHECKED.items():
        declare(name, c_int, arguments).errcheck = check
    return types.SimpleNamespace(**functions)


c = _load()
