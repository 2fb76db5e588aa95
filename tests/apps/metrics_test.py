#!/usr/bin/env python3
"""A training that a real Prometheus scrapes, and the dashboard for its metrics.

metrics_test.py PROGRAM   PROGRAM: lockstep
The scrape is skipped where Prometheus is not installed (apt-get install prometheus, which also
starts a server of its own on port 9090; the test uses another one).
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 60  # seconds
# Metrics of the conventions of OpenTelemetry and Prometheus; all others begin with lockstep_.
SHARED = {"target_info", "process_cpu_time_seconds_total", "process_memory_usage_bytes"}
CONFIGURATION = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs: [{{job_name: lockstep, static_configs: [{{targets: ["{}"]}}]}}]
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(condition):
    """What `condition` returns once it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition.__name__} did not become true in {PATIENCE} seconds")
        time.sleep(0.1)
    return found


class Training:
    """`lockstep train` with metrics, without an end."""

    def __init__(self, folder):
        self.file = folder / "lockstep.prom"
        self.errors = folder / "errors"
        command = [
            PROGRAM, "train", "--model", "mlp", "--data", "synthetic:8x8x1,4,1000", "--epochs",
            "1000000", "--devices", "cpu:0,cpu:0", "--checkpoint-dir", folder / "run",
            "--save-every", "1000", "--json", "--log-every", "0", "--metrics-port", "0",
            "--metrics-file", self.file
        ]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, env=dict(os.environ, OMP_NUM_THREADS="1"),
                                            stderr=errors, stdout=subprocess.DEVNULL)

        def printed_address():
            if self.process.poll() is not None:
                raise AssertionError(self.errors.read_text())
            return re.search(r"http://(\S+)/metrics\n", self.errors.read_text())

        self.address = wait_for(printed_address)[1]

    def text(self):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=PATIENCE) as answer:
            return answer.read().decode()

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


class Prometheus:
    """A server that scrapes one address every second."""

    def __init__(self, folder, address):
        configuration = folder / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(address))
        self.address = f"127.0.0.1:{free_port()}"
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen([
                "prometheus", f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={self.address}"
            ], stdout=log, stderr=log)

    def query(self, expression):
        """The values of an expression by their labels; none before the server has started."""
        url = f"http://{self.address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return [(one["metric"], float(one["value"][1]))
                        for one in json.load(answer)["data"]["result"]]
        except (ConnectionError, urllib.error.URLError):
            if self.process.poll() is not None:
                raise
            return []

    def end(self):
        self.process.kill()
        self.process.wait(PATIENCE)


def expressions(panel):
    return [target["expr"] for target in panel.get("targets", [])]


def names_in(text):
    """The metrics of a text, by the names of their samples."""
    return set(re.findall(r"^(\w+)(?:{| )", text, re.MULTILINE))


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.training = Training(cls.folder)
        cls.addClassCleanup(cls.training.kill)

        def has_a_checkpoint():
            return "\nlockstep_checkpoint_step " in cls.training.text()

        wait_for(has_a_checkpoint)
        cls.text = cls.training.text()

    def test_a_names_match_the_documentation(self):
        names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in names_in(self.text)}
        self.assertEqual(set(),
                         {name
                          for name in names - SHARED
                          if not name.startswith("lockstep_")})
        documented = set(
            re.findall(r"`((?:lockstep|process|target)_\w+)",
                       (ROOT / "docs/observe.md").read_text()))
        self.assertEqual(set(), names - documented)

    def test_a_dashboard_shows_metrics_that_exist(self):
        names = names_in(self.text)
        dashboard = json.loads((ROOT / "docs/grafana.json").read_text())
        used = [e for panel in dashboard["panels"] for e in expressions(panel)]
        self.assertGreater(len(used), 10)
        # Exists only with gradient clipping.
        names.add("lockstep_training_gradient_norm")
        for expression in used:
            self.assertLessEqual(set(re.findall(r"\b(?:lockstep|process)_\w+", expression)), names,
                                 expression)

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed")
    def test_a_text_is_accepted_by_promtool(self):
        for text in (self.text, self.training.file.read_text()):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                     capture_output=True)
            # Its style warnings have status 3.
            self.assertIn(checked.returncode, (0, 3), checked.stderr)

    @unittest.skipUnless(shutil.which("prometheus"), "Prometheus is not installed")
    def test_b_prometheus_scrapes_a_training(self):
        prometheus = Prometheus(self.folder, self.training.address)
        self.addCleanup(prometheus.end)

        def counts_samples():
            return prometheus.query("rate(lockstep_training_samples_total[5s]) > 0")

        self.assertEqual("lockstep", wait_for(counts_samples)[0][0]["job"])
        self.assertEqual([1.0], [value for _, value in prometheus.query("up")])
        self.assertEqual({"0", "1"}, {labels["replica"] for labels, _ in
                                      prometheus.query("lockstep_replica_busy_time_seconds_total")})
        dashboard = json.loads((ROOT / "docs/grafana.json").read_text())
        for expression in (e for panel in dashboard["panels"] for e in expressions(panel)):
            plain = re.sub(r"\$(job|instance)\b", ".*",
                           expression).replace("$__rate_interval", "5s")
            if "gradient_norm" not in plain:
                self.assertTrue(prometheus.query(plain), plain)

    def test_c_the_file_keeps_the_end(self):
        self.assertEqual(143, self.training.end(), self.training.errors.read_text())
        text = self.training.file.read_text()
        self.assertIn('\nlockstep_training_state{state="stopped"} 1\n', text)
        self.assertTrue(text.endswith("\n# EOF\n"))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
