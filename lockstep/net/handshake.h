// How two processes of a job prove to each other that both know the job's secret, before anything else is said. Bytes
// in, bytes out: who sends and receives them is another matter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/net/token.h"

namespace lockstep::net {

/// Three messages of fixed sizes; the process that connected, the initiator, speaks first:
///
///     initiator -> responder   magic, nonce of the initiator
///     responder -> initiator   magic, nonce of the responder, HMAC(secret, "responder", purpose, both nonces)
///     initiator -> responder   HMAC(secret, "initiator", purpose, both nonces)
///
/// Nonces are 256 random bits, drawn for each connection, so that a recorded handshake proves nothing later. The role
/// is part of what is signed, so that a process's own answer, sent back to it, proves nothing either; and so is
/// `purpose`, so that an answer for one kind of connection is none for another. What follows the handshake is neither
/// encrypted nor signed.
class Handshake {
 public:
  enum class Role { initiator, responder };

  Handshake(JobSecret secret, Role role, std::string purpose);

  /// Bytes to send; empty where there are none. Each is returned once.
  std::string take_output();
  /// How many bytes of the other end are to come next; 0: it has succeeded or failed.
  std::size_t wanted() const { return wanted_ - received_.size(); }
  /// At most wanted() bytes.
  void receive(std::string_view bytes);

  /// The other end has proved that it knows the secret. Output may be left to be sent.
  bool succeeded() const { return state_ == State::succeeded; }
  bool failed() const { return state_ == State::failed; }
  /// Why it failed, for users.
  const std::string& reason() const { return reason_; }

 private:
  enum class State { running, succeeded, failed };

  void take_message();
  JobSecret::Mac mac_of(Role role) const;
  void expect(std::size_t bytes) { wanted_ = bytes; }
  void fail(std::string reason);

  JobSecret secret_;
  Role role_;
  std::string purpose_;
  std::string own_nonce_;
  std::string other_nonce_;
  std::string output_;
  std::string received_;
  std::size_t wanted_ = 0;
  State state_ = State::running;
  std::string reason_;
};

}  // namespace lockstep::net
