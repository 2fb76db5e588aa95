// The start of a job whose processes connect themselves: all join at an address of rank 0, learn
// from it where the others listen, and connect to each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/job/launch/task.h"
#include "lockstep/net/socket.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::job {

/// The connections of one process of a job, all of them authenticated.
struct JobConnections {
  std::uint64_t job = 0;                     ///< a number that no other job has
  std::vector<int> nodes;                    ///< by rank; equal numbers are on one host
  std::vector<net::FileDescriptor> sockets;  ///< by rank, non-blocking; not open for this rank
};

/// Joins the job of `task`, which has several ranks. Rank 0 listens at task.rendezvous; the others
/// may start before it. Without a secret, only processes of one user on one host can form a job.
/// Waits for at most `limit`; 0: for ever. Throws Error: (input) if a secret or the rendezvous is
/// missing, or rank 0 refuses this process; (communication) if a rank does not join in time, or
/// cannot be reached.
JobConnections connect_job(const Task& task, const net::JobSecret& secret,
                           std::chrono::duration<double> limit);

/// The addresses at which tasks connect to rank 0: the numeric addresses of task.rendezvous.host,
/// or loopback if all tasks are on one host. Without a secret, only loopback addresses. Empty if
/// the name cannot be resolved (yet); then `why` is the error message. Throws Error (input), with
/// the command to create a secret, if there is neither a secret nor a loopback address. May take
/// seconds.
std::vector<std::string> rendezvous_addresses(const Task& task, const net::JobSecret& secret,
                                              std::string& why);

/// Rank 0's listeners at those addresses of the rendezvous that belong to this host. If none does
/// (other hosts may know this host by another address), listens at all addresses of this host.
/// Empty for a job of one task. Sets `addresses` to those that other tasks may connect to. Throws
/// Error (communication) if the port is in use.
std::vector<net::Listener> listen_for_tasks(const Task& task, const net::JobSecret& secret,
                                            std::vector<std::string>& addresses);

}  // namespace lockstep::inline v0::job
