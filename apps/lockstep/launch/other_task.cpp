#include "apps/lockstep/launch/other_task.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/rendezvous.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kAttempt(2000);    // to connect to one address
constexpr milliseconds kPause(200);       // between attempts
constexpr milliseconds kHandshake(2000);  // delays signals; is repeated
constexpr int kNoSuchCommand = 127;       // the exit status of shells
constexpr milliseconds kProbeLimit(5000);
constexpr seconds kDaemonEnds(2);    // for the daemon to end by itself after mpirun
constexpr seconds kDaemonLeaves(6);  // for the daemon to end after the signal

/// Waits for the descriptors, or `limit`.
void wait_for(std::vector<pollfd> interests, milliseconds limit) {
  poll(interests.data(), interests.size(), static_cast<int>(limit.count()));
}

pollfd to_read(int descriptor) { return {.fd = descriptor, .events = POLLIN, .revents = 0}; }

}  // namespace

OtherTask::OtherTask(const LaunchOptions& options, const job::Task& task)
    : options_(options),
      task_(task),
      join_request_(describe_this_task(task, options.job, options.host)) {
  allow_connections(task.ranks);
}

Ending OtherTask::run() {
  if (!arrive() && !ending_)
    throw Error(ErrorCategory::communication, "launch",
                fmt::format("expected to connect to rank 0 at {}:{} within {} s",
                            task_.rendezvous.host, task_.rendezvous.port, options_.timeout),
                failure_);
  try {
    if (!ending_) serve();
  } catch (...) {
    wait_for_daemon();  // which also ends its ranks
    throw;
  }
  wait_for_daemon();
  return *ending_;
}

bool OtherTask::arrive() {
  const auto deadline = Clock::now() + options_.patience();
  do {
    failure_.clear();
    for (const std::string& address : rendezvous_addresses(task_, options_.secret, failure_))
      if (connect_to_first_task(address, deadline) || ending_) return !ending_;
    leave_on_signals();
    if (!ending_) wait_for({to_read(signals_.descriptor())}, kPause);
  } while (!ending_ && Clock::now() < deadline);
  return false;
}

bool OtherTask::connect_to_first_task(const std::string& address, Clock::time_point deadline) {
  const net::NetworkRoute way = net::route_to(address);
  std::string why;
  FileDescriptor socket = net::connect_to(address, task_.rendezvous.port, kAttempt, why);
  const std::string from =
      way.interface.empty()
          ? fmt::format("host {} has no interface to {}", join_request_.host, address)
          : fmt::format("from host {} by {} ({}) to {}", join_request_.host, way.interface,
                        way.address, address);
  failure_ = fmt::format("{}: {}", from, why);
  if (!socket.is_open()) return false;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
  const milliseconds limit = std::clamp(left, kPause, kHandshake);
  if (!net::authenticate(socket, options_.secret, net::kLaunchPurpose, limit, why)) {
    failure_ = fmt::format("{}: the process there is not rank 0 of this job: {}", from, why);
    return false;
  }
  net::set_keepalive_timeout(socket, options_.stall_limit());
  link_ = net::Connection(std::move(socket), kFrameLimits);
  join_request_.interface = is_interface_name(way.interface) ? way.interface : "";
  listen_for_hosts(way.address);
  link_.send({FrameKind::arrive, to_text(join_request_)});
  if (is_welcome(deadline)) return true;
  failure_ = fmt::format("{}: the process there is not rank 0", from);
  return false;
}

/// MPI uses the network over which this task connected, unless the user selects another.
void OtherTask::listen_for_hosts(const std::string& own_address) {
  if (options_.mpirun.interface == "auto" && is_address(own_address)) {
    reachable_.emplace(own_address, std::uint16_t{0});
    join_request_.addresses = {own_address};
  } else {
    reachable_.emplace();
  }
  join_request_.port = reachable_->port();
}

bool OtherTask::is_welcome(Clock::time_point deadline) {
  while (link_.is_open() && Clock::now() < deadline && !ending_) {
    wait_for({link_.interest(), to_read(signals_.descriptor())},
             std::chrono::ceil<milliseconds>(deadline - Clock::now()));
    bool welcome = false;
    for (const net::Frame& frame : link_.receive()) {
      welcome = welcome || frame.is(FrameKind::welcome);
      handle(frame);  // other frames may have arrived with the welcome
    }
    if (welcome && !ending_) return true;
    leave_on_signals();
  }
  return false;
}

