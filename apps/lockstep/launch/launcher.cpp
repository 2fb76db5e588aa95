#include "apps/lockstep/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>

#include "apps/lockstep/launch/child.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// After a failure the other ranks end by themselves; these are limits for one that does not.
constexpr seconds kEndTime(15);
constexpr seconds kKillTime(5);
constexpr seconds kSameEnd(1);  // between a cause and its consequences
const int kConsequence = exit_status(ErrorCategory::communication);
constexpr seconds kSameStop(2);  // schedulers signal one process after another
constexpr milliseconds kPoll(200);
constexpr int kSshFailed = 255;  // ssh's own errors

/// A process that the launcher waits for: one rank, or ssh for all ranks of a host.
struct Member {
  std::string name;  // "rank 1"
  bool is_host = false;
  Child child;
  bool has_ended = false;
};

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::vector<Member> start_ranks(const HostPart& part) {
  std::vector<Member> members;
  for (int local = 0; local < part.ranks.count; ++local) {
    const int rank = part.ranks.first + local;
    members.push_back(
        {.name = fmt::format("rank {} on {}", rank, host_name()),
         .child = Child(part.command, {.environment = environment_of(part, local),
                                       .input = rank == 0 ? ChildOptions::Input::own
                                                          : ChildOptions::Input::none})});
  }
  return members;
}

/// ssh asks for no password, and reads the secret from a pipe, not from its command line.
Member start_host(const HostPart& part) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  Member member{
      .name = fmt::format("host {}", part.ranks.host),
      .is_host = true,
      .child = Child({"ssh", "-o", "BatchMode=yes", part.ranks.host, "exec", quoted(program),
                      "launch", "--part"},
                     {.environment = std::move(environment), .input = ChildOptions::Input::pipe})};
  member.child.write(to_line(part) + "\n");
  return member;
}

/// Lines of standard input; false at its end.
class InputLines {
 public:
  bool read(std::vector<std::string>& lines) {
    std::array<char, 4096> part{};
    const ssize_t bytes = ::read(STDIN_FILENO, part.data(), part.size());
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (bytes <= 0) return false;
    text_.append(part.data(), static_cast<std::size_t>(bytes));
    for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      lines.push_back(text_.substr(0, end));
      text_.erase(0, end + 1);
    }
    return true;
  }

 private:
  std::string text_;
};

/// Waits for all members, forwards signals, and ends those that remain after a failure.
class Supervisor {
 public:
  explicit Supervisor(std::vector<Member> members) : members_(std::move(members)) {}

  /// `input`: commands from the launcher on another host; null: none.
  int run(const SignalQueue& signals, InputLines* input) {
    while (!all_have_ended()) {
      std::array<pollfd, 2> interests{{{.fd = signals.descriptor(), .events = POLLIN, .revents = 0},
                                       {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}}};
      poll(interests.data(), input == nullptr ? 1 : 2, static_cast<int>(kPoll.count()));
      for (const int signal : signals.drain()) take(signal);
      if (input != nullptr && interests[1].revents != 0 && !take_input(*input)) input = nullptr;
      collect();
      end_the_rest();
    }
    return status_.value_or(0);
  }

 private:
  bool all_have_ended() const { return std::ranges::all_of(members_, &Member::has_ended); }

  void signal_all(int signal) {
    for (const Member& member : members_) {
      if (member.has_ended) continue;
      // ssh forwards no signals; its other end reads them.
      if (member.is_host && signal != SIGKILL)
        member.child.write(fmt::format("signal {}\n", signal));
      else
        member.child.signal_group(signal);
    }
  }

  void take(int signal) {
    const bool stops = signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
    if (!stops) return signal_all(signal);
    const auto now = Clock::now();
    if (!stopped_) {
      stopped_ = now;
      signal_all(signal == SIGHUP ? SIGTERM : signal);
    } else if (now - *stopped_ >= kSameStop) {
      signal_all(SIGKILL);
    }
  }

