#include "apps/lockstep/launch/meeting_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "apps/lockstep/launch/reach.h"
#include "lockstep/base/error.h"

namespace lockstep::apps::launch {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

/// Whether the environment says that no task is elsewhere.
bool is_of_one_host(const job::Task& task) {
  if (task.local_ranks == task.ranks) return true;
  return task.hosts.size() == static_cast<std::size_t>(task.ranks) &&
         std::ranges::all_of(task.hosts, [&](const std::string& host) { return host == task.hosts.front(); });
}

[[noreturn]] void refuse_without_secret(const job::Task& task, const std::vector<std::string>& addresses) {
  const char* line = task.source == "srun"
                         ? "put this into the batch script, before srun: export LOCKSTEP_JOB_SECRET=$(openssl rand "
                           "-hex 16)"
                         : "make one, the same for every task, for example in a home directory that all hosts share: "
                           "(umask 077; openssl rand -hex 16 >~/.lockstep-job-secret); export "
                           "LOCKSTEP_JOB_SECRET_FILE=~/.lockstep-job-secret";
  throw Error(
      ErrorCategory::input, "launch",
      fmt::format("expected a secret of the job in LOCKSTEP_JOB_SECRET_FILE or LOCKSTEP_JOB_SECRET, because its "
                  "tasks meet at {} ({}), where others can connect too",
                  task.meeting.host, fmt::join(addresses, ", ")),
      fmt::format("got none; {}", line));
}

}  // namespace

std::vector<std::string> addresses_to_meet(const job::Task& task, const net::JobSecret& secret, std::string& why) {
  if (is_of_one_host(task)) return {kLoopback};
  std::vector<std::string> addresses = addresses_of(task.meeting.host, why);
  if (secret.is_secret() || addresses.empty()) return addresses;
  std::vector<std::string> loopback;
  std::ranges::copy_if(addresses, std::back_inserter(loopback), net::is_loopback);
  if (loopback.empty()) refuse_without_secret(task, addresses);
  return loopback;
}

std::vector<net::Listener> listen_for_tasks(const job::Task& task, const net::JobSecret& secret,
                                            std::vector<std::string>& addresses) {
  std::vector<net::Listener> listeners;
  if (task.ranks == 1) return listeners;
  std::string why;
  const std::vector<std::string> meeting = addresses_to_meet(task, secret, why);
  if (meeting.empty() && !secret.is_secret()) refuse_without_secret(task, {why});
  const std::vector<std::string> own = net::host_addresses();
  const bool at_loopback = std::ranges::all_of(meeting, net::is_loopback);
  // Many a host calls itself 127.0.1.1, by a name that means its real address on the others.
  const bool means_loopback = is_of_one_host(task) || !secret.is_secret() || task.meeting.host == "localhost" ||
                              net::is_loopback(task.meeting.host);
  std::vector<std::string> here;
  for (const std::string& address : meeting) {
    const bool is_own =
        net::is_loopback(address) ? means_loopback && at_loopback : std::ranges::find(own, address) != own.end();
    if (is_own && std::ranges::find(here, address) == here.end()) here.push_back(address);
  }
  if (here.empty()) {
    listeners.emplace_back(task.meeting.port);
    return listeners;
  }
  for (const std::string& address : here) {
    try {
      listeners.emplace_back(address, task.meeting.port);
    } catch (const Error&) {
      // localhost is ::1 too, also on hosts without IPv6: one address is enough.
      if (address == here.back() && listeners.empty()) throw;
    }
  }
  addresses = here;
  return listeners;
}

}  // namespace lockstep::apps::launch
