"""Prints what TensorBoard's own loader finds below a directory of event files, as JSON: {run:
{"scalars": {tag: [[wall_time, step, value]]}, "texts": {tag: [[step, text]]}, "images": {tag:
[[step, width, height, the first bytes in hexadecimal]]}, "histograms": {tag: [[step, [[low, high,
count]]]]}, "graph": {node: [operation, inputs, shape]}, "hyperparameters": {name: value}}}."""

import json
import sys

from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.hparams import metadata
from tensorboard.util import tensor_util


def graph_of(multiplexer, run):
    if not multiplexer.Runs()[run]["graph"]:
        return {}
    return {
        node.name: [
            node.op,
            list(node.input),
            [extent.size
             for extent in node.attr["_output_shapes"].list.shape[0].dim]
        ]
        for node in multiplexer.Graph(run).node
    }


def hyperparameters_of(multiplexer, run):
    content = multiplexer.PluginRunToTagToContent(metadata.PLUGIN_NAME).get(run, {})
    found = {}
    if metadata.SESSION_START_INFO_TAG in content:
        start = metadata.parse_session_start_info_plugin_data(content[
            metadata.SESSION_START_INFO_TAG])
        found.update({
            name: getattr(value, value.WhichOneof("kind"))
            for name, value in start.hparams.items()
        })
    if metadata.SESSION_END_INFO_TAG in content:
        found["status"] = metadata.parse_session_end_info_plugin_data(content[
            metadata.SESSION_END_INFO_TAG]).status
    return found


def main(directory):
    multiplexer = EventMultiplexer().AddRunsFromDirectory(directory).Reload()
    found = {}
    for run in multiplexer.Runs():
        by_plugin = {
            plugin: {
                tag: [(event, tensor_util.make_ndarray(event.tensor_proto))
                      for event in multiplexer.Tensors(run, tag)]
                for tag in multiplexer.PluginRunToTagToContent(plugin).get(run, {})
            }
            for plugin in ("scalars", "text", "images", "histograms")
        }
        found[run] = {
            "scalars": {
                tag: [[e.wall_time, e.step, value.item()]
                      for e, value in events]
                for tag, events in by_plugin["scalars"].items()
            },
            "texts": {
                tag: [[e.step, value.item().decode()]
                      for e, value in events]
                for tag, events in by_plugin["text"].items()
            },
            "images": {
                tag: [[e.step, value[0].decode(), value[1].decode(), value[2][:4].hex()]
                      for e, value in events]
                for tag, events in by_plugin["images"].items()
            },
            "histograms": {
                tag: [[e.step, value.tolist()]
                      for e, value in events]
                for tag, events in by_plugin["histograms"].items()
            },
            "graph": graph_of(multiplexer, run),
            "hyperparameters": hyperparameters_of(multiplexer, run),
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
