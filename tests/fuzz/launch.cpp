// Frames of a launch and the parsers of their texts: arrivals, calls of agents, facts for daemons,
// targets, endings.
#include "apps/lockstep/launch/daemon.h"
#include "apps/lockstep/launch/messages.h"
#include "lockstep/base/error.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

/// A frame that was read must be sent and read again unchanged.
template <typename Read>
void read_again(const std::string& text, Read read) {
  try {
    const auto value = read(text);
    LOCKSTEP_CHECK(read(to_text(value)) == value);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::communication) throw;
  }
}

void read_text(const std::string& text) {
  using namespace apps::launch;
  read_again(text, [](const std::string& one) { return parse_join_request(one); });
  read_again(text, [](const std::string& one) { return parse_call(one, kOrte); });
  read_again(text, [](const std::string& one) { return parse_daemon(one, kOrte); });
  read_again(text, [](const std::string& one) { return parse_daemon(one, kPrrte); });
  read_again(text, [](const std::string& one) { return parse_targets(one); });
  read_again(text, [](const std::string& one) { return parse_ending(one); });
}

}  // namespace

void read_untrusted(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  net::FrameReader reader(apps::launch::kFrameLimits);
  reader.add(text);
  while (const auto frame = reader.next()) read_text(frame->body);
  read_text(std::string(text));  // without a valid header
}

}  // namespace lockstep::inline v0::fuzz