  bool take_input(InputLines& input) {
    std::vector<std::string> lines;
    const bool is_open = input.read(lines);
    for (const std::string& line : lines)
      if (const auto signal = parse_number<int>(std::string_view(line).substr(
              std::min<std::size_t>(line.size(), std::strlen("signal ")))))
        signal_all(*signal);
    if (!is_open && !failed_) {  // the launcher is gone
      failed_ = Clock::now() - kEndTime;
      status_ = kConsequence;
    }
    return is_open;
  }

  void collect() {
    for (Member& member : members_) {
      if (member.has_ended) continue;
      const std::optional<int> status = member.child.status();
      if (!status) continue;
      member.has_ended = true;
      if (*status == 0) continue;
      if (!failed_) failed_ = Clock::now();
      // The loss of a rank may be noticed before its process has ended.
      const bool is_cause = !terminated_ && Clock::now() - *failed_ <= kSameEnd;
      if (status_ && (*status_ != kConsequence || !is_cause)) continue;
      report(member, *status);
      status_ = status;
    }
  }

  /// A rank that failed has said why, unless a signal ended it.
  void report(const Member& member, int status) const {
    std::string found;
    if (member.is_host && status == kSshFailed)
      found = fmt::format("ssh ended with status {}: its message is above", status);
    else if (!member.is_host && status > kSignalStatus && !stopped_)
      found = fmt::format("signal {} ({}) ended it", status - kSignalStatus,
                          strsignal(status - kSignalStatus));
    if (!found.empty())
      fmt::print(stderr, "lockstep: error: [launch] expected {} to run until its end, got: {}\n",
                 member.name, printable(found));
  }

  void end_the_rest() {
    if (!failed_) return;
    const auto since = Clock::now() - *failed_;
    if (since >= kEndTime && !terminated_) {
      terminated_ = true;
      signal_all(SIGTERM);
    }
    // A rank that is stopped does not end by itself.
    const bool all_are_stopped = std::ranges::all_of(members_, [](const Member& member) {
      return member.has_ended || (!member.is_host && member.child.is_stopped());
    });
    if (since < kEndTime + kKillTime && !all_are_stopped) return;
    terminated_ = true;
    signal_all(SIGKILL);
  }

  std::vector<Member> members_;
  std::optional<int> status_;  // that of the first rank that failed, or of what caused it
  std::optional<Clock::time_point> failed_;
  std::optional<Clock::time_point> stopped_;
  bool terminated_ = false;
};

}  // namespace

bool is_this_host(const std::string& host) {
  if (host.empty() || host == host_name() || host == "localhost") return true;
  std::string why;
  const std::vector<std::string> own = net::host_addresses();
  return std::ranges::any_of(net::addresses_of(host, why), [&](const std::string& address) {
    return std::ranges::find(own, address) != own.end();
  });
}

int run_job(const std::vector<HostPart>& parts) {
  const SignalQueue signals;
  std::vector<Member> members;
  for (const HostPart& part : parts) {
    if (is_this_host(part.ranks.host))
      for (Member& member : start_ranks(part)) members.push_back(std::move(member));
    else
      members.push_back(start_host(part));
  }
  return Supervisor(std::move(members)).run(signals, nullptr);
}

int run_part() {
  InputLines input;
  std::vector<std::string> lines;
  while (lines.empty())
    if (!input.read(lines))
      throw Error(ErrorCategory::communication, "launch", "expected the ranks of this host",
                  "standard input ended");
  const HostPart part = parse_part(lines.front());
  if (!part.directory.empty() && chdir(part.directory.c_str()) != 0)
    throw Error(ErrorCategory::input, "launch",
                fmt::format("expected the directory {} on {}", part.directory, host_name()),
                std::strerror(errno));
  const SignalQueue signals;
  std::vector<Member> members = start_ranks(part);
  fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
  return Supervisor(std::move(members)).run(signals, &input);
}

}  // namespace lockstep::inline v0::apps::launch
