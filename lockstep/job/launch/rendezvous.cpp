#include "lockstep/job/launch/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/job/launch/admission.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/connection.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::job {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

/// Whether the environment states that all tasks are on one host.
bool is_on_one_host(const Task& task) {
  if (task.local_ranks == task.ranks) return true;
  return task.hosts.size() == static_cast<std::size_t>(task.ranks) &&
         std::ranges::all_of(task.hosts,
                             [&](const std::string& host) { return host == task.hosts.front(); });
}

[[noreturn]] void refuse_without_secret(const Task& task,
                                        const std::vector<std::string>& addresses) {
  const char* line =
      task.source == "srun"
          ? "add this to the batch script, before srun: export LOCKSTEP_JOB_SECRET=$(openssl rand "
            "-hex 16)"
          : "create one for all tasks, for example in a home directory that all hosts share: "
            "(umask 077; openssl rand -hex 16 >~/.lockstep-job-secret); export "
            "LOCKSTEP_JOB_SECRET_FILE=~/.lockstep-job-secret";
  throw Error(
      ErrorCategory::input, "launch",
      fmt::format(
          "expected a secret of the job in LOCKSTEP_JOB_SECRET_FILE or LOCKSTEP_JOB_SECRET, "
          "because its rendezvous at {} ({}) is reachable for other processes",
          task.rendezvous.host, fmt::join(addresses, ", ")),
      fmt::format("got none; {}", line));
}

}  // namespace

std::vector<std::string> rendezvous_addresses(const Task& task, const net::JobSecret& secret,
                                              std::string& why) {
  if (is_on_one_host(task)) return {kLoopback};
  std::vector<std::string> addresses = net::addresses_of(task.rendezvous.host, why);
  if (secret.is_secret() || addresses.empty()) return addresses;
  std::vector<std::string> loopback;
  std::ranges::copy_if(addresses, std::back_inserter(loopback), net::is_loopback);
  if (loopback.empty()) refuse_without_secret(task, addresses);
  return loopback;
}

std::vector<net::Listener> listen_for_tasks(const Task& task, const net::JobSecret& secret,
                                            std::vector<std::string>& addresses) {
  std::vector<net::Listener> listeners;
  if (task.ranks == 1) return listeners;
  if (task.listener >= 0) {
    listeners.emplace_back(FileDescriptor(task.listener));
    return listeners;
  }
  std::string why;
  const std::vector<std::string> rendezvous = rendezvous_addresses(task, secret, why);
  if (rendezvous.empty() && !secret.is_secret()) refuse_without_secret(task, {why});
  const std::vector<std::string> own = net::host_addresses();
  const bool at_loopback = std::ranges::all_of(rendezvous, net::is_loopback);
  // Many hosts resolve their own name to 127.0.1.1, while other hosts resolve it to the real
  // address.
  const bool means_loopback = is_on_one_host(task) || !secret.is_secret() ||
                              task.rendezvous.host == "localhost" ||
                              net::is_loopback(task.rendezvous.host);
  std::vector<std::string> here;
  for (const std::string& address : rendezvous) {
    const bool is_own = net::is_loopback(address) ? means_loopback && at_loopback
                                                  : std::ranges::find(own, address) != own.end();
    if (is_own && std::ranges::find(here, address) == here.end()) here.push_back(address);
  }
  if (here.empty()) {
    listeners.emplace_back(task.rendezvous.port);
    return listeners;
  }
  for (const std::string& address : here) {
    try {
      listeners.emplace_back(address, task.rendezvous.port);
    } catch (const Error&) {
      // localhost may resolve to ::1 even on hosts without IPv6. One address is enough.
      if (address == here.back() && listeners.empty()) throw;
    }
  }
  addresses = here;
  return listeners;
}

namespace {

using net::Connection;
using net::FileDescriptor;
using net::Frame;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kMemberPurpose = "member";  // connections between members
constexpr milliseconds kRetry(100);
constexpr milliseconds kOneAttempt(2000);
constexpr milliseconds kRefusalTime(1000);

enum class FrameKind : std::uint8_t { join = 'J', table = 'T', refuse = 'R', incomplete = 'I' };
constexpr net::FrameLimits kJoinFrames{
    .kinds = "JTRI", .body = std::size_t{4} << 20, .queued = std::size_t{8} << 20};

/// The time until which a process may join; never, for a limit of 0.
class Deadline {
 public:
  explicit Deadline(std::chrono::duration<double> limit)
      : limit_(limit), end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(limit)) {}

