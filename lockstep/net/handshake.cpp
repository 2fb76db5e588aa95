#include "lockstep/net/handshake.h"

#include <fmt/format.h>

#include <openssl/crypto.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::net {
namespace {

constexpr std::string_view kMagic = "lockstp1";
constexpr std::size_t kNonce = 32;
constexpr std::size_t kMac = sizeof(JobSecret::Mac);

std::string random_nonce() {
  std::string nonce(kNonce, '\0');
  LOCKSTEP_CHECK_OP(getrandom(nonce.data(), nonce.size(), 0), ==,
                    static_cast<ssize_t>(nonce.size()));
  return nonce;
}

std::string text_of(const JobSecret::Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

}  // namespace

Handshake::Handshake(JobSecret secret, Role role, std::string purpose)
    : secret_(std::move(secret)),
      role_(role),
      purpose_(std::move(purpose)),
      own_nonce_(random_nonce()) {
  if (role_ == Role::initiator) {
    output_ = std::string(kMagic) + own_nonce_;
    expect(kMagic.size() + kNonce + kMac);
  } else {
    expect(kMagic.size() + kNonce);
  }
}

std::string Handshake::drain_output() { return std::exchange(output_, {}); }

void Handshake::receive(std::string_view bytes) {
  LOCKSTEP_CHECK_OP(bytes.size(), <=, wanted());
  received_ += bytes;
  // Reject a foreign protocol by its first bytes, without waiting for a complete message.
  const std::size_t magic = std::min(received_.size(), kMagic.size());
  if (other_nonce_.empty() && received_.compare(0, magic, kMagic, 0, magic) != 0)
    return fail("it does not speak Lockstep's protocol");
  if (state_ == State::running && wanted() == 0) process_message();
}

void Handshake::process_message() {
  const std::string message = std::exchange(received_, {});
  std::string mac = message;
  if (other_nonce_.empty()) {
    other_nonce_ = message.substr(kMagic.size(), kNonce);
    mac = message.substr(kMagic.size() + kNonce);
    if (role_ == Role::responder) {
      output_ = std::string(kMagic) + own_nonce_ + text_of(mac_of(Role::responder));
      return expect(kMac);
    }
  }
  const std::string right =
      text_of(mac_of(role_ == Role::initiator ? Role::responder : Role::initiator));
  if (mac.size() != right.size() || CRYPTO_memcmp(mac.data(), right.data(), right.size()) != 0)
    return fail("it does not know the secret of this job");
  if (role_ == Role::initiator) output_ = text_of(mac_of(Role::initiator));
  state_ = State::succeeded;
  expect(0);
}

/// Every part has a fixed size or a terminating zero byte, so that different inputs never produce
/// the same text.
JobSecret::Mac Handshake::mac_of(Role role) const {
  const bool initiators = role_ == Role::initiator;
  const std::string& first = initiators ? own_nonce_ : other_nonce_;
  const std::string& second = initiators ? other_nonce_ : own_nonce_;
  std::string text = role == Role::initiator ? "lockstep 1 initiator" : "lockstep 1 responder";
  text += '\0';
  text += purpose_;
  text += '\0';
  return secret_.mac(text + first + second);
}

void Handshake::fail(std::string reason) {
  state_ = State::failed;
  reason_ = std::move(reason);
  received_.clear();
  output_.clear();
  expect(0);
}

}  // namespace lockstep::inline v0::net
