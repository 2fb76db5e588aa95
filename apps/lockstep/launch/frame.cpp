#include "apps/lockstep/launch/frame.h"

#include <cstddef>

namespace lockstep::apps::launch {
namespace {

constexpr std::size_t kHeader = 5;
constexpr std::size_t kLongestText = 4 << 20;  // the addresses of ten thousand hosts
constexpr std::string_view kKinds = "AWRPQCXOETZSL";

}  // namespace

std::string encode(const Frame& frame) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((frame.text.size() >> shift) & 0xFFU));
  bytes.push_back(static_cast<char>(frame.kind));
  return bytes + frame.text;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (!broken_ && rest.size() >= kHeader) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length |= static_cast<std::size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
    const char kind = rest[4];
    broken_ = length > kLongestText || kKinds.find(kind) == std::string_view::npos;
    if (!broken_ && rest.size() >= kHeader + length) {
      Frame frame{.kind = static_cast<FrameKind>(kind), .text = std::string(rest.substr(kHeader, length))};
      begin_ += kHeader + length;
      return frame;
    }
  }
  // Moved to the front once for all the frames that came out, not once for each.
  bytes_.erase(0, begin_);
  begin_ = 0;
  return std::nullopt;
}

}  // namespace lockstep::apps::launch
