#!/usr/bin/env python3
"""Checks the templates of scripts/launch: manifests (against their schemas), batch script, image
and list of hosts.

templates_test.py [PROGRAM]   PROGRAM: lockstep, whose options the templates use
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LAUNCH = ROOT / "scripts" / "launch"
SCHEMA = json.loads((HERE / "mpijob.schema.json").read_text())
PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def violations(value, schema, where="$"):
    """Violations of `schema`, for the subset of JSON Schema that the schema uses."""
    if "$ref" in schema:
        return violations(value, SCHEMA["definitions"][schema["$ref"]], where)
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or
                 (kind == "integer" and isinstance(value, bool))):
        return [f"{where}: needs {kind}, got {value!r}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: needs one of {schema['enum']}, got {value!r}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{where}: needs at least {schema['minimum']}, got {value}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        found.append(f"{where}: needs {schema['pattern']}, got {value!r}")
    if isinstance(value, dict):
        found += [
            f"{where}: needs {name}" for name in schema.get("required", []) if name not in value
        ]
        properties = schema.get("properties", {})
        for name, part in value.items():
            if name in properties:
                found += violations(part, properties[name], f"{where}.{name}")
            elif schema.get("additionalProperties", True) is False:
                found.append(f"{where}: knows no {name}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{where}: needs {schema['minItems']} items")
        for number, item in enumerate(value):
            found += violations(item, schema.get("items", {}), f"{where}[{number}]")
    return found


def options_of(words, command="train"):
    """The long options in a command line of `lockstep COMMAND`."""
    return [
        word.split("=")[0] for word in words[words.index(command) + 1:] if word.startswith("--")
    ]


def known_options(command):
    text = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True,
                          check=True).stdout
    return set(re.findall(r"--[a-z0-9-]+", text))


@unittest.skipIf(yaml is None, "needs Python's yaml, of Debian's package python3-yaml")
class Manifests(unittest.TestCase):
    def load(self, name):
        return list(yaml.safe_load_all((LAUNCH / name).read_text()))

    def one(self, name, kind):
        """The document of this kind."""
        found = [document for document in self.load(name) if document["kind"] == kind]
        self.assertEqual(len(found), 1, kind)
        return found[0]

    def pods(self):
        specs = self.one("mpijob.yaml", "MPIJob")["spec"]["mpiReplicaSpecs"]
        return [one["template"]["spec"] for one in specs.values()
                ] + [self.one("tasks.yaml", "Job")["spec"]["template"]["spec"]]

    def test_the_mpijob_matches_the_schema_of_the_operator(self):
        self.assertEqual(violations(self.one("mpijob.yaml", "MPIJob"), SCHEMA), [])

    def test_the_schema_finds_errors(self):
        job = self.one("mpijob.yaml", "MPIJob")
        job["spec"]["slotsPerWorker"] = "1"
        job["spec"]["runPolicy"]["cleanPodPolicy"] = "Sometimes"
        job["spec"]["cleanPodPolicy"] = "None"  # where version 1 had it
        del job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"]
        found = "\n".join(violations(job, SCHEMA))
        for part in ("$.spec.slotsPerWorker: needs integer",
                     "$.spec.runPolicy.cleanPodPolicy: needs one of",
                     "$.spec: knows no cleanPodPolicy",
                     "Worker.template.spec.containers[0]: needs image"):
            self.assertIn(part, found)

    def test_mpirun_starts_as_many_ranks_as_there_are_slots(self):
        spec = self.one("mpijob.yaml", "MPIJob")["spec"]
        args = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
        ranks = int(args[args.index("-np") + 1])
        self.assertEqual(ranks,
                         spec["mpiReplicaSpecs"]["Worker"]["replicas"] * spec["slotsPerWorker"])

    def test_the_tasks_are_a_service_and_a_job_that_agree(self):
        service, job = self.one("tasks.yaml", "Service"), self.one("tasks.yaml", "Job")
        self.assertEqual(violations(service, SCHEMA["definitions"]["service"]), [])
        self.assertEqual(violations(job, SCHEMA["definitions"]["job"]), [])
        pod = job["spec"]["template"]["spec"]
        env = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        self.assertEqual(int(env["WORLD_SIZE"]), job["spec"]["completions"])
        self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
        self.assertEqual(env["MASTER_ADDR"], f"{job['metadata']['name']}-0.{pod['subdomain']}")
        self.assertEqual(service["metadata"]["name"], pod["subdomain"])
        self.assertGreater(job["spec"]["backoffLimit"], job["spec"]["completions"],
                           "all pods start anew after a failure")

    def test_mounted_volumes_exist(self):
        for pod in self.pods():
            mounted = {
                mount["name"]
                for one in pod["containers"]
                for mount in one.get("volumeMounts", [])
            }
            self.assertEqual(mounted, {volume["name"] for volume in pod.get("volumes", [])})

    def test_pods_have_minimum_privileges(self):
        for pod in self.pods():
            self.assertIs(pod["automountServiceAccountToken"], False)
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for container in pod["containers"]:
                self.assertEqual(container["securityContext"], {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {
                        "drop": ["ALL"]
                    }
                })

    def test_only_pods_of_the_job_reach_each_other(self):
        for name, label in (("tasks.yaml", "job-name"), ("mpijob.yaml",
                                                         "training.kubeflow.org/job-name")):
            policy = self.one(name, "NetworkPolicy")
            self.assertEqual(violations(policy, SCHEMA["definitions"]["networkPolicy"]), [])
            pods = {"matchLabels": {label: "lockstep"}}
            self.assertEqual(
                policy["spec"], {
                    "podSelector": pods,
                    "policyTypes": ["Ingress"],
                    "ingress": [{
                        "from": [{
                            "podSelector": pods
                        }]
                    }]
                })

    def test_tasks_have_the_secret_of_the_job(self):
        env = {
            one["name"]: one
            for one in self.one("tasks.yaml", "Job")["spec"]["template"]["spec"]["containers"][0]
            ["env"]
        }
        reference = env["LOCKSTEP_JOB_SECRET"]["valueFrom"]["secretKeyRef"]
        self.assertIn(
            f"| kubectl create secret generic {reference['name']} "
            f"--from-file={reference['key']}=/dev/stdin\n",
            (LAUNCH / "tasks.yaml").read_text())

    def test_image_is_built_from_nothing_but_sources(self):
        lines = [
            line for line in (LAUNCH / "Dockerfile.dockerignore").read_text().splitlines()
            if not line.startswith("#")
        ]
        self.assertEqual(lines[0], "*", "keys and data that lie in the checkout stay outside")
        admitted = [line.removeprefix("!") for line in lines[1:]]
        self.assertTrue(all(line.startswith("!") for line in lines[1:]), lines)
        self.assertEqual([name for name in admitted if not (ROOT / name).exists()], [])
        for name in ("CMakeLists.txt", "CMakePresets.json", "apps", "lockstep", "scripts",
                     "third_party"):
            self.assertIn(name, admitted)

    @unittest.skipIf(PROGRAM is None, "needs the program")
    def test_options_exist_in_the_program(self):
        launcher = self.one(
            "mpijob.yaml",
            "MPIJob")["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        task = self.one("tasks.yaml", "Job")["spec"]["template"]["spec"]["containers"][0]
        for args in (launcher["args"], task["command"] + task["args"]):
            self.assertLessEqual(set(options_of(args)), known_options("train"))


class BatchScript(unittest.TestCase):
    # Options of sbatch for resources and logs.
    OPTIONS = {
        "--job-name", "--nodes", "--ntasks", "--ntasks-per-node", "--cpus-per-task",
        "--gpus-per-node", "--gpus-per-task", "--mem", "--mem-per-cpu", "--time", "--signal",
        "--requeue", "--open-mode", "--output", "--error", "--partition", "--account", "--exclusive"
    }

    def test_is_a_script(self):
        subprocess.run(["bash", "-n", LAUNCH / "slurm.sbatch"], check=True)

    @unittest.skipIf(shutil.which("shellcheck") is None, "needs shellcheck")
    def test_passes_shellcheck(self):
        done = subprocess.run(["shellcheck", LAUNCH / "slurm.sbatch"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.stdout, "")

    def test_has_valid_options_of_sbatch(self):
        lines = re.findall(r"^#+SBATCH (\S+)", (LAUNCH / "slurm.sbatch").read_text(), re.M)
        self.assertGreater(len(lines), 5)
        self.assertLessEqual({line.split("=")[0] for line in lines}, self.OPTIONS)

    def test_options_precede_the_first_command(self):
        text = (LAUNCH / "slurm.sbatch").read_text().splitlines()
        first = next(number for number, line in enumerate(text)
                     if line and not line.startswith("#"))
        self.assertFalse([line for line in text[first:] if line.startswith("#SBATCH")])

    def run_with(self, mpi_list, status):
        """The exit status of the script and the commands that it started, with a fake srun and
        scontrol."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "srun").write_text(
                f'#!/bin/sh\necho "$LOCKSTEP_JOB_SECRET" >"{path}/secret"\n'
                f'case $1 in --mpi=list) echo "{mpi_list}" ;; *) echo "srun $*"; exit {status} ;; '
                'esac\n'
            )
            (path / "scontrol").write_text('#!/bin/sh\necho "scontrol $*"\n')
            for tool in ("srun", "scontrol"):
                (path / tool).chmod(0o755)
            done = subprocess.run(["bash", LAUNCH / "slurm.sbatch", "--model", "cnn"],
                                  capture_output=True, text=True, check=False, env={
                                      "PATH": f"{folder}:{os.environ['PATH']}",
                                      "SLURM_JOB_ID": "7",
                                      "RUN": "r"
                                  })
            self.secret = (path / "secret").read_text().strip()
            return done.returncode, done.stdout

    def test_creates_a_secret_for_the_tasks(self):
        secrets = set()
        for _ in range(2):
            _, output = self.run_with("none pmi2", 0)
            self.assertRegex(self.secret, "^[0-9a-f]{32}$")
            self.assertNotIn(self.secret, output)
            secrets.add(self.secret)
        self.assertEqual(len(secrets), 2)

    def test_starts_ranks_by_srun_with_pmix(self):
        self.assertEqual(self.run_with("none pmix pmi2", 0),
                         (0, "srun --mpi=pmix lockstep train --checkpoint-dir r --model cnn\n"))

    def test_starts_tasks_by_other_srun_versions(self):
        self.assertEqual(self.run_with("none pmi2", 3),
                         (3, "srun --mpi=none lockstep train --checkpoint-dir r --model cnn\n"))

    def test_is_requeued_after_a_checkpoint(self):
        status, output = self.run_with("pmix", 143)
        self.assertEqual(status, 0)
        self.assertIn("scontrol requeue 7\n", output)


