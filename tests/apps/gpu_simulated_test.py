"""Runs all steps of scripts/gpu_check --next and --several on two simulated GPUs with small
networks, and checks that their results are written.

    gpu_simulated_test.py LOCKSTEP BENCH_UPDATE BENCH_JPEG_RECORDS BENCH_CONVOLUTIONS [TEST]

The programs are for simulated GPUs.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = dict(
    zip(("lockstep", "lockstep_bench_update", "lockstep_bench_jpeg_records",
         "lockstep_bench_convolutions"), sys.argv[1:5]))
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
# The programs of tests take minutes on simulated GPUs: they are replaced.
TESTS = [f"{module}_on_gpu_tests" for module in ("device", "allreduce", "model", "strategy")]
NVIDIA_SMI = """#!/bin/sh
case $1 in
  -L) echo 'GPU 0: simulated'; echo 'GPU 1: simulated' ;;
  --query*) for gpu in 1 2; do echo "NVIDIA H200, GPU-$gpu, 580.1, 1024, 9.0"; done ;;
esac
"""


def write_script(file, text):
    file.write_text(text)
    file.chmod(0o755)


class OnSimulatedGpus(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        prebuilt = self.folder / "prebuilt"
        (prebuilt / "bin").mkdir(parents=True)
        for name, path in PROGRAMS.items():
            (prebuilt / "bin" / name).symlink_to(path)
        for name in TESTS:
            write_script(prebuilt / "bin" / name, "#!/bin/sh\necho '[  PASSED  ] 1 test.'\n")
        # The libraries are those of this machine, not packed ones.
        write_script(
            prebuilt / "run",
            f"#!/bin/sh\nexport PATH={prebuilt}/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
            'exec "$@"\n')
        (prebuilt / "glibc").write_text("2.17\n")
        write_script(self.folder / "nvidia-smi", NVIDIA_SMI)
        self.make_cifar10()
        self.environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}",
                                LOCKSTEP_BENCH_CIFAR10=str(self.folder), OMP_THREAD_LIMIT="1")
        self.environment.pop("CUDA_VISIBLE_DEVICES", None)

    def make_cifar10(self):
        """Two files of a few images of 32 x 32."""
        for part in ("train", "test"):
            subprocess.run([
                PROGRAMS["lockstep_bench_jpeg_records"], self.folder / part, "--files", "1",
                "--records", "2", "--height", "32", "--width", "32", "--classes", "9"
            ], check=True)
            next((self.folder / part).iterdir()).rename(self.folder / f"{part}-0.tfrecord")

    def check(self, *options):
        """The rows of results.json by step, and its folder."""
        out = self.folder / "out"
        answer = subprocess.run([
            SCRIPTS / "gpu_check", *options, "--quick", "--rehearse", "--prebuilt",
            self.folder / "prebuilt", "--out", out
        ], capture_output=True, text=True, check=False, env=self.environment)
        results = json.loads((out / "results.json").read_text())
        rows = {row["step"]: row for row in results["steps"]}
        wrong = [(name, row["note"]) for name, row in rows.items() if row["result"] == "failed"]
        self.assertEqual(wrong, [], answer.stdout + answer.stderr)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        self.assertIn(f"| {list(rows)[-1]} | ", (out / "results.md").read_text())
        return rows, out

    def test_next_runs(self):
        rows, out = self.check("--next", "--only", "changed,gpt,stem,cnn,adam,jpeg,accuracy")
        self.assertEqual([name for name, row in rows.items() if row["result"] == "not run"],
                         ["PyTorch compiles gpt"])
        without_torch = "PyTorch eager did not run: python3 has no torch that can use the GPU"
        for name, figures in [("gpt:12x768 and PyTorch in turns", "tokens_per_second"),
                              ("kernels of gpt:12x768", "share_of_floors"),
                              ("ways of the first convolution", "rows"),
                              ("speed of resnet50 in bfloat16", "samples_per_second"),
                              ("kernels of resnet50 in bfloat16", "share_of_floors"),
                              ("cnn and PyTorch's graph in turns", "steps_per_second"),
                              ("speed of adam, 100 million parameters", "share_of_bandwidth"),
                              ("speed of resnet50 from JPEG records", "samples_per_second"),
                              ("time to accuracy on CIFAR-10", "lockstep")]:
            self.assertIn(figures, rows[name]["figures"], name)
        self.assertIn(without_torch, rows["gpt:12x768 and PyTorch in turns"]["note"])
        self.assertIn("largest gaps: ", rows["kernels of gpt:12x768"]["note"])
        self.assertEqual(
            {
                "log.txt", "results.json", "results.md", "profile_gpt.jsonl",
                "profile_bfloat16.jsonl", "stem.jsonl"
            }, {file.name
                for file in out.iterdir()} - {"convolutions.json"})

    def test_several_runs(self):
        rows, _ = self.check("--several")
        self.assertEqual([name for name, row in rows.items() if row["result"] == "not run"],
                         ["links between the GPUs"])
        for name in ("scaling of resnet50", "scaling of gpt:12x768"):
            self.assertEqual(set(rows[name]["figures"]["share_of_one"]), {
                "one process, NCCL", "a process for each GPU, NCCL", "one process, through the host"
            })


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
