#include "lockstep/train/step/trace_file.h"

#include <cstdint>
#include <map>
#include <protozero/pbf_builder.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::train {
namespace {

using trace::Event;
using trace::RankTrace;
using trace::Slice;
using trace::ThreadEvents;
using trace::WriteBytes;
using Tag = protozero::pbf_tag_type;

// Fields of Perfetto's messages.
enum class TraceField : Tag { packet = 1 };
enum class PacketField : Tag {
  timestamp = 8,
  sequence = 10,  // trusted_packet_sequence_id
  track_event = 11,
  interned_data = 12,
  sequence_flags = 13,
  track_descriptor = 60,
};
enum class EventField : Tag { annotations = 4, type = 9, name_iid = 10, track = 11 };
enum class AnnotationField : Tag { name_iid = 1, int_value = 4 };
enum class InternedField : Tag { event_names = 2, annotation_names = 3 };
enum class NameField : Tag { iid = 1, name = 2 };
enum class TrackField : Tag { uuid = 1, process = 3, thread = 4 };
enum class ProcessField : Tag { pid = 1, name = 6 };
enum class ThreadField : Tag { pid = 1, tid = 2, name = 5 };

constexpr std::int32_t kSliceBegin = 1;
constexpr std::int32_t kSliceEnd = 2;
constexpr std::int32_t kInstant = 3;
constexpr std::uint32_t kStateCleared = 1;
constexpr std::uint32_t kNeedsState = 2;
enum class AnnotationName : std::uint64_t { step = 1, number = 2, collective = 3 };

class PerfettoWriter {
 public:
  /// `sequence`: unique among writers of a file, and among files that are concatenated.
  PerfettoWriter(const WriteBytes& write, std::uint32_t sequence)
      : pieces_(write), sequence_(sequence) {}

  /// The names of all events, which later packets refer to.
  void add_names(std::span<const RankTrace> ranks) {
    std::string bytes;
    {
      protozero::pbf_builder<PacketField> packet(bytes);
      packet.add_uint32(PacketField::sequence, sequence_);
      packet.add_uint32(PacketField::sequence_flags, kStateCleared);
      protozero::pbf_builder<InternedField> interned(packet, PacketField::interned_data);
      for (const RankTrace& rank : ranks)
        for (const ThreadEvents& thread : rank.threads)
          for (const Event& event : thread.events)
            if (names_.try_emplace(event.name, names_.size() + 1).second)
              add_name(interned, InternedField::event_names, names_.size(), event.name);
      for (const auto& [number, name] : {std::pair{AnnotationName::step, "step"},
                                         {AnnotationName::number, "number"},
                                         {AnnotationName::collective, "collective"}})
        add_name(interned, InternedField::annotation_names, static_cast<std::uint64_t>(number),
                 name);
    }
    add_packet(bytes);
  }

  void add_process(const RankTrace& rank) {
    std::string bytes;
    {
      protozero::pbf_builder<PacketField> packet(bytes);
      protozero::pbf_builder<TrackField> track(packet, PacketField::track_descriptor);
      track.add_uint64(TrackField::uuid, static_cast<std::uint64_t>(process_number(rank)));
      protozero::pbf_builder<ProcessField> process(track, TrackField::process);
      process.add_int32(ProcessField::pid, process_number(rank));
      process.add_string(ProcessField::name, process_name(rank));
    }
    add_packet(bytes);
  }

  void add_thread(const RankTrace& rank, std::size_t number) {
    const std::int32_t track_number = thread_number(rank, number);
    std::string bytes;
    {
      protozero::pbf_builder<PacketField> packet(bytes);
      protozero::pbf_builder<TrackField> track(packet, PacketField::track_descriptor);
      track.add_uint64(TrackField::uuid, static_cast<std::uint64_t>(track_number));
      protozero::pbf_builder<ThreadField> thread(track, TrackField::thread);
      thread.add_int32(ThreadField::pid, process_number(rank));
      thread.add_int32(ThreadField::tid, track_number);
      thread.add_string(ThreadField::name, rank.threads[number].thread);
    }
    add_packet(bytes);
    add_slices(slices_of(rank, rank.threads[number]), static_cast<std::uint64_t>(track_number));
  }

