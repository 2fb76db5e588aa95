"""The parts of scripts/bench that time the all-reduce: in the memory of one machine, across hosts
of scripts/cluster, and overlapped with the backward pass."""

import itertools
import json
import os
import pathlib
import statistics
import tempfile

from bench_tools import BUILD, LOCKSTEP, ROOT, Run, physical_cores, table

PLAIN_LOOP = BUILD / "tests" / "bench" / "lockstep_bench_plain_loop"
CLUSTER = ROOT / "scripts" / "cluster"
KIB, MIB = 1 << 10, 1 << 20
RATE = "1gbit"
# what TCP carries each way at once over a cable of 1 Gbit/s: headers take the rest
TCP_BYTES_A_SECOND = 955e6 / 8
CLASSES = 10


def size_name(size):
    if size >= MIB:
        return f"{size // MIB} MiB"
    return f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def micro(microseconds):
    return f"{microseconds:,.2f}" if microseconds < 100 else f"{microseconds:,.0f}"


def allreduce_bench(routes, smallest, largest, factor=2, devices="cpu:0"):
    return [
        str(LOCKSTEP), "allreduce-bench", "--allreduce", routes, "--min-bytes",
        str(smallest), "--max-bytes",
        str(largest), "--factor",
        str(factor), "--devices", devices, "--json"
    ]


class Times:
    """Microseconds by (contender, bytes), one for each round."""

    def __init__(self):
        self.all = {}

    def add(self, contender, size, microseconds):
        self.all.setdefault(contender, {}).setdefault(size, []).append(microseconds)

    def add_run(self, run, contender=None):
        """The rows of an allreduce-bench, or of a program whose rows are all of one contender."""
        for _, event in run.finish().events:
            self.add(contender or event["route"], event["bytes"], event["microseconds"])

    def median(self, contender, size):
        return statistics.median(self.all[contender][size])

    def sizes(self, contender):
        return sorted(self.all.get(contender, {}))


# ---- In the memory of one machine

FACTORS = {2: 2, 4: 8}  # ratio of consecutive sizes, by number of members
SMALLEST, LARGEST = 64, 128 * MIB
SMALLEST_LOOP = 64 * KIB


def mpirun(ranks, command, cores):
    """With one core per rank, ranks are bound to cores, as Open MPI does by default; more ranks
    share the cores."""
    if ranks > len(cores):
        return ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
    bound = (["-np", "1", "taskset", "-c", str(core), *command] for core in cores[:ranks])
    return ["mpirun", "--oversubscribe", "--bind-to", "none", *itertools.chain.from_iterable(
        [":", *rank] if number else rank for number, rank in enumerate(bound))]


def measure_in_memory(members, cores, times):
    """One round: ranks on both routes, each in separate processes with exclusive caches; replicas
    of one process; for two of them the plain loop."""
    sizes = (SMALLEST, LARGEST, FACTORS[members])
    for route in ("shared-memory", "mpi"):
        times.add_run(
            Run(mpirun(members, allreduce_bench(route, *sizes), cores), cores, threads=None))
    times.add_run(
        Run(allreduce_bench("in-process", *sizes, devices=",".join(["cpu:0"] * members)), cores,
            threads=None))
    if members == 2:
        loop = [
            str(PLAIN_LOOP), "--min-bytes",
            str(SMALLEST_LOOP), "--max-bytes",
            str(LARGEST), "--factor", "2"
        ]
        times.add_run(Run(loop, cores, threads=None), "plain loop")


def print_in_memory(members, times):
    head = ["bytes", "shared-memory", "in-process", "mpi", "mpi / shared", "mpi / in-process"]
    loops = times.sizes("plain loop")
    if loops:
        head += ["plain loop", "share of it", "mpi / plain loop"]
    rows = []
    for size in times.sizes("mpi"):
        shared, local, mpi = (times.median(route, size)
                              for route in ("shared-memory", "in-process", "mpi"))
        cells = [
            size_name(size),
            micro(shared),
            micro(local),
            micro(mpi), f"{mpi / shared:.1f} x", f"{mpi / local:.1f} x"
        ]
        if size in loops:
            loop = times.median("plain loop", size)
            cells += [micro(loop), f"{loop / shared:.0%}", f"{mpi / loop:.1f} x"]
            if mpi < 4 * loop:
                cells.append("the loop itself is not 4 x MPI")
        elif loops:
            cells += ["", "", ""]
        rows.append(cells)
    print(f"\n{members} members on 2 cores, float32, sum, in place, microseconds:")
    table(head, rows)