class Image(unittest.TestCase):
    INSTRUCTIONS = {
        "FROM", "ARG", "ENV", "WORKDIR", "COPY", "ADD", "RUN", "USER", "CMD", "ENTRYPOINT",
        "EXPOSE", "LABEL", "VOLUME"
    }

    def instructions(self):
        text = re.sub(r"\\\n", " ", (LAUNCH / "Dockerfile").read_text())
        return [
            line.split(None, 1) for line in text.splitlines() if line and not line.startswith("#")
        ]

    def test_has_valid_instructions(self):
        self.assertLessEqual({name for name, _ in self.instructions()}, self.INSTRUCTIONS)
        self.assertEqual([name for name, _ in self.instructions()[:2]], ["ARG", "FROM"])

    def test_copies_existing_files(self):
        for name, words in self.instructions():
            if name == "COPY" and "--from" not in words:
                for source in words.split()[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)

    def test_installs_the_listed_packages_and_ssh(self):
        text = " ".join(words for name, words in self.instructions() if name == "RUN")
        self.assertEqual(text.count("scripts/setup"), 2,
                         "of the image that builds, and of the one that runs")
        installed = re.findall(r"apt-get install (?:-\S+ )*([a-z0-9 .+-]+?) &&", text)
        self.assertEqual(" ".join(installed).split(), ["openssh-server", "openssh-client"])

    def test_installs_where_sessions_of_sshd_find_it(self):
        instructions = self.instructions()
        installed = [
            words for name, words in instructions if name == "RUN" and "cmake --install" in words
        ]
        self.assertEqual(
            re.findall(r"DESTDIR=(\S+) cmake --install \S+ --prefix (\S+)", installed[0]),
            [("/image", "/usr/local")])
        self.assertIn(["COPY", "--from=build /image/usr/local /usr/local"], instructions)
        self.assertIn(["RUN", "ldconfig"], instructions)
        self.assertFalse([words for name, words in instructions if name == "ENV"],
                         "sshd does not hand it on")

    def test_has_the_user_of_the_manifests(self):
        text = (LAUNCH / "Dockerfile").read_text()
        self.assertIn("--uid 1000 lockstep", text)
        self.assertIn("runAsUser: 1000", (LAUNCH / "mpijob.yaml").read_text())
        self.assertIn("/home/lockstep/.sshd_config", (LAUNCH / "mpijob.yaml").read_text())


class ListOfHosts(unittest.TestCase):
    def test_has_a_host_and_slots_per_line(self):
        lines = [
            line for line in (LAUNCH / "hostfile").read_text().splitlines()
            if line and not line.startswith("#")
        ]
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertRegex(line, r"^\S+ slots=[1-9][0-9]*$")


if __name__ == "__main__":
    unittest.main()
