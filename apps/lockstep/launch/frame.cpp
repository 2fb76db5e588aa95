#include "apps/lockstep/launch/frame.h"

#include <cstddef>

namespace lockstep::apps::launch {
namespace {

constexpr std::size_t kHeader = 5;
constexpr std::size_t kLongestText = 16 << 20;  // a stranger may send anything
constexpr std::string_view kKinds = "AWRPQCXOETZSL";

}  // namespace

std::string encode(const Frame& frame) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((frame.text.size() >> shift) & 0xFFU));
  bytes.push_back(static_cast<char>(frame.kind));
  return bytes + frame.text;
}

std::optional<Frame> FrameReader::next() {
  if (broken_ || bytes_.size() < kHeader) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  const char kind = bytes_[4];
  if (length > kLongestText || kKinds.find(kind) == std::string_view::npos) {
    broken_ = true;
    return std::nullopt;
  }
  if (bytes_.size() < kHeader + length) return std::nullopt;
  Frame frame{.kind = static_cast<FrameKind>(kind), .text = bytes_.substr(kHeader, length)};
  bytes_.erase(0, kHeader + length);
  return frame;
}

}  // namespace lockstep::apps::launch
