"""Calls that ranks may start in any order: each rank announces those that it has started, and a
call is made when all ranks have announced it.

All ranks that have something to announce, or wait for a call, exchange announcements (a cycle).
From the same announcements every rank derives the same calls in the same order. A rank that has
joined takes part in all cycles, so that the others can go on without its data; so does one that
leaves, until all leave.
"""
import ctypes
import json
import threading
import time

from .._library import CommunicationError, InputError, c

LOOK = 1.0  # seconds after which a thread that waits looks for calls that do not go on
PAUSE = 0.001  # seconds before a cycle of its thread, and after one that made no call
GO_ON = ("allreduce", "barrier")  # without a rank that has joined
MOST_NUMBERS = 1 << 16  # names that are sent as a number from the second time on


class HorovodInternalError(RuntimeError):
    """Ranks differ in a call, or a rank was lost. With the name that Horovod gives it."""


def readable(terms):
    """The terms of a call, for a message: "float32 [2, 3], cpu, Average, 1.0, 1.0"."""
    types, shapes, *others = json.loads(terms) or ([], [])
    text = ", ".join([f"{'+'.join(types)} {'+'.join(map(str, shapes))}", *map(str, others)])
    return text if len(text) <= 200 else text[:200] + "…"


class Call:
    """A call that was started.

    Args:
        kind: the name of the function, such as "allreduce".
        name: by which ranks find the same call: unique among those that have not ended.
        terms: what must be the same on all ranks, as JSON.
        sizes: numbers that may differ, of which every rank learns those of all.
        start: is called with the sizes of all ranks, in rank order, when the call is made; returns
            its result.
    """

    def __init__(self, kind, name, terms, start, sizes=()):
        self.kind, self.name = kind, f"{kind}.{name}"
        self.terms = terms
        self.sizes = list(sizes)
        self.start = start
        self.since = None  # when it was started, if it was
        self._ended = threading.Lock()  # held until then
        self._ended.acquire()
        self._result = self._error = None
        self.is_done = False

    def end(self, result=None, error=None):
        self._result, self._error, self.start = result, error, None
        self.is_done = True
        self._ended.release()

    def wait(self, seconds=-1):
        """Whether the call has ended, at most after so long."""
        if not self._ended.acquire(timeout=seconds):
            return False
        self._ended.release()
        return True

    def result(self):
        if self._error is not None:
            raise self._error
        return self._result


