"""A rank of a job that ends as ENDING says, by rank 1."""
import os
import signal
import sys
import time

import lockstep
import numpy

ending = os.environ["ENDING"]
lockstep.init()
for step in range(1000):
    if lockstep.rank() == 1 and step == 5:
        if ending == "exception":
            raise ValueError("of rank 1")
        if ending == "exit":
            sys.exit(7)
        if ending in ("killed", "stopped", "interrupt"):
            os.kill(os.getpid(), {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP,
                                  "interrupt": signal.SIGINT}[ending])
        if ending == "differ":
            lockstep.allreduce(numpy.ones(3))
    lockstep.allreduce(numpy.ones(4))
    time.sleep(0.01)
