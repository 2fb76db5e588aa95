"""Steps of scripts/gpu_check: each has a time limit, its result is recorded, and a failure does not
stop the others."""

import ctypes
import glob
import os
import signal
import subprocess
import tempfile
import threading
import time

LOG_BYTES = 60_000  # the log keeps the last bytes of a command's output


class Failed(Exception):
    """A step failed; the text is the reason."""


class NotRun(Exception):
    """A step cannot run on this machine, or timed out; the text is the reason."""


class Output:
    def __init__(self, status, text, errors, seconds, gpu_mib=None, started=None):
        self.status, self.text, self.errors = status, text, errors
        self.seconds, self.gpu_mib = seconds, gpu_mib
        self.started = started  # in seconds of time.time()

    def last_words(self):
        """The explanation of a failure: the last line of standard error that has words, or of
        standard output."""
        lines = [
            line.strip()
            for line in (self.errors or self.text).splitlines()
            if any(map(str.isalnum, line))
        ]
        return lines[-1] if lines else "no output"


class NvmlMemory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


def load_nvml():
    """The driver's library for queries, or None."""
    for name in [
            "libnvidia-ml.so.1", *sorted(glob.glob("/usr/local/nvidia/lib*/libnvidia-ml.so.1"))
    ]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class GpuMemory:
    """The maximum memory in use on the first GPU over all processes, read by this process through
    NVML. Not for timed runs."""

    def __init__(self, library=None, seconds=0.2):
        self._library, self._seconds = library or load_nvml(), seconds
        self._device = ctypes.c_void_p()
        self._ended = threading.Event()
        self._thread = None
        self.most = None
        if self._library is not None and self._library.nvmlInit_v2() == 0 and \
           self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)) == 0:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _read(self):
        memory = NvmlMemory()
        if self._library.nvmlDeviceGetMemoryInfo(self._device, ctypes.byref(memory)) == 0:
            self.most = max(self.most or 0, memory.used >> 20)

    def _watch(self):
        self._read()
        while not self._ended.wait(self._seconds):
            self._read()

    def end(self):
        """MiB, or None if NVML does not report it."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._library.nvmlShutdown()
        return self.most


class Running:
    """A background command. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, steps, command, environment):
        self._steps, self._command, self._start = steps, command, time.monotonic()
        self._started = time.time()
        self._files = [
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") for _ in range(2)
        ]
        self._process = subprocess.Popen(list(map(str, command)), env=environment,
                                         stdin=subprocess.DEVNULL, stdout=self._files[0],
                                         stderr=self._files[1], start_new_session=True)

    def end(self, limit):
        """Waits for its end, and logs its output. If it still runs after `limit` seconds, it is
        ended with its children: NotRun."""
        ended = False
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            ended = True
            self.kill()
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read())
            file.close()
        output = Output(self._process.returncode, *texts, self.seconds(), started=self._started)
        self._steps.log_output(self._command, output)
        if ended:
            raise NotRun(
                f"it had not ended after {output.seconds:.0f} s, its limit; last: "
                f"{output.last_words()}"
            )
        return output

    def seconds(self):
        """Since its start."""
        return time.monotonic() - self._start

    def kill(self):
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class Steps:
    """`folder` gets log.txt, the output of all commands. `seconds` are for all steps. `save` is
    called after each step."""

    def __init__(self, folder, environment, seconds, save=lambda: None):
        self.folder, self.environment, self.save = folder, environment, save
        self.rows, self._running = [], []
        self.end = self.deadline = time.monotonic() + seconds
        self._name = self._group = "start"
        folder.mkdir(parents=True, exist_ok=True)

    def begin(self, group, seconds):
        """The following steps belong to `group`, and have `seconds` together."""
        self._group = group
        self.deadline = min(self.end, time.monotonic() + seconds)

    def remaining(self):
        """Seconds until the end of the group's time."""
        return self.deadline - time.monotonic()

    def run(self, command, limit, environment=None, watch_memory=False):
        """Runs a command. After `limit` seconds, or at the end of the group's time, it is ended
        with its children: NotRun."""
        limit = min(limit, self.remaining())
        if limit <= 1:
            raise NotRun("the time was over")
        memory = GpuMemory() if watch_memory else None
        try:
            output = self.start(command, environment).end(limit)
        finally:
            gpu_mib = memory.end() if memory else None
        output.gpu_mib = gpu_mib
        return output

    def start(self, command, environment=None):
        """Starts a background command that runs until its end() or stop()."""
        self._running.append(Running(self, command, environment or self.environment))
        return self._running[-1]

    def stop(self):
        """Ends all running commands."""
        for running in self._running:
            running.kill()

    def checked(self, command, limit, **more):
        """The same; Failed if its status is not 0."""
        output = self.run(command, limit, **more)
        if output.status != 0:
            how = f"signal {-output.status}" if output.status < 0 else f"status {output.status}"
            raise Failed(f"{how}: {output.last_words()}")
        return output

    def step(self, name, action, needs=()):
        """Runs `action`, which returns a note or (note, figures), unless a step of `needs` did not
        pass."""
        self._name = name
        start = time.monotonic()
        figures, lacking = None, [need for need in needs if not self.passed(need)]
        try:
            if lacking:
                raise NotRun(f"it needs the step '{lacking[0]}', which did not pass")
            if self.remaining() <= 0:
                raise NotRun("the time was over")
            note = action()
            if isinstance(note, tuple):
                note, figures = note
            result = "passed"
        except NotRun as reason:
            result, note = "not run", str(reason)
        except Failed as reason:
            result, note = "failed", str(reason)
            figures = getattr(reason, "figures", None)
        except Exception as error:  # an error in a step is a failure of that step
            result, note = "failed", f"{type(error).__name__}: {error}"
        row = {
            "step": name,
            "group": self._group,
            "result": result,
            "seconds": round(time.monotonic() - start, 1),
            "note": note or ""
        }
        if figures is not None:
            row["figures"] = figures
        self.rows.append(row)
        print(
            f"{result:<8} {row['seconds']:>6.1f} s  "
            f"{name}{': ' + row['note'] if row['note'] else ''}",
            flush=True)
        self.save()
        return result == "passed"

    def passed(self, name):
        return any(row["step"] == name and row["result"] == "passed" for row in self.rows)

    def log(self, text):
        with open(self.folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(text)

    def log_output(self, command, output):
        kept = "".join(text if len(text) <= LOG_BYTES else
                       f"[{len(text) - LOG_BYTES} characters left out]\n{text[-LOG_BYTES:]}"
                       for text in (output.text, output.errors))
        self.log(
            f"==== {self._name}\n$ {' '.join(map(str, command))}\n{kept}\n[status {output.status}, "
            f"{output.seconds:.1f} s]\n\n"
        )
