#include "lockstep/data/record/record_frame.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace lockstep::inline v0::data {
namespace {

constexpr std::size_t kLongestCall = std::size_t{1} << 30;  // ISA-L sizes are int
constexpr std::uint32_t kMaskDelta = 0xa282ead8u;

}  // namespace

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  // ISA-L does not invert the state before or after; the CRC does both. Its pointer is not const,
  // but it only reads.
  std::uint32_t state = ~before;
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kLongestCall);
    auto* begin = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    state = crc32_iscsi(begin, static_cast<int>(count), state);
    bytes.remove_prefix(count);
  }
  return ~state;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + kMaskDelta;
}

namespace {

template <typename T>
T load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

template <typename T>
void append(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

}  // namespace

std::uint64_t record_length(std::string_view header) { return load<std::uint64_t>(header); }

bool header_intact(std::string_view header) {
  return header.size() >= kRecordHeaderBytes &&
         load<std::uint32_t>(header.substr(8)) == masked_crc32c(header.substr(0, 8));
}

bool HeaderCheck::is_intact(std::string_view header) {
  if (is_known_ && std::memcmp(known_, header.data(), kRecordHeaderBytes) == 0) return true;
  if (!header_intact(header)) return false;
  std::memcpy(known_, header.data(), kRecordHeaderBytes);
  is_known_ = true;
  return true;
}

bool data_intact(std::string_view data, std::string_view footer) {
  return load<std::uint32_t>(footer) == masked_crc32c(data);
}

void append_record(std::string& out, std::string_view data) {
  const std::size_t start = out.size();
  append(out, static_cast<std::uint64_t>(data.size()));
  append(out, masked_crc32c(std::string_view(out).substr(start, 8)));
  out.append(data);
  append(out, masked_crc32c(data));
}

}  // namespace lockstep::inline v0::data
