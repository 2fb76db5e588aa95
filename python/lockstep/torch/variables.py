"""The variables HOROVOD_… of the environment."""
import os
import sys

from .._library import InputError

# Variables of Horovod with a meaning here; of its launcher; the others are listed as ignored.
_HONOURED = {"TIMELINE", "TIMELINE_MARK_CYCLES", "FUSION_THRESHOLD", "STALL_CHECK_DISABLE",
             "STALL_CHECK_TIME_SECONDS", "STALL_SHUTDOWN_TIME_SECONDS", "DYNAMIC_PROCESS_SETS",
             "GLOO_TIMEOUT_SECONDS"}
_OF_LAUNCHER = {"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE",
                "HOSTNAME", "CONTROLLER", "CPU_OPERATIONS"}


def number_of(name, usual):
    """The number in HOROVOD_`name`."""
    try:
        return float(os.environ.get(f"HOROVOD_{name}", usual))
    except ValueError:
        raise InputError(f"[HOROVOD_{name}] expected a number, got "
                         f"{os.environ[f'HOROVOD_{name}']!r}") from None


def name_ignored_variables():
    """Prints those that are set and have no meaning here."""
    ignored = sorted(name for name in os.environ if name.startswith("HOROVOD_") and
                     name.removeprefix("HOROVOD_") not in _HONOURED | _OF_LAUNCHER)
    if ignored:
        print("lockstep: these variables have no meaning here, and are ignored: "
              f"{', '.join(ignored)}", file=sys.stderr, flush=True)