void OtherTask::leave_on_signals() {
  for (const int signal : signals_.drain())
    if (is_stop_signal(signal)) ending_ = Ending{.status = kSignalStatus + signal};
}

void OtherTask::serve() {
  while (!ending_) {
    std::vector<pollfd> interests = {link_.interest(), to_read(signals_.descriptor())};
    // Output that the first task has not read remains in the daemon.
    if (daemon_ && link_.is_flushed()) {
      interests.push_back(to_read(daemon_->output().get()));
      interests.push_back(to_read(daemon_->errors().get()));
    }
    wait_for(std::move(interests), seconds(1));
    for (const net::Frame& frame : link_.receive()) handle(frame);
    for (const int signal : signals_.drain())
      link_.send({FrameKind::signal, std::to_string(signal)});
    if (daemon_ && link_.is_flushed()) announce_daemon();
    if (daemon_ && !ranks_reported_ && !daemon_->ranks().empty()) {
      link_.send(FrameKind::started);
      ranks_reported_ = true;
    }
    if (!ending_ && !link_.is_open())
      throw Error(ErrorCategory::communication, "launch",
                  "expected rank 0 to stay connected until the end of the job",
                  fmt::format("{}, seen from rank {} on host {}", link_.reason(),
                              join_request_.rank, join_request_.host));
  }
}

void OtherTask::handle(const net::Frame& frame) {
  try {
    dispatch(frame);
  } catch (const Error& error) {
    link_.close(fmt::format("it sent an invalid message ({})", error.what()));
  }
}

void OtherTask::dispatch(const net::Frame& frame) {
  switch (frame.kind<FrameKind>()) {
    case FrameKind::probe:
      link_.send({FrameKind::probed,
                  dump_json(nlohmann::json(try_to_reach(parse_targets(frame.body), kProbeLimit)))});
      return;
    case FrameKind::run:
      return start_daemon(frame.body);
    case FrameKind::refuse:
    case FrameKind::leave:
      ending_ = parse_ending(frame.body);
      return;
    default:
      return;
  }
}

void OtherTask::start_daemon(const std::string& text) {
  reachable_.reset();
  if (daemon_) return;
  const DaemonFacts facts = parse_daemon(text, runtime_here());
  require_own_addresses(facts);
  try {
    daemon_ = std::make_unique<Child>(
        daemon_command(facts, options_.mpirun.more, geteuid() == 0, runtime_here()),
        ChildOptions{.processors = facts.processors, .captured = true});
  } catch (const Error& error) {
    link_.send({FrameKind::errors,
                fmt::format("lockstep: error: {} (host {})\n", error.what(), join_request_.host)});
    link_.send({FrameKind::ended, std::to_string(kNoSuchCommand)});
  }
}

/// Without a secret, all tasks and their mpirun must be on this host.
void OtherTask::require_own_addresses(const DaemonFacts& facts) const {
  if (options_.secret.is_secret()) return;
  const std::vector<std::string> own = net::host_addresses();
  for (const std::string& address : addresses_of_uri(facts.uri))
    if (!net::is_loopback(address) && std::ranges::find(own, address) == own.end())
      refuse("a contact address of this host, because the job has no secret", address);
}

void OtherTask::announce_daemon() {
  const bool has_output = forward(daemon_->output(), FrameKind::output);
  const bool has_errors = forward(daemon_->errors(), FrameKind::errors);
  if (has_output || has_errors || !daemon_->status()) return;
  link_.send({FrameKind::ended, std::to_string(*daemon_->status())});
  daemon_.reset();
}

/// Forwards available output. Returns whether there was any.
bool OtherTask::forward(FileDescriptor& from, FrameKind kind) {
  std::array<char, 65536> piece{};
  const ssize_t got = from.is_open() ? read(from.get(), piece.data(), piece.size()) : 0;
  if (got > 0) link_.send({kind, {piece.data(), static_cast<std::size_t>(got)}});
  if (got == 0) from = FileDescriptor();
  return got > 0;
}

/// Without mpirun the daemon ends by itself, with the same grace period for its ranks.
void OtherTask::wait_for_daemon() {
  const auto start = Clock::now();
  bool signaled = false;
  while (daemon_ && !daemon_->status() && Clock::now() < start + kDaemonLeaves) {
    wait_for({to_read(signals_.descriptor())}, kPause);
    signals_.drain();
    if (signaled || Clock::now() < start + kDaemonEnds) continue;
    daemon_->signal_group(kEndSignal);
    signaled = true;
  }
  daemon_.reset();
}

}  // namespace lockstep::inline v0::apps::launch
