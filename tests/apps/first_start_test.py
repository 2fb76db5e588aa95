#!/usr/bin/env python3
"""Four ranks on sixteen gzip TFRecord files: each file is read once by one rank, and is not kept in
memory.

first_start_test.py PROGRAM MPIRUN…   PROGRAM: lockstep; MPIRUN…: mpirun and its options, without
                                      the number of ranks
Exits with 77 where strace cannot trace.
"""
import collections
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

RANKS, FILES, SIDE = 4, 16, 200
LARGE, SMALL = 600, 4  # records in a file: 24 MB, which do not compress
HEAD = 64 << 10  # what each rank may read of each file to identify it
# bytes of memory for a file; kept here by all files together, of which a rank reads 96 MB
PROMISE = 64 << 20
CALLS = "read,readv,pread64,preadv,preadv2,mmap,sendfile,copy_file_range"


def traced(folder, command):
    """Runs the command of a rank under strace, and stores its system calls and its peak memory in
    `folder`."""
    own = pathlib.Path(tempfile.mkdtemp(dir=folder))
    status = subprocess.run([
        "strace", "-ff", "--seccomp-bpf", "-y", "-s", "0", "-e", f"trace={CALLS}", "-e",
        "signal=none", "-o", own / "thread", *command
    ]).returncode
    # Maximum over all descendants, in KiB.
    (own / "resident").write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10))
    return status


def bytes_read(folder):
    """Bytes that one rank read of each data file; mappings count with their full length."""
    read = collections.Counter()
    for trace in folder.glob("thread.*"):
        for line in trace.read_text().splitlines():
            found = re.match(r"(\w+)\(.*?(\d+)<([^>]*\.tfrecord)>.* = (\d+|0x[0-9a-f]+)$", line)
            if found:
                name, _, file, result = found.groups()
                read[pathlib.Path(file).name] += int(
                    line.split(", ")[1]) if name == "mmap" else int(result)
    return read


class Start:
    """A training of one epoch: what its ranks have read, and their memory."""

    def __init__(self, data):
        with tempfile.TemporaryDirectory(dir=data) as folder:
            program = [
                PROGRAM, "train", "--checkpoint-dir", "none", "--model", "linear", "--data",
                f"{data}/*.tfrecord", "--input-shape", f"{SIDE}x{SIDE}x1", "--global-batch", "64",
                "--devices", "cpu:0"
            ]
            command = [
                *MPIRUN, "-np",
                str(RANKS), sys.executable, __file__, "--traced", folder, *program
            ]
            ended = subprocess.run(command, env=dict(os.environ, TMPDIR=str(data),
                                                     OMP_NUM_THREADS="1"), text=True,
                                   capture_output=True)
            if ended.returncode:
                sys.exit(
                    f"{' '.join(map(str, command))}\nexit status "
                    f"{ended.returncode}\n{ended.stdout}{ended.stderr}"
                )
            ranks = sorted(pathlib.Path(folder).iterdir())
            self.read = [bytes_read(rank) for rank in ranks]
            self.resident = [int((rank / "resident").read_text()) for rank in ranks]


def write_files(folder, records):
    """Writes the files, converted from IDX. Without dataset.json, a first start must read the
    labels, too."""
    folder.mkdir()
    with open(folder / "train-images-idx3-ubyte", "wb") as images:
        images.write(struct.pack(">4i", 0x803, FILES * records, SIDE, SIDE))
        for record in range(FILES * records):
            images.write(random.Random(record).randbytes(SIDE * SIDE))
    labels = bytes(record % 10 for record in range(FILES * records))
    (folder /
     "train-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, len(labels)) + labels)
    data = folder / "data"
    subprocess.run([
        PROGRAM, "data", "convert", "idx", "--input", folder, "--output", data, "--shards",
        str(FILES), "--compression", "gzip"
    ], check=True, stdout=subprocess.DEVNULL)
    (data / "dataset.json").unlink()
    (folder / "train-images-idx3-ubyte").unlink()  # as large as the files
    return data


class CompressedFiles(unittest.TestCase):
    def test_are_read_once_and_not_kept_in_memory(self):
        with tempfile.TemporaryDirectory(prefix="lockstep-first-start-") as folder:
            folder = pathlib.Path(folder)
            usual = max(Start(write_files(folder / "small", SMALL)).resident)
            data = write_files(folder / "large", LARGE)
            sizes = {file.name: file.stat().st_size for file in data.glob("*.tfrecord")}
            self.assertEqual(len(sizes), FILES)
            for which in ("first", "second"):  # the second has their indexes
                start = Start(data)
                self.assertEqual(len(start.read), RANKS)
                for name, size in sizes.items():
                    read = sorted(rank[name] for rank in start.read)
                    with self.subTest(start=which, file=name, size=size, read=read):
                        self.assertGreaterEqual(read[-1], size)
                        self.assertLessEqual(read[-1], size + HEAD)
                        self.assertLessEqual(read[-2], HEAD)
                with self.subTest(start=which, usual=usual):
                    self.assertLess(max(start.resident), usual + PROMISE)
                times = sum(sum(rank.values()) for rank in start.read) / sum(sizes.values())
                resident = [each >> 20 for each in start.resident]
                print(f"{which} start: {times:.3f} times the files' bytes; resident {resident} "
                      f"MiB, {usual >> 20} with small files")


def why_not_traced():
    if not shutil.which("strace"):
        return "strace is not installed"
    tried = subprocess.run(["strace", "-f", "--seccomp-bpf", "-o", os.devnull, "true"], text=True,
                           capture_output=True)
    return tried.stderr if tried.returncode else ""


if __name__ == "__main__":
    if sys.argv[1] == "--traced":
        sys.exit(traced(sys.argv[2], sys.argv[3:]))
    PROGRAM, *MPIRUN = sys.argv[1:]
    if reason := why_not_traced():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
