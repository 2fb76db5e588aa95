"""What the tests use of Horovod's tools."""
import contextlib
import functools
import os

from lockstep.torch import gloo_built, mpi_built  # noqa: F401

_cache = functools.lru_cache


def extension_available(name):
    return name == "torch"


@contextlib.contextmanager
def env(**variables):
    earlier = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(earlier)
