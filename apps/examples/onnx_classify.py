"""Classifies the rows of a table with onnxruntime and an exported model, without Lockstep.

    lockstep checkpoint export iris --with-preprocessing --output iris.onnx
    python3 onnx_classify.py iris.onnx TABLE.csv

Prints the class of each row and its probability. The names of the columns are in the model.
"""
import csv
import json
import sys

import numpy
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1])
metadata = session.get_modelmeta().custom_metadata_map
features = json.loads(metadata["lockstep.features"])
classes = json.loads(metadata["lockstep.classes"])

with open(sys.argv[2], newline="") as table:
    rows = [[float(row[name]) for name in features] for row in csv.DictReader(table)]
logits = session.run(None, {"features": numpy.array(rows, "float32")})[0]
powers = numpy.exp(logits - logits.max(axis=1, keepdims=True))
for row in powers / powers.sum(axis=1, keepdims=True):
    print(f"{classes[row.argmax()]} {row.max():.3f}")