def measure_allreduce(options, result):
    """Ranks and replicas that share memory, against MPI_Allreduce, and against a plain loop over
    the same memory."""
    cores = physical_cores(2)
    times = {members: Times() for members in FACTORS}
    for _ in range(options.rounds):
        for members in times:
            measure_in_memory(members, cores, times[members])
    result["allreduce"] = {
        f"{members} members": of_members.all
        for members, of_members in times.items()
    }
    for members, of_members in times.items():
        print_in_memory(members, of_members)


# ---- Across hosts

def across(hosts, command, ranks_per_host=1, cores_per_host=0, placement=()):
    """A run of `command` on hosts of scripts/cluster, with links of RATE."""
    return Run([
        str(CLUSTER), "run", "--hosts",
        str(hosts), "--ranks-per-host",
        str(ranks_per_host), "--rate", RATE, "--cores-per-host",
        str(cores_per_host), "--", *placement, *command
    ], sorted(os.sched_getaffinity(0)), threads=None)


def seconds_on_cable(size, share):
    """Time that a link needs for `share` of `size` bytes in each direction."""
    return size * share / TCP_BYTES_A_SECOND


SHORT = (64, KIB)  # bytes, from and to: the fixed cost of a message

# Placement of four ranks on two hosts: options of mpirun, and the part of the buffer that the ring
# puts on a link, which is 2 (n - 1) / n for each pair of neighbours that it connects.
PLACEMENTS = {"two by two": ((), 1.5), "round robin": (("--map-by", "node"), 3.0)}


def measure_cluster(options, result):
    """The ring on 2, 3 and 4 hosts, and hierarchical on 2 hosts of 2 ranks, against the bandwidth
    of the links and against MPI. Also short messages; those in between pass in a burst, faster than
    the link's rate, so they are not measured."""
    size = 64 * MIB
    short = Times()
    rings = {hosts: Times() for hosts in (2, 3, 4)}
    pairs = {placement: Times() for placement in PLACEMENTS}
    for _ in range(options.rounds):
        short.add_run(across(2, allreduce_bench("ring,mpi", *SHORT, 16), cores_per_host=1))
        for hosts, times in rings.items():
            times.add_run(across(hosts, allreduce_bench("ring,mpi", size, size)))
        for name, times in pairs.items():
            times.add_run(
                across(2, allreduce_bench("hierarchical,ring,mpi", size, size), ranks_per_host=2,
                       placement=PLACEMENTS[name][0]))
    result["cluster"] = {
        "short": short.all
    } | {
        f"{hosts} hosts": times.all
        for hosts, times in rings.items()
    } | {
        f"2 hosts x 2 ranks, {placement}": times.all
        for placement, times in pairs.items()
    }
    print_rings(size, rings)
    print_pairs(size, pairs)
    print("\nshort messages between 2 hosts of 1 core, microseconds:")
    table(["bytes", "ring", "mpi", "mpi / ring"], [[
        size_name(each),
        micro(ring := short.median("ring", each)),
        micro(mpi := short.median("mpi", each)), f"{mpi / ring:.2f} x"
    ] for each in short.sizes("ring")])


def print_rings(size, rings):
    rows = []
    for hosts, times in rings.items():
        ring, mpi = times.median("ring", size) / 1e3, times.median("mpi", size) / 1e3
        bound = seconds_on_cable(size, 2 * (hosts - 1) / hosts) * 1e3
        rows.append([
            str(hosts), f"{ring:,.0f}", f"{bound:,.0f}", f"{bound / ring:.0%}", f"{mpi:,.0f}",
            f"{mpi / ring:.2f} x"
        ])
    print(f"\n{size_name(size)} across hosts with links of {RATE}, milliseconds:")
    table(["hosts", "ring", "bound", "share of it", "mpi", "mpi / ring"], rows)


def print_pairs(size, pairs):
    rows = []
    for placement, times in pairs.items():
        hierarchical, ring, mpi = (times.median(route, size) / 1e3
                                   for route in ("hierarchical", "ring", "mpi"))
        on_cable = PLACEMENTS[placement][1]
        rows.append([
            placement, f"{hierarchical:,.0f}", f"{seconds_on_cable(size, 1) * 1e3:,.0f}",
            f"{ring:,.0f}", f"{seconds_on_cable(size, on_cable) * 1e3:,.0f}",
            f"{ring / hierarchical:.2f} x", f"{on_cable:.1f} x", f"{mpi:,.0f}",
            f"{mpi / hierarchical:.2f} x"
        ])
    print(f"\n{size_name(size)} on 2 hosts of 2 ranks each, links of {RATE}, milliseconds:")
    table([
        "placement", "hierarchical", "bound", "ring", "bound", "ring / hier.", "by bytes", "mpi",
        "mpi / hier."
    ], rows)
    print(
        "  by bytes: a link carries the buffer once in hierarchical, this many times in the ring; "
        "this is the largest possible gain over a ring at its bound")


