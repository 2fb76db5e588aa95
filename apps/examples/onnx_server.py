"""Serves an exported model to HTTP clients on this host with onnxruntime, without Lockstep, by the
JSON protocol of KServe v2 (Open Inference Protocol):

    lockstep checkpoint export iris --with-preprocessing --output iris.onnx
    python3 onnx_server.py iris.onnx 8000
"""
import http.server
import json
import pathlib
import sys

import numpy
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

MAX_BYTES = 8 << 20
TYPES = {"FP32": "float32", "UINT8": "uint8", "INT32": "int32", "INT64": "int64", "BYTES": "object"}
NAMES = {name: datatype for datatype, name in TYPES.items()}
CLIENT_ERRORS = (InvalidArgument, KeyError, OverflowError, RecursionError, TypeError, ValueError)

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1  # each connection has a thread of its own
session = onnxruntime.InferenceSession(sys.argv[1], options)
model = pathlib.Path(sys.argv[1]).stem


def array(tensor):
    shape = tensor["shape"]
    if not all(type(extent) is int and extent > 0 for extent in shape):
        raise ValueError(f"expected a shape of positive numbers, got {shape}")
    return numpy.array(tensor["data"], TYPES[tensor["datatype"]]).reshape(shape)


def infer(request):
    values = session.run(None, {each["name"]: array(each) for each in request["inputs"]})
    return {"model_name": model, "outputs": [
        {"name": node.name, "datatype": NAMES[str(each.dtype)], "shape": each.shape,
         "data": each.ravel().tolist()} for node, each in zip(session.get_outputs(), values)]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", -1, True
    timeout = 60  # seconds in which the next bytes of a connection have to arrive

    def answer(self, status, value):
        body = json.dumps(value, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status >= 400:
            self.send_header("Connection", "close")  # part of the request may be unread
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        ready = self.path == "/v2/health/ready"
        self.answer(200 if ready else 404, {"ready": True} if ready else {"error": "unknown path"})

    def do_POST(self):
        try:
            length = int(self.headers["Content-Length"])
        except (TypeError, ValueError):
            length = -1
        if self.path != f"/v2/models/{model}/infer":
            self.answer(404, {"error": f"expected /v2/models/{model}/infer, got {self.path}"})
        elif length < 0 or "Transfer-Encoding" in self.headers:
            self.answer(411, {"error": "expected a Content-Length"})
        elif length > MAX_BYTES:
            self.answer(413, {"error": f"expected up to {MAX_BYTES} bytes, got {length}"})
        else:
            try:
                self.answer(200, infer(json.loads(self.rfile.read(length))))
            except CLIENT_ERRORS as error:
                self.answer(400, {"error": f"{type(error).__name__}: {error}"})

    def log_request(self, *_):
        pass  # only errors


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
