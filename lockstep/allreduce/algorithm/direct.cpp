#include "lockstep/allreduce/algorithm/direct.h"

#include <array>
#include <bit>
#include <cstring>

namespace lockstep::inline v0::allreduce {

Place ProcessAddresses::place_of(const std::byte* data, std::size_t /*bytes*/) {
  return {.segment = 0, .offset = std::bit_cast<std::uint64_t>(data)};
}

std::byte* ProcessAddresses::at(int /*member*/, const Place& place) {
  return std::bit_cast<std::byte*>(place.offset);
}

std::vector<std::byte*> buffers_of_all(const Barrier& barrier, Addresses& addresses) {
  std::vector<std::byte*> buffers;
  for (int member = 0; member < barrier.size(); ++member)
    buffers.push_back(addresses.at(member, barrier.place(member)));
  return buffers;
}

// Values that fit into a note need one round: every member reads all notes and computes the sum
// itself.
void reduce_notes(Barrier& barrier, const Values& values, ReduceOp op) {
  if (values.count > 0) std::memcpy(barrier.next_note(), values.data, bytes_of(values));
  barrier.exchange(Call::all_reduce(values, op));
  std::vector<const std::byte*> notes;
  for (int member = 0; member < barrier.size(); ++member) notes.push_back(barrier.note(member));
  reduce_slice(notes, std::array{values.data}, {0, values.count}, values.type, op);
}

void direct_all_reduce(Barrier& barrier, Addresses& addresses, const Values& values, ReduceOp op) {
  if (bytes_of(values) <= Barrier::kNoteBytes) return reduce_notes(barrier, values, op);
  barrier.exchange(Call::all_reduce(values, op), addresses.place_of(values.data, bytes_of(values)));
  direct_all_reduce_arrived(barrier, addresses, values, op);
}

void direct_all_reduce_arrived(Barrier& barrier, Addresses& addresses, const Values& values,
                               ReduceOp op) {
  const std::vector<std::byte*> buffers = buffers_of_all(barrier, addresses);
  const std::vector<const std::byte*> sources(buffers.begin(), buffers.end());
  reduce_slice(sources, buffers,
               slice_of(values.count, values.type, barrier.size(), barrier.member()), values.type,
               op);
  barrier.wait();
}

void direct_reduce_scatter(Barrier& barrier, Addresses& addresses, const Values& values,
                           ReduceOp op, int parts) {
  barrier.exchange(Call::reduce_scatter(values, op),
                   addresses.place_of(values.data, bytes_of(values)));
  if (barrier.member() >= parts) return;
  const std::vector<std::byte*> buffers = buffers_of_all(barrier, addresses);
  const std::vector<const std::byte*> sources(buffers.begin(), buffers.end());
  reduce_slice(sources, std::array{values.data},
               slice_of(values.count, values.type, parts, barrier.member()), values.type, op);
}

void direct_gather(Barrier& barrier, Addresses& addresses, const Values& values, int parts) {
  barrier.exchange(Call::gather_slices(values), addresses.place_of(values.data, bytes_of(values)));
  for (int member = 0; member < parts; ++member) {
    if (member == barrier.member()) continue;
    const Slice slice = slice_of(values.count, values.type, parts, member);
    const std::size_t begin = slice.begin * bytes_per_element(values.type);
    const std::size_t bytes = (slice.end - slice.begin) * bytes_per_element(values.type);
    if (bytes > 0)
      std::memcpy(values.data + begin, addresses.at(member, barrier.place(member)) + begin, bytes);
  }
  barrier.wait();
}

}  // namespace lockstep::inline v0::allreduce