  bool is_over(milliseconds since = milliseconds(0)) const {
    return limit_.count() > 0 && Clock::now() >= end_ + since;
  }
  milliseconds left(milliseconds most) const {
    if (limit_.count() <= 0) return most;
    const auto left = std::chrono::ceil<milliseconds>(end_ - Clock::now());
    return std::clamp(left, milliseconds(0), most);
  }
  std::string text() const { return fmt::format("within {:g} s", limit_.count()); }

 private:
  std::chrono::duration<double> limit_;
  Clock::time_point end_;
};

double clock_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

[[noreturn]] void fail(const std::string& expected, const std::string& actual,
                       ErrorCategory category = ErrorCategory::communication) {
  throw Error(category, "start", expected, actual);
}

/// Waits for an event at one of these, for at most `most`.
void wait_for(std::vector<pollfd> interests, milliseconds most) {
  poll(interests.data(), interests.size(), static_cast<int>(most.count()));
}

/// Accepts connections, and waits for them.
class Door {
 public:
  Door(std::vector<net::Listener> listeners, const net::JobSecret& secret, const char* purpose)
      : pending_(std::move(listeners), secret, purpose) {}

  void add_interests(std::vector<pollfd>& interests) const {
    pending_.add_interests(interests, clock_seconds());
  }
  milliseconds patience(milliseconds most) const {
    const double left = pending_.next_deadline(clock_seconds()) - clock_seconds();
    return std::min(most,
                    milliseconds(static_cast<long>(std::ceil(std::clamp(left, 0.0, 1.0) * 1000))));
  }
  std::vector<FileDescriptor> accept() { return pending_.advance(clock_seconds()); }
  std::uint16_t port() const { return pending_.listeners().front().port(); }
  /// "; 3 connections did not know the secret of the job", or nothing.
  std::string refusals() const {
    return pending_.refused() == 0
               ? ""
               : fmt::format("; {} connections did not know the secret of the job",
                             pending_.refused());
  }

 private:
  net::PendingConnections pending_;
};

/// A process at rank 0's rendezvous.
struct Guest {
  Connection link;
  int rank = -1;  // as soon as it has joined
};

/// Reads from a process, and admits or refuses it. Returns whether to keep its connection.
bool serve(Guest& guest, Admission& admission) {
  for (const Frame& frame : guest.link.receive()) {
    std::string refusal;
    try {
      const JoinRequest request = parse_join_request(frame.body);
      refusal = admission.admit(request);
      if (refusal.empty()) guest.rank = request.rank;
    } catch (const Error& error) {
      refusal = error.what();
    }
    if (refusal.empty()) continue;
    net::send_last_frame({&guest.link}, Frame(FrameKind::refuse, refusal), kRefusalTime);
    break;
  }
  if (guest.link.is_open()) return true;
  if (guest.rank >= 0) admission.leave(guest.rank);  // it may come again
  return false;
}

[[noreturn]] void refuse_incomplete(const JoinRequest& mine, const Deadline& deadline,
                                    const std::string& found) {
  fail(fmt::format("expected all {} ranks to join {}", mine.size, deadline.text()), found);
}

