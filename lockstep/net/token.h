// What the processes of one job know and nobody else does: the key with which they prove to each other that they belong
// together (handshake.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::net {

class JobSecret {
 public:
  static constexpr std::size_t kMinBytes = 16;
  using Mac = std::array<std::uint8_t, 32>;

  /// 256 random bits, as 64 hexadecimal digits.
  static JobSecret draw();

  /// For processes of one host and one user where nobody gave them a secret: a key that everybody knows. Ends of a
  /// connection check each other's user in its place (lockstep/net/authentication.h).
  static JobSecret none();

  /// `text` is the key. Throws Error (input) `[where] …` for fewer than kMinBytes bytes.
  JobSecret(std::string text, std::string_view where);
  JobSecret(const JobSecret&) = default;
  JobSecret(JobSecret&&) noexcept = default;
  JobSecret& operator=(const JobSecret&) = default;
  JobSecret& operator=(JobSecret&&) noexcept = default;
  /// Overwrites its memory.
  ~JobSecret();

  /// False for none().
  bool is_secret() const { return is_secret_; }
  /// For MPI to carry. Neither for messages nor for command lines.
  const std::string& text() const { return text_; }
  /// HMAC-SHA256 of `message`. Throws CheckFailure where libcrypto has no SHA-256.
  Mac mac(std::string_view message) const;

 private:
  JobSecret() = default;

  std::string text_;
  bool is_secret_ = true;
};

/// Variables that give the secret of a job.
inline constexpr const char* kSecretVariable = "LOCKSTEP_JOB_SECRET";
inline constexpr const char* kSecretFileVariable = "LOCKSTEP_JOB_SECRET_FILE";

/// The secret in the file of this name, else `text`; either may be null: not set. nullopt where neither is set. The
/// file must be a regular one that belongs to this user and that group and others have no access to; spaces and the end
/// of the line after the secret are dropped. Throws Error (input) for another file, one that cannot be read, and a
/// secret that is too short.
std::optional<JobSecret> find_job_secret(const char* file, const char* text);

}  // namespace lockstep::net
