"""The side of onnxruntime of scripts/bench --only inference: an exported model on arrays in memory.

    bench_inference_onnx.py MODEL THREADS BATCH…

Prints the seconds of the single calls of each batch size as JSON.
"""
import json
import sys
import time

import numpy
import onnxruntime

SECONDS, LEAST, WARM_UP = 1, 10, 3


def main():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(sys.argv[2])
    session = onnxruntime.InferenceSession(sys.argv[1], options)
    [features] = session.get_inputs()
    calls = {}
    for batch in map(int, sys.argv[3:]):
        shape = [batch, *features.shape[1:]]
        feed = {features.name: numpy.random.default_rng(1).random(shape, "float32")}
        times = []
        while len(times) < LEAST + WARM_UP or sum(times) < SECONDS:
            begin = time.perf_counter()
            session.run(None, feed)
            times.append(time.perf_counter() - begin)
        calls[batch] = times[WARM_UP:]
    print(json.dumps({"version": onnxruntime.__version__, "calls": calls}))


if __name__ == "__main__":
    main()
