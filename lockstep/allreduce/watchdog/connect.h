// The connections of the watchdog: TCP from every rank to rank 0.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/coordinator.h"
#include "lockstep/allreduce/watchdog/member.h"

namespace lockstep::inline v0::allreduce {

/// Rank 0 of `ranks`, on `host`. `addresses`: numeric addresses of this host to listen on; empty:
/// all. Throws Error (communication) if it cannot listen.
std::unique_ptr<Coordinator> make_coordinator(int ranks, std::string host, double stall_timeout,
                                              double heartbeat,
                                              const std::vector<std::string>& addresses = {
                                                  "127.0.0.1"});

/// Connects to rank 0, whose Coordinator must be running; tries its addresses in turn. Throws Error
/// (communication) that lists the attempts. `host`: the host of this rank.
std::unique_ptr<Member> make_member(int rank, std::string host, const Invitation& invitation);

}  // namespace lockstep::inline v0::allreduce
