// A meeting whose members are threads of one process.
#pragma once

#include <vector>

#include "allreduce/routes/meeting.h"

namespace lockstep::allreduce {

/// Element i is member i's seat; its number in messages is first_number + i.
std::vector<Meeting> make_meeting_of_threads(int members, int first_number = 0);

/// Whether any member brought a flag to the Call::any of this round.
bool any_flag(const Meeting& meeting);

}  // namespace lockstep::allreduce
