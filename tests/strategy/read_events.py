"""Prints what TensorBoard's own loader finds below a directory of event files, as JSON: {run: {"scalars": {tag: [[wall_time, step, value]]},
"texts": {tag: [[step, text]]}, "images": {tag: [[step, width, height, the first bytes in hexadecimal]]}}}."""

import json
import sys

from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.util import tensor_util


def main(directory):
    multiplexer = EventMultiplexer().AddRunsFromDirectory(directory).Reload()
    found = {}
    for run in multiplexer.Runs():
        by_plugin = {
            plugin: {
                tag: [(event, tensor_util.make_ndarray(event.tensor_proto)) for event in multiplexer.Tensors(run, tag)]
                for tag in multiplexer.PluginRunToTagToContent(plugin).get(run, {})
            }
            for plugin in ("scalars", "text", "images")
        }
        found[run] = {
            "scalars": {tag: [[e.wall_time, e.step, value.item()] for e, value in events] for tag, events in by_plugin["scalars"].items()},
            "texts": {tag: [[e.step, value.item().decode()] for e, value in events] for tag, events in by_plugin["text"].items()},
            "images": {
                tag: [[e.step, value[0].decode(), value[1].decode(), value[2][:4].hex()] for e, value in events]
                for tag, events in by_plugin["images"].items()
            },
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
