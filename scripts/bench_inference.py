"""The part of scripts/bench with inference: `lockstep predict` on one and two ranks, onnxruntime on
the exported file, and apps/examples/onnx_server.py. Prints the tables of docs/inference.md."""

import collections
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

from bench_tools import LOCKSTEP, ROOT, Run, on_cores, physical_cores

# The shorter run of `predict` has `records` of each rank at the largest batch, and fewer at others.
Work = collections.namedtuple("Work", "model data records")
WORKS = [Work("cnn", "28x28x1", 20_000), Work("resnet18", "32x32x3", 128),
         Work("mlp:1024,1024", "28x28x1", 30_000)]
BATCHES = {1: 8, 8: 2, 64: 1}  # the batch size of a rank, and the divisor of `records`
LARGEST = max(BATCHES)
REQUESTS, WARM_UP = 300, 20
DOLLARS = 0.04  # price of a core-hour in the table of costs


def data(work, records):
    return ["--data", f"synthetic-images:{work.data},10,{records}"]


def train_and_export(work, folder):
    """One step, since speed does not depend on the values of the weights."""
    folder.mkdir()
    Run([
        str(LOCKSTEP), "train", "--model", work.model, *data(work, LARGEST), "--global-batch",
        str(LARGEST), "--steps", "1", "--checkpoint-dir",
        str(folder / "run"), "--json"
    ], physical_cores(1)).finish()
    model = folder / "model.onnx"
    subprocess.run([LOCKSTEP, "checkpoint", "export", folder / "run", "--output", model],
                   check=True, stdout=subprocess.DEVNULL)
    return model


def seconds_of_record(work, folder, batch, ranks):
    """The time of `predict` for 3 N records without that for N, divided by 2 N: reading, computing
    and writing CSV, without the start and the end of the program."""
    count = work.records * ranks // BATCHES[batch]
    command = [
        str(LOCKSTEP), "predict", "--checkpoint",
        str(folder / "run"), "--devices", "cpu:0", "--output",
        str(folder / "out.csv"), "--json"
    ]
    if batch < LARGEST:  # its default batch has passes of LARGEST records
        command += ["--global-batch", str(batch * ranks)]
    if ranks > 1:
        command = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
    cores = physical_cores(ranks)
    short, long = (Run([*command, *data(work, times * count)], cores).finish().events[-1][0]
                   for times in (1, 3))
    return (long - short) / (2 * count)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def request_seconds(python, model, shape):
    """Seconds of requests for one record each over one connection, from the first byte of the
    request to the last of the response. The server has one core, the client the other."""
    server_core, client_core = physical_cores(2)
    port, name = free_port(), model.stem
    server = subprocess.Popen([python, ROOT / "apps" / "examples" / "onnx_server.py", model,
                               str(port)],
                              preexec_fn=lambda: os.sched_setaffinity(0, [server_core]))
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [client_core])
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while server.poll() is None:
            try:
                connection.connect()
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        height, width, channels = shape
        values = [i % 256 / 255 for i in range(height * width * channels)]
        body = json.dumps({
            "inputs": [{
                "name": "features",
                "datatype": "FP32",
                "shape": [1, channels, height, width],
                "data": values
            }]
        })
        times = []
        for _ in range(REQUESTS + WARM_UP):
            begin = time.perf_counter()
            connection.request("POST", f"/v2/models/{name}/infer", body)
            response = connection.getresponse()
            answer = response.read()
            times.append(time.perf_counter() - begin)
            if response.status != 200:
                raise RuntimeError(f"expected status 200, got {response.status}: {answer}")
        return times[WARM_UP:]
    finally:
        os.sched_setaffinity(0, cores)
        server.terminate()
        server.wait()


def measure_work(options, work, python, folder):
    model = train_and_export(work, folder)
    found = {
        "predict": collections.defaultdict(list),
        "onnxruntime": collections.defaultdict(list),
        "rest": []
    }
    for _ in range(options.rounds):
        for count in (1, 2):
            for batch in BATCHES:
                found["predict"][f"{count} {batch}"].append(
                    seconds_of_record(work, folder, batch, count))
            calls = on_cores(
                [python, ROOT / "scripts" / "bench_inference_onnx.py", model, count, *BATCHES],
                physical_cores(count))["calls"]
            for batch, times in calls.items():
                found["onnxruntime"][f"{count} {batch}"].append(times)
        found["rest"].append(request_seconds(python, model, map(int, work.data.split("x"))))
    return found


def markdown(head, rows):
    print()
    for cells in (head, *rows):
        print(f"| {' | '.join(cells)} |", flush=True)
        if cells is head:
            print("|---" * len(head) + "|")


def percentiles(rounds):
    """Median and 99th percentile in milliseconds over the calls of all rounds."""
    times = sorted(1e3 * each for times in rounds for each in times)
    return f"{statistics.median(times):.2f} ({times[99 * (len(times) - 1) // 100]:.2f})"


def number(rate):
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.1f}"


def measure_inference(options, result):
    """Networks of images in float32, with batches of the same size for each rank."""
    python = os.environ.get("LOCKSTEP_ONNX_PYTHON")
    if not python:
        print("\nnot measured: inference, which needs a Python with onnxruntime")
        return
    result["inference"] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number_of, work in enumerate(WORKS):
            result["inference"][work.model] = measure_work(
                options, work, python, pathlib.Path(directory) / str(number_of))
    print_tables(result["inference"])


def print_tables(networks):
    rates, latencies, costs = [], [], []
    for model, found in networks.items():
        name = f"`{model}`"
        ours, others = ({
            count: statistics.median(rate(each) for each in found[side][f"{count} {LARGEST}"])
            for count in (1, 2)
        } for side, rate in (("predict", lambda seconds: 1 / seconds),
                             ("onnxruntime", lambda times: LARGEST / statistics.median(times))))
        rates.append([
            name, *(text for count in (1, 2)
                    for text in (number(ours[count]), number(others[count]),
                                 f"{ours[count] / others[count]:.2f} x"))
        ])
        costs.append([
            name, *(text for rate in (ours[1], others[1])
                    for text in (number(rate), f"{rate * 3600 / DOLLARS / 1e6:,.1f}"))
        ])
        for batch in BATCHES:
            seconds = [
                count * batch * statistics.median(found["predict"][f"{count} {batch}"])
                for count in (1, 2)
            ]
            latencies.append([
                name,
                str(batch), *(f"{1e3 * each:.2f}" for each in seconds),
                *(percentiles(found["onnxruntime"][f"{count} {batch}"]) for count in (1, 2)),
                percentiles(found["rest"]) if batch == 1 else ""
            ])
    markdown([
        f"records a second, batches of {LARGEST}", "one core: `predict`", "onnxruntime", "ratio",
        "two cores: `predict`, 2 ranks", "onnxruntime, 2 threads", "ratio"
    ], rates)
    markdown([
        "milliseconds of a batch", "size", "`predict`, 1 rank", "`predict`, 2 ranks",
        "onnxruntime, 1 thread", "onnxruntime, 2 threads", "REST"
    ], latencies)
    markdown([
        f"one core, batches of {LARGEST}", "`predict`: records a core-second",
        f"million records a dollar, at {DOLLARS} a core-hour", "onnxruntime", "a dollar"
    ], costs)
