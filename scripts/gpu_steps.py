"""Steps of scripts/gpu_check: each has a time limit, its result is recorded, and a failure does not stop the others."""

import os
import signal
import subprocess
import threading
import time


class Failed(Exception):
    """A step failed; the text gives the reason."""


class NotRun(Exception):
    """A step cannot run on this machine; the text gives the reason."""


class Output:
    def __init__(self, status, text, errors, seconds, gpu_mib):
        self.status, self.text, self.errors, self.seconds, self.gpu_mib = status, text, errors, seconds, gpu_mib

    def last_words(self):
        """The explanation of a failure: the last line of standard error that is not empty, or of standard output."""
        lines = [line.strip() for line in (self.errors or self.text).splitlines() if line.strip()]
        return lines[-1] if lines else "no output"


class GpuMemory:
    """The maximum GPU memory in use while a process ran, over all processes, as nvidia-smi reports it."""

    def __init__(self, wanted):
        self.most = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if wanted:
            self._thread.start()

    def _watch(self):
        while not self._ended.wait(0.3):
            answer = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                                    capture_output=True, text=True, check=False).stdout.strip()
            if answer.isdigit():
                self.most = max(self.most or 0, int(answer))

    def end(self):
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        return self.most


class Steps:
    def __init__(self, folder, environment, seconds):
        self.folder, self.environment = folder, environment
        self.rows = []
        self.deadline = time.monotonic() + seconds
        self._name = "start"
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, command, limit, environment=None, watch_memory=False):
        """Runs a command; ends it and its children after `limit` seconds or at the overall deadline. Its output is stored in the folder."""
        limit = min(limit, self.deadline - time.monotonic())
        if limit <= 1:
            raise NotRun("the time for all steps was over")
        memory = GpuMemory(watch_memory)
        start = time.monotonic()
        process = subprocess.Popen(list(map(str, command)), env=environment or self.environment, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            text, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, errors = process.communicate()
            errors += f"\nended after {limit:.0f} s, its limit"
        output = Output(process.returncode, text, errors, time.monotonic() - start, memory.end())
        self._keep(command, output)
        return output

    def checked(self, command, limit, **more):
        """The same; Failed if its status is not 0."""
        output = self.run(command, limit, **more)
        if output.status != 0:
            how = f"signal {-output.status}" if output.status < 0 else f"status {output.status}"
            raise Failed(f"{how}: {output.last_words()}")
        return output

    def step(self, name, action, needs=()):
        """Runs `action`, which returns a note or (note, figures), unless a step of `needs` did not pass."""
        self._name = name
        start = time.monotonic()
        figures, lacking = None, [need for need in needs if not self.passed(need)]
        try:
            if lacking:
                raise NotRun(f"it needs the step '{lacking[0]}', which did not pass")
            if time.monotonic() >= self.deadline:
                raise NotRun("the time for all steps was over")
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
        row = {"step": name, "result": result, "seconds": round(time.monotonic() - start, 1), "note": note or ""}
        if figures is not None:
            row["figures"] = figures
        self.rows.append(row)
        print(f"{result:<8} {row['seconds']:>6.1f} s  {name}{': ' + row['note'] if row['note'] else ''}", flush=True)
        return result == "passed"

    def passed(self, name):
        return any(row["step"] == name and row["result"] == "passed" for row in self.rows)

    def _keep(self, command, output):
        name = "".join(letter if letter.isalnum() else "-" for letter in self._name)
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, command))}\n{output.text}{output.errors}\n[status {output.status}, {output.seconds:.1f} s]\n\n")
