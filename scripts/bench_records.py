"""The part of scripts/bench that reads records: against plain reads of the same pages, and against
tf.data."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess

from bench_tools import BUILD, ROOT, physical_cores, row, spread, title

RECORDS = BUILD / "tests" / "bench" / "lockstep_bench_records"
MANY_FILES = BUILD / "tests" / "bench" / "lockstep_bench_many_files"
KEPT = ROOT / "build" / "bench-records"
SECONDS = 0.5
OURS = {
    "memcpy": "floor_memcpy/large/102400",
    "pread": "floor_pread/large/102400",
    "once": "read_stream/large",
    "ordered": "read_by_index/large/0/1",
    "shuffled": "read_by_index/large/1/1",
    "unmapped": "read_by_index/large/0/0",
    "images": "read_images/0",
    "images_shuffled": "read_images/1",
    "index": "build_index/small"
}


def lockstep_rates(core):
    """For each benchmark: records and bytes per second of the thread's processor time."""
    pattern = "|".join(f"^{name}$" for name in OURS.values())
    report = subprocess.run([
        str(RECORDS), f"--benchmark_filter={pattern}", "--benchmark_format=json",
        f"--benchmark_min_time={SECONDS}"
    ], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            env=dict(os.environ, LOCKSTEP_BENCH_RECORDS=str(KEPT)),
                            preexec_fn=lambda: os.sched_setaffinity(0, [core])).stdout
    return {each["name"]: (each["items_per_second"], each["bytes_per_second"])
            for each in json.loads(report)["benchmarks"]}


def tensorflow_rates(python, core, chosen=()):
    """For each work and setting of tf.data: records per second of the process's processor time."""
    command = [
        python,
        str(ROOT / "scripts" / "bench_tensorflow.py"),
        str(KEPT),
        str(SECONDS), *chosen
    ]
    return json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                       preexec_fn=lambda: os.sched_setaffinity(0, [core])).stdout)


def many_files():
    """The cost of 100,000 files with 100 million records to a process; the files are simulated,
    their indexes are real."""
    directory = ROOT / "build" / "bench-many-files"
    shutil.rmtree(directory, ignore_errors=True)
    try:
        return json.loads(
            subprocess.run([str(MANY_FILES), str(directory)], check=True,
                           stdout=subprocess.PIPE).stdout)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def best_of(rates):
    return [max(settings, key=settings.get) for settings in rates["rates"].values()]


def measure_records(options, result):
    """One core, files in the page cache; tf.data if LOCKSTEP_TENSORFLOW_PYTHON has it, with its
    fastest settings."""
    if not RECORDS.exists():
        print(f"  {RECORDS} was not built (it needs Google Benchmark); records are not measured")
        return
    [core] = physical_cores(1)
    shutil.rmtree(KEPT, ignore_errors=True)
    pathlib.Path(KEPT).mkdir(parents=True)
    python = os.environ.get("LOCKSTEP_TENSORFLOW_PYTHON")
    ours, theirs, chosen, version = [], [], (), None
    try:
        lockstep_rates(core)  # writes the files
        if python:
            tried = tensorflow_rates(python, core)
            chosen, version = best_of(tried), tried["version"]
            print(f"TensorFlow {version}; the fastest of its settings: {', '.join(chosen)}")
        for _ in range(options.rounds):
            ours.append({
                key: lockstep[name]
                for lockstep in [lockstep_rates(core)]
                for key, name in OURS.items()
            })
            if python:
                rates = tensorflow_rates(python, core, chosen)["rates"]
                theirs.append({work: max(settings.values()) for work, settings in rates.items()})
    finally:
        shutil.rmtree(KEPT, ignore_errors=True)
    memory = many_files()
    result["records"] = {
        "lockstep": ours,
        "memory": memory,
        "tensorflow": theirs,
        "tensorflow_settings": chosen,
        "tensorflow_version": version
    }
    report(ours, theirs)
    row("MiB for 100,000 files, 100 million records", f"{memory['most_resident_mib']:,.0f}", "", "",
        f"opened in {memory['open_seconds']:.1f} s, {memory['descriptors']} descriptors")


def report(ours, theirs):
    def rates(key, column=0, unit=1e6):
        return [each[key][column] / unit for each in ours]

    def compare(name, values, others, digits):
        middle, other = statistics.median(values), statistics.median(others)
        ratio = statistics.median(value / each for value, each in zip(values, others))
        row(name, f"{middle:,.{digits}f}", f"{other:,.{digits}f}", f"{ratio:.2f} x",
            f"ours {min(values):.{digits}f} to {max(values):.{digits}f}")

    title("memcpy")
    compare("GB/s, records of 100 KB, in order", rates("ordered", 1, 1e9), rates("memcpy", 1, 1e9),
            1)
    compare("GB/s, records of 100 KB, shuffled", rates("shuffled", 1, 1e9), rates("memcpy", 1, 1e9),
            1)
    title("pread")
    compare("GB/s, records of 100 KB, not mapped", rates("unmapped", 1, 1e9),
            rates("pread", 1, 1e9), 1)
    compare("GB/s, records of 100 KB, a file read once", rates("once", 1, 1e9),
            rates("pread", 1, 1e9), 1)
    if theirs:
        title("tf.data")
        compare("million records of 100 KB per second", rates("ordered"),
                [each["large"] / 1e6 for each in theirs], 3)
        compare("million images of 784 bytes per second", rates("images"),
                [each["images"] / 1e6 for each in theirs], 2)
    else:
        print("\n  no TensorFlow to compare with")
        row("million images of 784 bytes per second", f"{statistics.median(rates('images')):.2f}",
            "", "")
    row("the same in a shuffled order", f"{statistics.median(rates('images_shuffled')):.2f}", "",
        "", f"ours {spread([1e6 * rate for rate in rates('images_shuffled')])} per second")
    row("million small records indexed per second", f"{statistics.median(rates('index')):.1f}", "",
        "")
