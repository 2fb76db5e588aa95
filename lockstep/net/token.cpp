#include "lockstep/net/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::net {
namespace {

constexpr const char* kAdvice = "create one with `openssl rand -hex 16`";
constexpr std::size_t kMaxBytes = 4096;  // limit of a file; a larger one is not a secret
constexpr mode_t kAccessOfOthers = 077;

[[noreturn]] void refuse_file(const char* file, const std::string& found) {
  throw Error(
      ErrorCategory::input, kSecretFileVariable,
      "expected a regular file that this user owns and no other user can access (chmod 600)",
      fmt::format("{} {}", file, found));
}

class Closer {
 public:
  explicit Closer(int descriptor) : descriptor_(descriptor) {}
  ~Closer() { close(descriptor_); }
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

 private:
  int descriptor_;
};

std::string read_private_file(const char* file) {
  // O_NONBLOCK: a FIFO must not block. The checks apply to the opened file, after following
  // symbolic links.
  const int descriptor = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0)
    refuse_file(file, "cannot be read: " + std::generic_category().message(errno));
  const Closer closer(descriptor);
  struct stat status {};
  if (fstat(descriptor, &status) != 0) refuse_file(file, std::generic_category().message(errno));
  if (!S_ISREG(status.st_mode)) refuse_file(file, "is not a regular file");
  if (status.st_uid != geteuid())
    refuse_file(file, fmt::format("belongs to user {}", status.st_uid));
  if ((status.st_mode & kAccessOfOthers) != 0)
    refuse_file(file,
                fmt::format("has mode {:03o}", static_cast<unsigned>(status.st_mode) & 0777U));
  std::string text(kMaxBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse_file(file, "cannot be read: " + std::generic_category().message(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxBytes) refuse_file(file, fmt::format("has more than {} bytes", kMaxBytes));
  text.resize(size);
  return text;
}

void drop_spaces_at_end(std::string& text) {
  while (!text.empty() &&
         (text.back() == '\n' || text.back() == '\r' || text.back() == ' ' || text.back() == '\t'))
    text.pop_back();
}

}  // namespace

JobSecret JobSecret::draw() {
  std::array<std::uint8_t, 32> bytes{};
  LOCKSTEP_CHECK_OP(getrandom(bytes.data(), bytes.size(), 0), ==,
                    static_cast<ssize_t>(bytes.size()));
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return {std::move(text), "secret"};
}

JobSecret JobSecret::none() {
  JobSecret open;
  open.text_ = "lockstep: no secret, one host, one user";
  open.is_secret_ = false;
  return open;
}

JobSecret::JobSecret(std::string text, std::string_view where) : text_(std::move(text)) {
  if (text_.size() >= kMinBytes) return;
  throw Error(ErrorCategory::input, where,
              fmt::format("expected a secret of at least {} bytes", kMinBytes),
              fmt::format("got {}; {}", text_.size(), kAdvice));
}

JobSecret::~JobSecret() { OPENSSL_cleanse(text_.data(), text_.size()); }

JobSecret::Mac JobSecret::mac(std::string_view message) const {
  Mac mac{};
  unsigned size = 0;
  const auto* result = HMAC(EVP_sha256(), text_.data(), static_cast<int>(text_.size()),
                            reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                            mac.data(), &size);
  LOCKSTEP_CHECK(result != nullptr);
  LOCKSTEP_CHECK_OP(size, ==, mac.size());
  return mac;
}

std::optional<JobSecret> find_job_secret(const char* file, const char* text) {
  if (file != nullptr) {
    std::string content = read_private_file(file);
    drop_spaces_at_end(content);
    return JobSecret(std::move(content), kSecretFileVariable);
  }
  if (text != nullptr) return JobSecret(text, kSecretVariable);
  return std::nullopt;
}

}  // namespace lockstep::inline v0::net
