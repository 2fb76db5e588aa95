// Where the tasks of a job meet, and whether they need a secret for it.
#pragma once

#include <string>
#include <vector>

#include "lockstep/job/task.h"
#include "lockstep/net/socket.h"
#include "lockstep/net/token.h"

namespace lockstep::apps::launch {

/// Where tasks come to rank 0: the numeric addresses of task.meeting.host, or loopback where all tasks are on one host.
/// Without a secret those of loopback alone. None, and `why` is for users, where the name is not known: it may be a
/// moment later. Throws Error (input), with the line to type, where there is no secret and no address of loopback. May
/// take seconds.
std::vector<std::string> addresses_to_meet(const job::Task& task, const net::JobSecret& secret, std::string& why);

/// Rank 0's listeners at the addresses of the meeting that are of this host; at all of this host's where none is, as
/// where others know this host by another address. None for a job of one task. `addresses` becomes what others may
/// connect to. Throws Error (communication) where the port is taken.
std::vector<net::Listener> listen_for_tasks(const job::Task& task, const net::JobSecret& secret,
                                            std::vector<std::string>& addresses);

}  // namespace lockstep::apps::launch
