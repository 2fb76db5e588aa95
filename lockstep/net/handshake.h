// The handshake by which two processes of a job prove to each other that they know the job's
// secret. Transforms bytes only; the caller sends and receives them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/net/token.h"

namespace lockstep::inline v0::net {

/// Three messages of fixed size. The process that connected, the initiator, sends first:
///
///     initiator -> responder   magic, nonce of the initiator
///     responder -> initiator   magic, nonce of the responder,
///                              HMAC(secret, "responder", purpose, both nonces)
///     initiator -> responder   HMAC(secret, "initiator", purpose, both nonces)
///
/// Nonces are 256 random bits, drawn for each connection, which prevents replay of a recorded
/// handshake. The MAC covers the role, which prevents reflection of a process's own answer, and
/// `purpose`, so that an answer for one kind of connection is not valid for another. Data after the
/// handshake is neither encrypted nor signed.
class Handshake {
 public:
  enum class Role { initiator, responder };

  Handshake(JobSecret secret, Role role, std::string purpose);

  /// Bytes to send; may be empty. Each byte is returned once.
  std::string drain_output();
  /// Number of bytes still expected from the other end; 0 if the handshake has succeeded or failed.
  std::size_t wanted() const { return wanted_ - received_.size(); }
  /// Processes received bytes, at most wanted().
  void receive(std::string_view bytes);

  /// Whether the other end has proved that it knows the secret. Output may still have to be sent.
  bool succeeded() const { return state_ == State::succeeded; }
  bool failed() const { return state_ == State::failed; }
  /// Human-readable reason of the failure.
  const std::string& reason() const { return reason_; }

 private:
  enum class State { running, succeeded, failed };

  void process_message();
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

}  // namespace lockstep::inline v0::net
