#include "lockstep/allreduce/transport/byte_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::uint64_t kMagic = 0x317374706b636f6cULL;  // "lockpts1" in memory
constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;

[[noreturn]] void refuse(const char* expected, const std::string& found) {
  throw Error(ErrorCategory::communication, "transport", expected, found);
}

// Fields in the byte order of this processor, which the magic number checks.
template <typename T>
std::byte* put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}

template <typename T>
const std::byte* get(const std::byte* from, T& value) {
  std::memcpy(&value, from, sizeof(value));
  return from + sizeof(value);
}

}  // namespace

std::array<std::byte, MessageHeader::kBytes> MessageHeader::encode() const {
  std::array<std::byte, kBytes> bytes_of{};
  std::byte* to = put(bytes_of.data(), kMagic);
  to = put(to, job);
  to = put(to, context);
  to = put(to, sequence);
  to = put(to, bytes);
  to = put(to, generation);
  put(to, static_cast<std::uint32_t>(tag));
  return bytes_of;
}

MessageHeader MessageHeader::decode(std::span<const std::byte, kBytes> bytes_of) {
  MessageHeader header;
  std::uint64_t magic = 0;
  std::uint32_t tag = 0;
  const std::byte* from = get(bytes_of.data(), magic);
  from = get(from, header.job);
  from = get(from, header.context);
  from = get(from, header.sequence);
  from = get(from, header.bytes);
  from = get(from, header.generation);
  get(from, tag);
  if (magic != kMagic)
    refuse("expected a message of this version of Lockstep, in this byte order",
           fmt::format("got one that begins with {:016x}", magic));
  if (tag > static_cast<std::uint32_t>(Tag::failure))
    refuse("expected a message of a known kind", fmt::format("got kind {}", tag));
  if (header.bytes > kLongest)
    refuse("expected a message of at most 1 TiB", fmt::format("got {} bytes", header.bytes));
  header.tag = static_cast<Tag>(tag);
  return header;
}

void OutgoingBytes::add(const MessageHeader& header, std::span<const std::byte> bytes,
                        std::uint64_t id) {
  queue_.push_back({header.encode(), bytes, id});
}

std::vector<std::span<const std::byte>> OutgoingBytes::next(std::size_t most) const {
  std::vector<std::span<const std::byte>> parts;
  std::size_t skipped = done_;
  for (const Entry& entry : queue_) {
    for (const std::span<const std::byte> whole :
         {std::span<const std::byte>(entry.header), entry.bytes}) {
      const std::size_t skip = std::min(skipped, whole.size());
      skipped -= skip;
      if (skip < whole.size()) parts.push_back(whole.subspan(skip));
      if (parts.size() == most) return parts;
    }
  }
  return parts;
}

std::vector<std::uint64_t> OutgoingBytes::sent(std::size_t bytes) {
  std::vector<std::uint64_t> complete;
  done_ += bytes;
  while (!queue_.empty()) {
    const std::size_t whole = MessageHeader::kBytes + queue_.front().bytes.size();
    if (done_ < whole) break;
    done_ -= whole;
    complete.push_back(queue_.front().id);
    queue_.pop_front();
  }
  return complete;
}

std::span<std::byte> IncomingBytes::next() {
  if (!has_begun_ && filled_ == header_.size()) {
    const MessageHeader header = MessageHeader::decode(header_);
    if (header.sequence != sequence_)
      refuse("expected every message once, in order",
             fmt::format("got message {} after {} of rank {}", header.sequence, sequence_, from_));
    const auto memory = sink_.begin(from_, header);
    if (!memory) return {};
    memory_ = *memory;
    bytes_ = header.bytes;
    has_begun_ = true;
    filled_ = 0;
    ++sequence_;
    if (bytes_ == 0) received(0);
  }
  if (!has_begun_) return std::span(header_).subspan(filled_);
  if (filled_ < memory_.size())
    return memory_.first(std::min<std::uint64_t>(bytes_, memory_.size())).subspan(filled_);
  return std::span(dropped_).first(std::min<std::uint64_t>(bytes_ - filled_, dropped_.size()));
}

void IncomingBytes::received(std::size_t bytes) {
  filled_ += bytes;
  if (!has_begun_ || filled_ < bytes_) return;
  has_begun_ = false;
  filled_ = 0;
  sink_.end(from_);
}

}  // namespace lockstep::inline v0::allreduce
