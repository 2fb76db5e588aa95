"""The part of scripts/bench that measures messages over Lockstep's own TCP: against Gloo and Open
MPI within a host, against iperf3 and Open MPI between hosts, and the start of a job."""

import pathlib
import statistics
import sys
import tempfile

from bench_allreduce import (
    CLUSTER,
    KIB,
    MIB,
    RATE,
    Times,
    allreduce_bench,
    micro,
    mpirun,
    size_name,
)
from bench_tools import LOCKSTEP, ROOT, Run, table

SIZES = (64, 16 * KIB, 256 * KIB, 16 * MIB, 64 * MIB)
SHORT = (64, 16 * KIB)
HOSTS = (2, 3, 4)
RANKS = (2, 16)  # jobs of so many ranks are started
ALL_CORES = {0, 1}
# Ranks that mpirun starts, as tasks that connect themselves.
AS_TASKS = ("RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE MASTER_ADDR=10.77.0.1 "
            "MASTER_PORT=29471 LOCKSTEP_JOB_SECRET=of-a-measurement LOCKSTEP_TRANSPORT=tcp ")
IPERF = ("if [ $OMPI_COMM_WORLD_RANK = 0 ]; then iperf3 -s -1 >/dev/null; else sleep 1; "
         "iperf3 -c 10.77.0.1 --bidir -t 5 -J | tr -d '\\n'; fi")


def launched(ranks, command):
    return [str(LOCKSTEP), "launch", "--np", str(ranks), "--", *command]


def on_hosts(hosts, command, rate):
    return Run([str(CLUSTER), "run", "--hosts", str(hosts), "--rate", rate, "--cores-per-host",
                "0", "--", *command], ALL_CORES, threads=None)


def over_tcp(command):
    return ["sh", "-c", AS_TASKS + 'exec "$@"', "sh", *command]


def of_sizes(route, sizes):
    """Commands of allreduce-bench, one for each size."""
    return [allreduce_bench(route, size, size) for size in sizes]


def measure_within_a_host(ranks, times):
    for command in of_sizes("ring", SIZES):
        times.add_run(Run(launched(ranks, command), ALL_CORES, threads=None), "tcp")
    over_mpi = ["mpirun", "--mca", "btl", "self,tcp"]
    for command in of_sizes("mpi", SIZES):
        times.add_run(Run(over_mpi + mpirun(ranks, command, [])[1:], ALL_CORES, threads=None))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "scripts" / "bench_backend.py"), "gloo",
                   str(pathlib.Path(folder, "store")), *map(str, SIZES)]
        times.add_run(Run(mpirun(ranks, command, []), ALL_CORES, threads=None))


def print_within_a_host(ranks, times):
    rows = []
    for size in SIZES:
        tcp, mpi, gloo = (times.median(name, size) for name in ("tcp", "mpi", "gloo"))
        rows.append([size_name(size), micro(tcp), micro(mpi), micro(gloo), f"{mpi / tcp:.2f} x",
                     f"{gloo / tcp:.2f} x"])
    print(f"\n{ranks} ranks on one host over TCP, without shared memory, microseconds:")
    table(["bytes", "tcp", "Open MPI", "Gloo", "Open MPI / tcp", "Gloo / tcp"], rows)


def iperf_megabits():
    """What iperf3 carries between two hosts, in each direction at once."""
    (_, event), = on_hosts(2, ["sh", "-c", IPERF], RATE).finish().events
    ends = (event["end"]["sum_received"], event["end"]["sum_received_bidir_reverse"])
    return statistics.mean(end["bits_per_second"] for end in ends) / 1e6


def print_between_hosts(rings, iperf):
    rows = []
    for hosts, times in rings.items():
        size = 64 * MIB
        seconds = times.median("tcp", size) / 1e6
        carried = 2 * (hosts - 1) / hosts * size * 8 / seconds / 1e6
        rows.append([str(hosts), micro(seconds * 1e3), micro(times.median("mpi ring", size) / 1e3),
                     micro(carried), f"{carried / statistics.median(iperf):.1%}"])
    print(f"\n64 MiB in a ring of hosts with links of {RATE}; iperf3 carries "
          f"{statistics.median(iperf):.1f} Mbit/s in each direction:")
    table(["hosts", "tcp, ms", "over MPI, ms", "tcp, Mbit/s", "share of iperf3"], rows)


def start_seconds(command):
    train = [str(LOCKSTEP), "train", "--model", "mlp", "--data", "synthetic:8x8x1,4,640",
             "--global-batch", "64", "--steps", "1", "--log-every", "1", "--devices", "cpu:0",
             "--checkpoint-dir", "none", "--json"]
    return Run(command(train), ALL_CORES).finish().seconds_to_first_step()


def measure_transport(options, result):
    """Messages over TCP: within a host, between hosts of scripts/cluster, and the start of a job
    with and without MPI."""
    within = {ranks: Times() for ranks in (2, 4)}
    rings = {hosts: Times() for hosts in HOSTS}
    short, iperf = Times(), []
    starts = {ranks: {"launch": [], "mpirun": []} for ranks in RANKS}
    for _ in range(options.rounds):
        for ranks, times in within.items():
            measure_within_a_host(ranks, times)
        iperf.append(iperf_megabits())
        for hosts, times in rings.items():
            command = allreduce_bench("ring", 64 * MIB, 64 * MIB)
            times.add_run(on_hosts(hosts, over_tcp(command), RATE), "tcp")
            times.add_run(on_hosts(hosts, command, RATE), "mpi ring")
        for command in of_sizes("ring", SHORT):
            short.add_run(on_hosts(2, over_tcp(command), "none"), "tcp")
        for command in of_sizes("mpi", SHORT):
            short.add_run(on_hosts(2, command, "none"))
        for ranks, seconds in starts.items():
            seconds["launch"].append(start_seconds(lambda train, n=ranks: launched(n, train)))
            seconds["mpirun"].append(start_seconds(lambda train, n=ranks: mpirun(n, train, [])))
    result["transport"] = {
        "within a host": {ranks: times.all for ranks, times in within.items()},
        "hosts": {hosts: times.all for hosts, times in rings.items()},
        "iperf3": iperf, "short": short.all, "start": starts}
    for ranks, times in within.items():
        print_within_a_host(ranks, times)
    print_between_hosts(rings, iperf)
    print("\nshort messages between 2 hosts, microseconds:")
    table(["bytes", "tcp", "MPI_Allreduce", "MPI / tcp"], [[
        size_name(size), micro(tcp := short.median("tcp", size)),
        micro(mpi := short.median("mpi", size)), f"{mpi / tcp:.2f} x"] for size in SHORT])
    print("\nfrom the start to the first step, seconds:")
    table(["ranks", "launch", "mpirun", "launch / mpirun"], [[
        str(ranks), f"{(own := statistics.median(seconds['launch'])):.2f}",
        f"{(mpi := statistics.median(seconds['mpirun'])):.2f}", f"{own / mpi:.0%}"
    ] for ranks, seconds in starts.items()])
