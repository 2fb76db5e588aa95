#include "lockstep/allreduce/transport/direct_messages.h"

#include <mutex>

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::size_t kOutgoing = 0;
constexpr std::size_t kIncoming = 1;

}  // namespace

DirectMessages::DirectMessages(Transport& transport, std::size_t bytes) : transport_(transport) {
  buffers_.reserve(2, bytes);
}

void DirectMessages::wait(std::size_t slot) {
  while (!transport_.poll(buffers_.message(slot))) continue;
}

void DirectMessages::send(int to, std::size_t bytes) {
  const std::lock_guard turn(transport_.turn().mutex);
  buffers_.message(kOutgoing) = transport_.send(to, Tag::values, outgoing().first(bytes));
  wait(kOutgoing);
}

void DirectMessages::receive(int from, std::size_t bytes) {
  const std::lock_guard turn(transport_.turn().mutex);
  buffers_.message(kIncoming) = transport_.receive(from, Tag::values, incoming().first(bytes));
  wait(kIncoming);
}

void DirectMessages::exchange(int to, int from, std::size_t bytes) {
  const std::lock_guard turn(transport_.turn().mutex);
  buffers_.message(kIncoming) = transport_.receive(from, Tag::values, incoming().first(bytes));
  buffers_.message(kOutgoing) = transport_.send(to, Tag::values, outgoing().first(bytes));
  wait(kIncoming);
  wait(kOutgoing);
}

}  // namespace lockstep::inline v0::allreduce
