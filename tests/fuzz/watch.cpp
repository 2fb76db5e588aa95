// Messages of the watchdog, the parsers of their bodies, and the handshake before them.
#include "lockstep/allreduce/watchdog/message.h"

#include <fmt/format.h>
#include "lockstep/base/error.h"
#include "lockstep/net/handshake.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

void read_body(std::string_view body) {
  using namespace allreduce;
  read_hello(body);
  read_goodbye(body);
  if (const auto replicas = read_beat(body))
    LOCKSTEP_CHECK_OP(write_beat(*replicas).size(), ==, body.size());
  if (const auto invitation = read_invitation(body))
    LOCKSTEP_CHECK(write_invitation(*invitation) == body);
}

void shake_hands(std::string_view bytes, net::Handshake::Role role) {
  static const net::JobSecret secret("nobody knows this secret", "fuzz");
  net::Handshake handshake(secret, role, "watch");
  while (!bytes.empty() && handshake.wanted() > 0) {
    const std::string_view piece = bytes.substr(0, handshake.wanted());
    bytes.remove_prefix(piece.size());
    handshake.receive(piece);
  }
  LOCKSTEP_CHECK(!handshake.succeeded());
}

}  // namespace

void read_untrusted(Bytes bytes) {
  const std::string_view text = text_of(bytes);
  net::FrameReader reader(allreduce::kMessageLimits);
  reader.add(text);
  while (const auto message = reader.next()) read_body(message->body);
  read_body(text);
  shake_hands(text, net::Handshake::Role::initiator);
  shake_hands(text, net::Handshake::Role::responder);
}

}  // namespace lockstep::inline v0::fuzz