/// Rank 0's part: admits all, and tells each where the others listen.
JobTable admit_all(const Task& task, const net::JobSecret& secret, const JoinRequest& mine,
                   const Deadline& deadline) {
  std::vector<std::string> unused;
  Door door(listen_for_tasks(task, secret, unused), secret, net::kLaunchPurpose);
  Admission admission(mine);
  std::list<Guest> guests;
  const auto tell_all = [&](const Frame& frame) {
    std::vector<net::FrameChannel*> all;
    for (Guest& guest : guests)
      if (guest.rank >= 0) all.push_back(&guest.link);
    net::send_last_frame(all, frame, milliseconds(10'000));
  };
  while (!admission.is_complete()) {
    if (deadline.is_over()) {
      const std::string found =
          fmt::format("no answer of {}{}", admission.missing(), door.refusals());
      tell_all(Frame(FrameKind::incomplete, found));
      refuse_incomplete(mine, deadline, found);
    }
    std::vector<pollfd> interests;
    door.add_interests(interests);
    for (const Guest& guest : guests) interests.push_back(guest.link.interest());
    wait_for(std::move(interests), door.patience(deadline.left(milliseconds(1000))));
    for (FileDescriptor& socket : door.accept())
      guests.push_back({.link = Connection(std::move(socket), kJoinFrames)});
    std::erase_if(guests, [&](Guest& guest) { return !serve(guest, admission); });
  }
  JobTable table = admission.table();
  tell_all(Frame(FrameKind::table, to_text(table)));
  return table;
}

/// A connection to rank 0's rendezvous.
FileDescriptor reach_rendezvous(const Task& task, const net::JobSecret& secret,
                                const Deadline& deadline) {
  std::string why = "it was not tried";
  while (!deadline.is_over()) {
    for (const std::string& address : rendezvous_addresses(task, secret, why)) {
      FileDescriptor socket =
          net::connect_to(address, task.rendezvous.port, deadline.left(kOneAttempt), why);
      if (!socket.is_open()) continue;
      if (net::authenticate(socket, secret, net::kLaunchPurpose, deadline.left(kOneAttempt), why))
        return socket;
    }
    std::this_thread::sleep_for(deadline.left(kRetry));
  }
  fail(fmt::format("expected rank 0 at {}:{} {}", task.rendezvous.host, task.rendezvous.port,
                   deadline.text()),
       fmt::format("it was not reached: {}", why));
}

std::string local_address(const FileDescriptor& socket) {
  net::SocketAddress own;
  own.size = sizeof(own.storage);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0)
    return {};
  return net::numeric_address(own.get());
}

/// The other ranks' part: joins, and learns where the others listen.
JobTable join(const Task& task, const net::JobSecret& secret, JoinRequest mine,
              const Deadline& deadline) {
  FileDescriptor socket = reach_rendezvous(task, secret, deadline);
  // The interface that reaches rank 0 is the first choice of the others too.
  const std::string own = local_address(socket);
  const auto known = std::ranges::find(mine.addresses, own);
  if (known != mine.addresses.end()) std::rotate(mine.addresses.begin(), known, known + 1);
  Connection link(std::move(socket), kJoinFrames);
  link.send(Frame(FrameKind::join, to_text(mine)));
  // Rank 0 decides who is missing: a process that left before would be missing too.
  while (!deadline.is_over(kOneAttempt)) {
    for (const Frame& frame : link.receive()) {
      if (frame.is(FrameKind::incomplete)) refuse_incomplete(mine, deadline, frame.body);
      if (frame.is(FrameKind::table)) return parse_job_table(frame.body);
      if (frame.is(FrameKind::refuse))
        fail("expected rank 0 to admit this process", frame.body, ErrorCategory::input);
    }
    if (!link.is_open()) fail("expected rank 0 to stay until all ranks have joined", link.reason());
    wait_for({link.interest()}, kRetry);
  }
  refuse_incomplete(mine, deadline, "rank 0 waits for others");
}

/// A connection to a member that listens.
FileDescriptor reach(const JobTable& table, int rank, int self, const net::JobSecret& secret,
                     const Deadline& deadline) {
  const JoinRequest& other = table.members[static_cast<std::size_t>(rank)];
  const bool is_here = other.node == table.members[static_cast<std::size_t>(self)].node;
  std::vector<std::string> addresses = other.addresses;
  if (is_here) addresses = {kLoopback};
  std::string why = "it has no address";
  for (const std::string& address : addresses) {
    FileDescriptor socket = net::connect_to(address, other.port, deadline.left(kOneAttempt), why);
    if (!socket.is_open()) continue;
    if (!net::authenticate(socket, secret, kMemberPurpose, deadline.left(milliseconds(10'000)),
                           why))
      continue;
    const auto mine = static_cast<std::uint32_t>(self);
    // Fits into the empty buffer of a new connection.
    if (::send(socket.get(), &mine, sizeof(mine), MSG_NOSIGNAL) == sizeof(mine)) return socket;
  }
  fail(fmt::format("expected rank {} on {} to be reached from rank {}", rank, other.host, self),
       fmt::format("at {}: {}", fmt::join(addresses, ", "), why));
}

/// The connections that the ranks above this one make.
void accept_members(Door& door, int self, const Deadline& deadline,
                    std::vector<FileDescriptor>& sockets) {
  std::vector<FileDescriptor> unnamed;
  const auto is_missing = [&](const FileDescriptor& socket) { return !socket.is_open(); };
  const auto above = [&] {
    return std::ranges::subrange(sockets.begin() + self + 1, sockets.end());
  };
  while (std::ranges::any_of(above(), is_missing)) {
    if (deadline.is_over())
      fail(fmt::format("expected connections of the ranks above {} {}", self, deadline.text()),
           fmt::format("none of rank {}{}",
                       std::ranges::find_if(above(), is_missing) - sockets.begin(),
                       door.refusals()));
    std::vector<pollfd> interests;
    door.add_interests(interests);
    for (const FileDescriptor& socket : unnamed)
      interests.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
    wait_for(std::move(interests), door.patience(deadline.left(milliseconds(1000))));
    for (FileDescriptor& socket : door.accept()) unnamed.push_back(std::move(socket));
    std::erase_if(unnamed, [&](FileDescriptor& socket) {
      std::uint32_t rank = 0;
      const ssize_t bytes = recv(socket.get(), &rank, sizeof(rank), MSG_DONTWAIT);
      if (bytes < 0 && net::would_block()) return false;
      const bool is_expected = bytes == sizeof(rank) && rank > static_cast<std::uint32_t>(self) &&
                               rank < sockets.size() && !sockets[rank].is_open();
      if (is_expected) sockets[rank] = std::move(socket);
      return true;
    });
  }
}

std::vector<int> nodes_of(const JobTable& table) {
  std::vector<int> nodes;
  for (const JoinRequest& member : table.members) {
    const auto first = std::ranges::find(table.members, member.node, &JoinRequest::node);
    nodes.push_back(static_cast<int>(first - table.members.begin()));
  }
  return nodes;
}

}  // namespace

JobConnections connect_job(const Task& task, const net::JobSecret& secret,
                           std::chrono::duration<double> limit) {
  if (task.rendezvous.host.empty() || task.rendezvous.port == 0)
    fail(fmt::format(
             "expected the host and port of rank 0 in {}",
             task.source.starts_with("TF_CONFIG") ? task.source : "MASTER_ADDR and MASTER_PORT"),
         fmt::format("got \"{}\" and {} from {}", task.rendezvous.host, task.rendezvous.port,
                     task.source),
         ErrorCategory::input);
  const Deadline deadline(limit);
  std::vector<net::Listener> listeners;
  if (secret.is_secret())
    listeners.emplace_back();
  else
    listeners.emplace_back(kLoopback, std::uint16_t{0});
  Door door(std::move(listeners), secret, kMemberPurpose);
  JoinRequest mine = describe_this_process(task.job, task.rank, task.ranks);
  mine.addresses = net::addresses_for_other_hosts();
  mine.port = door.port();
  const JobTable table =
      task.rank == 0 ? admit_all(task, secret, mine, deadline) : join(task, secret, mine, deadline);
  if (std::ssize(table.members) != task.ranks)
    fail(fmt::format("expected a table of {} ranks", task.ranks),
         fmt::format("got {}", table.members.size()));
  JobConnections job{.job = table.job, .nodes = nodes_of(table), .sockets = {}};
  job.sockets.resize(table.members.size());
  // Only the ranks below have to be in this function for that, so nobody waits in a circle.
  for (int rank = 0; rank < task.rank; ++rank)
    job.sockets[static_cast<std::size_t>(rank)] = reach(table, rank, task.rank, secret, deadline);
  accept_members(door, task.rank, deadline, job.sockets);
  return job;
}

}  // namespace lockstep::inline v0::job