  void finish() { pieces_.flush(); }

 private:
  static void add_name(protozero::pbf_builder<InternedField>& interned, InternedField kind,
                       std::uint64_t number, const char* text) {
    protozero::pbf_builder<NameField> name(interned, kind);
    name.add_uint64(NameField::iid, number);
    name.add_string(NameField::name, text);
  }

  void add_packet(const std::string& bytes) {
    protozero::pbf_builder<TraceField> trace(pieces_.text());
    trace.add_message(TraceField::packet, bytes);
    pieces_.flush_full();
  }

  /// Adds begin and end events in the order of time; inner slices end first.
  void add_slices(const std::vector<Slice>& slices, std::uint64_t track) {
    std::vector<std::int64_t> open;  // the ends of slices
    for (const Slice& slice : slices) {
      while (!open.empty() && open.back() <= slice.begin) {
        add_event(kSliceEnd, open.back(), track, nullptr);
        open.pop_back();
      }
      const bool is_instant = slice.begin == slice.end;
      add_event(is_instant ? kInstant : kSliceBegin, slice.begin, track, &slice);
      if (!is_instant) open.push_back(slice.end);
    }
    for (; !open.empty(); open.pop_back()) add_event(kSliceEnd, open.back(), track, nullptr);
  }

  void add_event(std::int32_t type, std::int64_t time, std::uint64_t track, const Slice* slice) {
    bytes_.clear();
    {
      protozero::pbf_builder<PacketField> packet(bytes_);
      packet.add_uint64(PacketField::timestamp, static_cast<std::uint64_t>(time));
      packet.add_uint32(PacketField::sequence, sequence_);
      packet.add_uint32(PacketField::sequence_flags, kNeedsState);
      protozero::pbf_builder<EventField> event(packet, PacketField::track_event);
      event.add_enum(EventField::type, type);
      event.add_uint64(EventField::track, track);
      if (slice != nullptr) {
        event.add_uint64(EventField::name_iid, names_.at(slice->name));
        if (slice->step > 0) annotate(event, AnnotationName::step, slice->step);
        if (slice->number >= 0) annotate(event, AnnotationName::number, slice->number);
        if (slice->sequence > 0)
          annotate(event, AnnotationName::collective, static_cast<std::int64_t>(slice->sequence));
      }
    }
    add_packet(bytes_);
  }

  static void annotate(protozero::pbf_builder<EventField>& event, AnnotationName name,
                       std::int64_t value) {
    protozero::pbf_builder<AnnotationField> annotation(event, EventField::annotations);
    annotation.add_uint64(AnnotationField::name_iid, static_cast<std::uint64_t>(name));
    annotation.add_int64(AnnotationField::int_value, value);
  }

  trace::TextPieces pieces_;
  std::uint32_t sequence_;
  std::string bytes_;  // buffer of a packet; a member, so that its memory is reused
  std::map<std::string_view, std::uint64_t> names_;
};

}  // namespace

void write_perfetto_trace(std::span<const RankTrace> ranks, const WriteBytes& write) {
  PerfettoWriter writer(write,
                        ranks.empty() ? 1 : static_cast<std::uint32_t>(ranks.front().rank) + 1);
  writer.add_names(ranks);
  for (const RankTrace& rank : ranks) {
    writer.add_process(rank);
    for (std::size_t thread = 0; thread < rank.threads.size(); ++thread)
      if (!rank.threads[thread].events.empty()) writer.add_thread(rank, thread);
  }
  writer.finish();
}

trace::WriteTrace trace_writer(const std::filesystem::path& file) {
  return file.extension() == ".json" ? trace::write_chrome_trace : write_perfetto_trace;
}

}  // namespace lockstep::inline v0::train
