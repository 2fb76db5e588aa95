"""The times of calls, in the format of Chrome's traces."""
import json
import os
import sys
import threading
import time


class Timeline:
    """A file of the calls of rank 0: of each, how long it was announced before it was made, and how
    long it took.
    """

    def __init__(self, rank, size):
        self._rank, self._size = rank, size
        self._file = None
        self._guard = threading.Lock()
        self._marks_cycles = False
        self._lanes = {}

    def start(self, path, marks_cycles):
        """Begins a file; an earlier one ends."""
        self.stop()
        if self._rank != 0:
            return
        with self._guard:
            self._file = open(path, "w", encoding="utf-8")
            self._file.write("[\n")
            self._marks_cycles, self._lanes = marks_cycles, {}
            self._write(name="process_name", ph="M", pid=os.getpid(),
                        args={"name": "lockstep, rank 0",
                              "start_time_since_epoch_in_micros": time.time_ns() // 1000})
            self._file.flush()

    def stop(self):
        with self._guard:
            if self._file is not None:
                self._file.write("{}]\n")
                self._file.close()
                self._file = None

    def _write(self, **event):
        json.dump(event, self._file)
        self._file.write(",\n")

    def _mark(self, call, phase, name=None):
        lane = self._lanes.get(call.name)
        if lane is None:
            lane = self._lanes[call.name] = len(self._lanes) + 1
            self._write(name="thread_name", ph="M", pid=os.getpid(), tid=lane,
                        args={"name": call.name})
        event = {"name": name} if name else {}
        self._write(**event, ph=phase, ts=time.monotonic_ns() / 1000, pid=os.getpid(), tid=lane)

    def observe(self, what, about):
        """Called by Negotiation: when a call begins, when calls are made and have ended, when one
        is refused, for each cycle, and for a call for which other ranks are missing.
        """
        if what == "stall":
            call, missing, seconds = about
            others = ", ".join(map(str, missing))
            print(f"lockstep: warning: rank {self._rank}: [{call.name}] expected all ranks to call "
                  f"it within {seconds:.0f} s, got none from "
                  f"{f'some of ranks {others}' if len(missing) > 1 else f'rank {others}'}",
                  file=sys.stderr, flush=True)
            return
        if self._file is None:
            return
        with self._guard:
            try:
                if self._file is not None:
                    self._record(what, about)
            except OSError as error:
                self._file = None
                print(f"lockstep: warning: [timeline] expected to write, got {error}: it ends here",
                      file=sys.stderr, flush=True)

    def _record(self, what, about):
        if what == "cycle" and self._marks_cycles:
            self._write(name="CYCLE_START", ph="i", ts=time.monotonic_ns() / 1000,
                        pid=os.getpid(), s="p")
        elif what == "begin":
            self._mark(about, "B", f"NEGOTIATE_{about.kind.upper()}")
        elif what == "refused":
            self._mark(about, "E")
        elif what in ("made", "end"):
            for call in about:
                if call.since is None:  # that of a rank that has joined
                    continue
                self._mark(call, "E")
                if what == "made":
                    self._mark(call, "B", call.kind.upper())
            self._file.flush()