# ---- Overlapped with the backward pass

def convolution(filters):
    return {
        "type": "conv2d",
        "filters": filters,
        "kernel": 3,
        "padding": "same",
        "activation": "relu"
    }


NETWORK = {
    "name": "cnn8m",
    "input": [28, 28, 1],
    "layers": [
        convolution(32),
        convolution(64), {
            "type": "max_pool2d"
        },
        convolution(128),
        convolution(128), {
            "type": "max_pool2d"
        }, {
            "type": "flatten"
        }, {
            "type": "dense",
            "units": 1200,
            "activation": "relu"
        }, {
            "type": "dense",
            "units": "classes"
        }
    ]
}
BATCHES = (192, 128)  # per replica: communication is about 60 and 90 % of the computation
STEPS, REPORT = 30, 10  # the first report is a warm-up
FORWARD_BATCHES = 10


def train(model, batch, *more):
    return [
        str(LOCKSTEP), "train", "--checkpoint-dir", "none", "--model",
        str(model), "--data", "fashion-mnist", "--global-batch",
        str(batch), "--steps",
        str(STEPS), "--log-every",
        str(REPORT), "--log-format", "json", *more
    ]


def events(run, kind):
    return [event for _, event in run.events if event["event"] == kind]


def milliseconds_a_step(run, batch):
    return statistics.mean(1e3 * batch / event["samples_per_second"]
                           for event in events(run, "step")[1:])


def measure_alone(model, batch, cores, times):
    """Two independent replicas at the same time, one on each core: a step, and its forward pass."""
    forward_only = [
        "--devices", "cpu:0", "--validation-data",
        f"synthetic:28x28x1,{CLASSES},{FORWARD_BATCHES * batch}"
    ]
    pair = [Run(train(model, batch, *forward_only), [core]) for core in cores]
    pair = [run.finish() for run in pair]
    times.add("compute", batch, statistics.mean(milliseconds_a_step(run, batch) for run in pair))
    times.add(
        "forward", batch,
        statistics.mean(1e3 * events(run, "epoch")[-1]["validation_seconds"] / FORWARD_BATCHES
                        for run in pair))
    return events(pair[0], "start")[0]["parameters"]


def measure_together(model, batch, times):
    """The same replica on each of two hosts of one core, which reduce over a link."""
    run = across(2, train(model, 2 * batch, "--allreduce", "ring"), cores_per_host=1).finish()
    times.add("step", batch, milliseconds_a_step(run, 2 * batch))
    for key in ("exposed_communication_ms", "waiting_ms"):
        times.add(key, batch, statistics.mean(event[key] for event in events(run, "step")[1:]))


def measure_overlap(options, result):
    """A step on two hosts against the longer of its computation and its communication, measured
    separately."""
    cores = physical_cores(2)
    times = Times()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "cnn8m.json"
        model.write_text(json.dumps(NETWORK))
        for _ in range(options.rounds):
            for batch in BATCHES:
                parameters = measure_alone(model, batch, cores, times)
                measure_together(model, batch, times)
            size = 4 * parameters
            [(_, ring)] = across(2, allreduce_bench("ring", size, size),
                                 cores_per_host=1).finish().events
            times.add("communication", parameters, ring["microseconds"] / 1e3)
    result["overlap"] = {"parameters": parameters, "milliseconds": times.all}
    print_overlap(parameters, times)


def print_overlap(parameters, times):
    communication = times.median("communication", parameters)
    rows = []
    for batch in BATCHES:
        step, compute, forward, exposed, waiting = (times.median(kind, batch)
                                                    for kind in ("step", "compute", "forward",
                                                                 "exposed_communication_ms",
                                                                 "waiting_ms"))
        longer, least = max(compute, communication), forward + communication
        rows.append([
            str(batch), f"{step:.0f}", f"{compute:.0f}", f"{communication:.0f}",
            f"{communication / compute:.0%}", f"{step / longer:.2f}", f"{least:.0f}",
            f"{step / max(longer, least):.2f}", f"{exposed:.0f}", f"{waiting:.0f}"
        ])
    print(
        f"\n{parameters:,} parameters on 2 hosts of 1 core, link of {RATE}, milliseconds per step:")
    table([
        "batch", "step", "compute", "communication", "of compute", "step / longer",
        "forward + comm.", "step / bound", "exposed", "waiting"
    ], rows)
    print(
        "  batch: of each replica. longer: of compute and communication, each alone. There is no "
        "gradient before the backward pass begins,\n  so no step is shorter than forward + "
        "communication; the bound is the larger of both. exposed, waiting: from the log")
