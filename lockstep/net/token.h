// The shared secret of a job: the key with which its processes authenticate each other
// (handshake.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::inline v0::net {

class JobSecret {
 public:
  static constexpr std::size_t kMinBytes = 16;
  using Mac = std::array<std::uint8_t, 32>;

  /// 256 random bits, as 64 hexadecimal digits.
  static JobSecret draw();

  /// For processes of one host and one user without a secret: a publicly known key. Instead, both
  /// ends of a connection check that the other belongs to the same user
  /// (lockstep/net/authentication.h).
  static JobSecret none();

  /// `text` is the key. Throws Error (input) `[where] …` for fewer than kMinBytes bytes.
  JobSecret(std::string text, std::string_view where);
  JobSecret(const JobSecret&) = default;
  JobSecret(JobSecret&&) noexcept = default;
  JobSecret& operator=(const JobSecret&) = default;
  JobSecret& operator=(JobSecret&&) noexcept = default;
  /// Overwrites the secret in memory.
  ~JobSecret();

  /// False for none().
  bool is_secret() const { return is_secret_; }
  /// For sending over MPI. Must not appear in messages or command lines.
  const std::string& text() const { return text_; }
  /// HMAC-SHA256 of `message`. Throws CheckFailure if libcrypto has no SHA-256.
  Mac mac(std::string_view message) const;

 private:
  JobSecret() = default;

  std::string text_;
  bool is_secret_ = true;
};

/// Environment variables for the secret of a job.
inline constexpr const char* kSecretVariable = "LOCKSTEP_JOB_SECRET";
inline constexpr const char* kSecretFileVariable = "LOCKSTEP_JOB_SECRET_FILE";

/// The secret from `file`, otherwise from `text`; null means not set. nullopt if neither is set.
/// The file must be a regular file that this user owns and that group and others cannot access;
/// trailing whitespace is dropped. Throws Error (input) if the file does not meet these conditions
/// or cannot be read, or if the secret is too short.
std::optional<JobSecret> find_job_secret(const char* file, const char* text);

}  // namespace lockstep::inline v0::net
