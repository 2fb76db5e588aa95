#include "lockstep/allreduce/watchdog/final_message.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>

namespace lockstep::inline v0::allreduce {

void print_error(std::string_view text, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!text.empty()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const int found = left <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return;
    // A pipe that is ready accepts up to PIPE_BUF bytes without blocking.
    const ssize_t written =
        write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

FileDescriptor claim_report(const std::string& job) {
  // A name that starts with a zero byte is in the abstract namespace: it has no file and is freed
  // with the process.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("lockstep-watchdog-{:016x}", std::hash<std::string>()(job));
  std::ranges::copy(name, address.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  FileDescriptor reporter(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (bind(reporter.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return reporter;
}

}  // namespace lockstep::inline v0::allreduce