class Negotiation:
    """The calls of the ranks of one session, of which this is number `rank`.

    Args:
        ranks: their numbers in the job, for messages.
        make: is called with calls that are ready; ends them.
        stand_in: returns the call of a rank that has joined, from its kind and terms.
        stall_seconds: after which a call that other ranks have not started is observed; 0: never.
        end_seconds: after which it ends the job; 0: never.
        observe: is called with what happens (timeline.py).
    """

    def __init__(self, session, rank, ranks, make, stand_in, stall_seconds, end_seconds, observe):
        self.rank, self.size = rank, len(ranks)
        self._ranks = ranks
        self._session = session
        self._make, self._stand_in = make, stand_in
        self._observe = observe
        self._stall_seconds, self._end_seconds = stall_seconds, end_seconds
        self._driver = threading.Lock()  # held by the thread that makes cycles
        self._changed = threading.Condition()
        self._new, self._mine = [], {}  # calls to announce; those that have not ended, by name
        self._announced = {}  # name: {rank: (terms, sizes)}, the same on all ranks
        self._known, self._numbers = [], {}  # calls that were made before have numbers
        self._joined, self._leaving = {}, set()  # ranks, in this order
        self._join = None
        self._is_leaving = self._is_over = False
        self._failure = None
        self._warned = set()
        self._joins = 0
        self._unnamed = {}  # numbers of calls without a name since then, by kind
        self._room = ctypes.create_string_buffer(1 << 16)
        self._sizes = (ctypes.c_size_t * self.size)()
        self._thread = threading.Thread(target=self._run, name="lockstep calls", daemon=True)
        self._thread.start()

    # What other threads call.

    def start(self, call, wake=True):
        """Announces the call in the next cycle. With `wake` false, that of a later call."""
        with self._changed:
            self._add(call)
            if wake:
                self._changed.notify()
        return call

    def _add(self, call):
        if self._failure is not None:
            raise self._failure
        if self._is_over or self._is_leaving:
            raise HorovodInternalError(f"[{call.name}] expected a job that was not left, got "
                                       "shutdown() before")
        if call.name in self._mine:
            raise InputError(f"[{call.name}] expected one call of this name at a time, got another "
                             "before it has ended; give them different names")
        call.since = time.monotonic()
        self._mine[call.name] = call
        self._new.append(call)
        self._observe("begin", call)

    def name(self, kind):
        """For a call without a name: that of the same call on other ranks."""
        with self._changed:
            number = self._unnamed[kind] = self._unnamed.get(kind, 0) + 1
            return f"noname.{self._joins}.{number}"

    def wake(self):
        with self._changed:
            self._changed.notify()

    def run(self, call):
        """Makes the call, and returns its result."""
        # This thread makes the cycles if no other does: waking one takes longer than a small call.
        if self._driver.acquire(blocking=False):
            try:
                with self._changed:
                    self._add(call)
                while not call.is_done:
                    self._cycle()
            finally:
                self._driver.release()
            if self._mine:
                self.wake()
        else:
            self.start(call)
        return self._result_of(call)

    def _result_of(self, call):
        while not call.wait(LOOK):
            self._look_at_stalls()
        return call.result()

    def wait(self, call):
        """The result of a call that was started."""
        if not call.is_done and self._driver.acquire(blocking=False):
            try:
                while not call.is_done and self._failure is None:
                    self._cycle()
            finally:
                self._driver.release()
            if self._mine:
                self.wake()
        return self._result_of(call)

    def join(self):
        """Takes part in the calls of others, with zeros, until all ranks have joined. Returns the
        last rank that did.
        """
        join = Call("join", "", "[]", None)
        with self._changed:
            self._add(join)
            self._join = join
            self._changed.notify()
        return self._result_of(join)

    def begin_to_leave(self):
        """From now on, no call of this rank can be made."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify()

    def leave(self):
        """Returns when all ranks have left."""
        self.begin_to_leave()
        self._thread.join()

    # The thread.

    def _has_work(self):
        return self._failure is None and (self._mine or self._is_leaving)

    def _run(self):
        while not self._is_over:
            with self._changed:
                while not self._has_work():
                    if self._failure is not None:
                        return
                    self._changed.wait(LOOK)  # calls of run() do not notify
            if not self._is_leaving:
                time.sleep(PAUSE)  # calls that are started at once are made together
            if not self._driver.acquire(timeout=LOOK):
                self._look_at_stalls()
                continue
            try:
                if self._has_work():
                    self._cycle()
            finally:
                self._driver.release()

    def _cycle(self):
        with self._changed:
            new, self._new = self._new, []
            is_leaving = self._is_leaving
        calls = []
        try:
            self._observe("cycle", None)
            self._read(self._exchange(self._message(new, is_leaving)))
            self._find_ready(calls)
            if not calls:
                self._look_at_stalls()
                self._end_stalls()
        except BaseException as error:  # such as KeyboardInterrupt: then ranks no longer agree
            self._fail(error, calls)
            if not isinstance(error, Exception):
                raise
            return
        if calls:
            self._observe("made", calls)
            try:
                self._make(calls)
            except BaseException as error:
                self._fail(error, calls)
                if not isinstance(error, Exception):
                    raise
            self._observe("end", calls)
        elif not self._is_over:
            with self._changed:
                if not self._new:
                    self._changed.wait(PAUSE)

    def _message(self, new, is_leaving):
        numbers, others = [], []
        for call in new:
            if call is self._join:
                continue
            number = self._numbers.get((call.name, call.terms))
            if number is not None and not call.sizes:
                numbers.append(number)
            else:
                others.append((call.name, call.terms, call.sizes))
        return json.dumps([numbers, others, self._join in new, is_leaving],
                          separators=(",", ":")).encode()

    def _exchange(self, message):
        if self.size == 1:
            return [json.loads(message)]
        while True:
            try:
                c.all_gather_unequal_start(self._session, message, len(message), self._room,
                                           len(self._room), self._sizes, None)
                break
            except InputError:  # the same on all ranks: one has too little room
                self._room = ctypes.create_string_buffer(max(2 * sum(self._sizes),
                                                             len(self._room)))
        messages, at = [], 0
        whole = memoryview(self._room)
        for size in self._sizes:
            messages.append(json.loads(bytes(whole[at:at + size])))
            at += size
        return messages

    def _read(self, messages):
        for rank, (numbers, others, joins, leaves) in enumerate(messages):
            for number in numbers:
                name, terms = self._known[number]
                self._announced.setdefault(name, {})[rank] = terms, []
            for name, terms, sizes in others:
                self._announced.setdefault(name, {})[rank] = terms, sizes
            if joins:
                self._joined[rank] = None
            if leaves:
                self._leaving.add(rank)

    def _find_ready(self, calls):
        """Appends the calls that all ranks make now, in the same order."""
        for name, ranks in list(self._announced.items()):
            missing = [rank for rank in range(self.size) if rank not in ranks]
            gone = [rank for rank in missing if rank in self._leaving]
            joined = [rank for rank in missing if rank in self._joined]
            if gone:
                self._refuse(name, "all ranks in the call, got shutdown() of rank "
                                   f"{self._ranks[gone[0]]} (had it fewer batches?)")
            elif joined and name.split(".", 1)[0] not in GO_ON:
                self._refuse(name, "all ranks in the call, got join() of rank "
                                   f"{self._ranks[joined[0]]}: only {' and '.join(GO_ON)} go on "
                                   "without a rank")
            elif all(rank in self._joined for rank in missing):
                call = self._call(name, ranks)
                if call is not None:
                    calls.append(call)
        gone = [rank for rank in self._leaving if rank not in self._joined]
        if len(self._joined) == self.size:
            self._end_join(list(self._joined)[-1])
        elif self._joined and gone:
            self._end_join(None, HorovodInternalError("[join] expected join() of all ranks, got "
                                                      "shutdown() of rank "
                                                      f"{self._ranks[gone[0]]}"))
        if len(self._leaving) == self.size:
            self._is_over = True
            self._fail(HorovodInternalError("[shutdown] expected calls to end before"))

    def _end_join(self, last, error=None):
        self._joined.clear()
        join, self._join = self._join, None
        # A rank that joined has made fewer calls without a name than others.
        with self._changed:
            self._joins, self._unnamed = self._joins + 1, {}
        if join is not None:
            del self._mine[join.name]
            self._observe("refused", join)
            join.end(last, error)

    def _call(self, name, ranks):
        first, (terms, _) = min(ranks.items())
        for rank, (others, _) in ranks.items():
            if others != terms:
                self._refuse(name, f"the same call on all ranks, got {readable(terms)} on rank "
                                   f"{self._ranks[first]} and {readable(others)} on rank "
                                   f"{self._ranks[rank]}")
                return None
        del self._announced[name]
        call = self._mine.pop(name, None)
        if call is None:
            call = self._stand_in(name.split(".", 1)[0], json.loads(terms))
        call.all_sizes = [ranks[rank][1] if rank in ranks else [] for rank in range(self.size)]
        if ((name, terms) not in self._numbers and len(self._known) < MOST_NUMBERS
                and ".noname." not in name and not any(call.all_sizes)):
            self._numbers[name, terms] = len(self._known)
            self._known.append((name, terms))
        return call

    def _refuse(self, name, difference):
        del self._announced[name]
        call = self._mine.pop(name, None)
        if call is not None:
            self._observe("refused", call)
            call.end(error=HorovodInternalError(f"[{name}] expected {difference}"))

    def _fail(self, error, calls=()):
        """Ends all calls with the error, here and on the other ranks."""
        failure = HorovodInternalError(str(error) or repr(error))
        failure.__cause__ = error
        if not self._is_over:
            c.abort(self._session)
        with self._changed:
            self._failure = failure
            calls, self._mine = [*calls, *self._mine.values()], {}
            self._changed.notify()
        for call in calls:
            if not call.is_done:
                call.end(error=failure)

    def _stalled(self, seconds):
        """Calls that this rank has waited for for longer, and the ranks that may be missing."""
        if not seconds:
            return
        now = time.monotonic()
        for call in list(self._mine.values()):
            ranks = dict(self._announced.get(call.name, {}))
            missing = [rank for rank in range(self.size) if rank not in ranks and rank != self.rank]
            if call is not self._join and missing and now - call.since > seconds:
                yield call, [self._ranks[rank] for rank in missing], now - call.since

    def _look_at_stalls(self):
        for call, missing, waited in self._stalled(self._stall_seconds):
            if call.name not in self._warned:
                self._warned.add(call.name)
                self._observe("stall", (call, missing, waited))

    def _end_stalls(self):
        for call, missing, _ in self._stalled(self._end_seconds):
            raise CommunicationError(f"[{call.name}] expected all ranks to call it within "
                                     f"{self._end_seconds:g} s, got none from {missing}")
