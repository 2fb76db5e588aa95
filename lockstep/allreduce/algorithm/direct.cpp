#include "lockstep/allreduce/algorithm/direct.h"

#include <array>
#include <bit>
#include <cstring>

namespace lockstep::allreduce {
namespace {}  // namespace

Place ProcessAddresses::place_of(const std::byte* data, std::size_t /*bytes*/) {
  return {.segment = 0, .offset = std::bit_cast<std::uint64_t>(data)};
}

std::byte* ProcessAddresses::at(int /*member*/, const Place& place) { return std::bit_cast<std::byte*>(place.offset); }

std::vector<std::byte*> buffers_of_all(const Meeting& meeting, Addresses& addresses) {
  std::vector<std::byte*> buffers;
  for (int member = 0; member < meeting.size(); ++member)
    buffers.push_back(addresses.at(member, meeting.place(member)));
  return buffers;
}

// What fits a note needs one round: everybody reads all, and keeps the sum for itself.
void reduce_notes(Meeting& meeting, const Values& values, ReduceOp op) {
  if (values.count > 0) std::memcpy(meeting.next_note(), values.data, bytes_of(values));
  meeting.meet(Call::all_reduce(values, op));
  std::vector<const std::byte*> notes;
  for (int member = 0; member < meeting.size(); ++member) notes.push_back(meeting.note(member));
  reduce_slice(notes, std::array{values.data}, {0, values.count}, values.type, op);
}

void direct_all_reduce(Meeting& meeting, Addresses& addresses, const Values& values, ReduceOp op) {
  if (bytes_of(values) <= Meeting::kNoteBytes) return reduce_notes(meeting, values, op);
  meeting.meet(Call::all_reduce(values, op), addresses.place_of(values.data, bytes_of(values)));
  direct_all_reduce_met(meeting, addresses, values, op);
}

void direct_all_reduce_met(Meeting& meeting, Addresses& addresses, const Values& values, ReduceOp op) {
  const std::vector<std::byte*> buffers = buffers_of_all(meeting, addresses);
  const std::vector<const std::byte*> sources(buffers.begin(), buffers.end());
  reduce_slice(sources, buffers, slice_of(values.count, values.type, meeting.size(), meeting.member()), values.type,
               op);
  meeting.wait();
}

void direct_reduce_scatter(Meeting& meeting, Addresses& addresses, const Values& values, ReduceOp op, int parts) {
  meeting.meet(Call::reduce_scatter(values, op), addresses.place_of(values.data, bytes_of(values)));
  if (meeting.member() >= parts) return;
  const std::vector<std::byte*> buffers = buffers_of_all(meeting, addresses);
  const std::vector<const std::byte*> sources(buffers.begin(), buffers.end());
  reduce_slice(sources, std::array{values.data}, slice_of(values.count, values.type, parts, meeting.member()),
               values.type, op);
}

void direct_gather(Meeting& meeting, Addresses& addresses, const Values& values, int parts) {
  meeting.meet(Call::gather_slices(values), addresses.place_of(values.data, bytes_of(values)));
  for (int member = 0; member < parts; ++member) {
    if (member == meeting.member()) continue;
    const Slice slice = slice_of(values.count, values.type, parts, member);
    const std::size_t begin = slice.begin * bytes_per_element(values.type);
    const std::size_t bytes = (slice.end - slice.begin) * bytes_per_element(values.type);
    if (bytes > 0) std::memcpy(values.data + begin, addresses.at(member, meeting.place(member)) + begin, bytes);
  }
  meeting.wait();
}

}  // namespace lockstep::allreduce
