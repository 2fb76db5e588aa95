"""A rank: what cannot be done is an error on this rank, or on all, and the next call works."""
import importlib
import re

import lockstep
import numpy


def refuses(kind, pattern, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        if re.search(pattern, str(error)):
            return
        raise
    raise AssertionError(f"{function.__name__} accepted {arguments}")


refuses(lockstep.InputError, r"expected lockstep.init\(\) first", lockstep.rank)
for module in ("spark", "ray", "tensorflow", "mxnet"):
    refuses(ImportError, f"lockstep.{module}. expected", importlib.import_module,
            f"lockstep.{module}")
refuses(AttributeError, "lockstep launch", getattr, lockstep, "run")
refuses(lockstep.InputError, "--allreduce.*expected", lockstep.init, allreduce="fast")
lockstep.init()
rank, size = lockstep.rank(), lockstep.size()
one = numpy.ones(4, "float32")
refuses(lockstep.InputError, "got another call", lockstep.init)
refuses(ValueError, "type among float32, .* got 'bool'", lockstep.allreduce, one > 0)
refuses(ValueError, "type among float32, .* got 'complex64'", lockstep.allreduce, one * 1j)
refuses(ValueError, "array of numbers, got one of object", lockstep.allreduce, [object()])
refuses(ValueError, "op among sum, max, min, product, average, got 'mean'", lockstep.allreduce,
        one, "mean")
refuses(ValueError, "floating-point", lockstep.allreduce, numpy.ones(2, "int32"), "average")
refuses(ValueError, r"writable contiguous `out` of float32 \(4,\), got float64 \(4,\)",
        lockstep.allreduce, one, out=numpy.ones(4))
refuses(ValueError, "strides", lockstep.allreduce, one, out=numpy.ones(8, "float32")[::2])
refuses(ValueError, "root from 0 to 1, got 2", lockstep.broadcast, one, 2)
refuses(ValueError, "at least one axis, got a scalar", lockstep.allgather, 1)
refuses(ValueError, "splits, or rows for 2 ranks, got 3 rows", lockstep.alltoall, numpy.ones(3))
refuses(ValueError, r"2 splits that add up to 3 rows, got \[1, 1\]", lockstep.alltoall,
        numpy.ones(3), [1, 1])
# On all ranks alike.
refuses(ValueError, "rows of the same type and shape on all ranks", lockstep.allgather,
        numpy.ones((2, 3 + rank)))
refuses(ValueError, "rows of the same type and shape on all ranks", lockstep.alltoall,
        numpy.ones(2, "float32" if rank else "float64"))
assert lockstep.allreduce(one)[0] == size
