#include "lockstep/allreduce/member/group_member.h"

#include <fmt/format.h>

#include <cstring>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

std::string to_string(const Call& call) {
  switch (call.kind) {
    case Call::Kind::all_reduce:
      return fmt::format("all_reduce({} {}, {})", call.count, name_of(call.type), name_of(call.op));
    case Call::Kind::reduce_scatter:
      return fmt::format("reduce_scatter({} {}, {})", call.count, name_of(call.type),
                         name_of(call.op));
    case Call::Kind::gather_slices:
      return fmt::format("all_gather({} {})", call.count, name_of(call.type));
    case Call::Kind::broadcast:
      return fmt::format("broadcast({} bytes from {})", call.count, call.root);
    case Call::Kind::all_gather:
      return fmt::format("all_gather({} bytes)", call.count);
    case Call::Kind::all_to_all:
      return fmt::format("all_to_all({} bytes)", call.count);
    case Call::Kind::barrier:
      return "barrier()";
    case Call::Kind::any:
      return "any()";
  }
  return "unknown";
}

constexpr auto kCalls = enum_names<Call::Kind>({{Call::Kind::all_reduce, "all_reduce"},
                                                {Call::Kind::reduce_scatter, "reduce_scatter"},
                                                {Call::Kind::broadcast, "broadcast"},
                                                {Call::Kind::gather_slices, "all_gather"},
                                                {Call::Kind::all_gather, "all_gather"},
                                                {Call::Kind::all_to_all, "all_to_all"},
                                                {Call::Kind::barrier, "barrier"},
                                                {Call::Kind::any, "any"}});

}  // namespace

Call Call::all_reduce(const Values& values, ReduceOp op) {
  return {.kind = Kind::all_reduce, .type = values.type, .op = op, .count = values.count};
}
Call Call::reduce_scatter(const Values& values, ReduceOp op) {
  return {.kind = Kind::reduce_scatter, .type = values.type, .op = op, .count = values.count};
}
Call Call::gather_slices(const Values& values) {
  return {.kind = Kind::gather_slices, .type = values.type, .count = values.count};
}
Call Call::broadcast(std::size_t bytes, int root) {
  return {.kind = Kind::broadcast, .root = root, .count = bytes};
}
Call Call::all_gather(std::size_t bytes) { return {.kind = Kind::all_gather, .count = bytes}; }
Call Call::all_to_all(std::size_t bytes) { return {.kind = Kind::all_to_all, .count = bytes}; }
Call Call::barrier() { return {.kind = Kind::barrier}; }
Call Call::any(bool mine) { return {.kind = Kind::any, .flag = mine}; }

bool is_same(const Call& a, const Call& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Call::Kind::all_reduce:
    case Call::Kind::reduce_scatter:
      return a.type == b.type && a.op == b.op && a.count == b.count;
    case Call::Kind::gather_slices:
      return a.type == b.type && a.count == b.count;
    case Call::Kind::broadcast:
      return a.root == b.root && a.count == b.count;
    case Call::Kind::all_gather:
    case Call::Kind::all_to_all:
    case Call::Kind::barrier:
    case Call::Kind::any:
      return true;
  }
  return false;
}

std::optional<ErrorMessage> find_difference(std::span<const Call> calls,
                                            std::span<const int> numbers) {
  for (std::size_t i = 1; i < calls.size(); ++i) {
    if (is_same(calls[0], calls[i])) continue;
    return ErrorMessage{std::string(kCalls.name(calls[0].kind)),
                        "expected the same call on all members",
                        fmt::format("member {} called {} and member {} called {}", numbers[0],
                                    to_string(calls[0]), numbers[i], to_string(calls[i]))};
  }
  return std::nullopt;
}

device::Buffer GroupMember::allocate(std::size_t bytes) {
  return device::HostAllocator().allocate(bytes);
}

void GroupMember::start_after(device::Stream& stream) {
  if (stream.device().kind != device::DeviceKind::cpu)
    throw Error(ErrorCategory::input, "all_reduce",
                "expected a group of GPU replicas for a GPU stream",
                fmt::format("got a stream of {} for route {}", device::to_string(stream.device()),
                            route()));
  stream.synchronize();
}

std::vector<std::vector<std::byte>> GroupMember::all_to_all(
    std::span<const std::span<const std::byte>> parts) {
  // The sizes of all parts, then their bytes.
  std::vector<std::byte> mine;
  const auto append = [&](std::span<const std::byte> bytes) {
    mine.insert(mine.end(), bytes.begin(), bytes.end());
  };
  for (const auto& part : parts) {
    const std::uint64_t size = part.size();
    append(std::as_bytes(std::span(&size, 1)));
  }
  for (const auto& part : parts) append(part);
  std::vector<std::vector<std::byte>> received;
  for (const std::vector<std::byte>& packed : all_gather(mine)) {
    std::vector<std::uint64_t> sizes(parts.size());
    std::memcpy(sizes.data(), packed.data(), sizes.size() * sizeof(std::uint64_t));
    std::size_t begin = sizes.size() * sizeof(std::uint64_t);
    for (int member = 0; member < rank(); ++member)
      begin += sizes[static_cast<std::size_t>(member)];
    const auto first = packed.begin() + static_cast<std::ptrdiff_t>(begin);
    received.emplace_back(
        first, first + static_cast<std::ptrdiff_t>(sizes[static_cast<std::size_t>(rank())]));
  }
  return received;
}

}  // namespace lockstep::inline v0::allreduce
