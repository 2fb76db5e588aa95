#include "allreduce/routes/meeting_of_threads.h"

#include <memory>
#include <numeric>

#include "device/buffer.h"
#include "device/cpu.h"

namespace lockstep::allreduce {

std::vector<Meeting> make_meeting_of_threads(int members, int first_number) {
  const auto buffer = std::make_shared<device::Buffer>(device::HostAllocator().allocate(Meeting::bytes_for(members)));
  const std::shared_ptr<std::byte> memory(buffer, static_cast<std::byte*>(buffer->data()));
  MeetingOptions options;
  options.numbers.resize(static_cast<std::size_t>(members));
  std::iota(options.numbers.begin(), options.numbers.end(), first_number);
  options.own_cores = members <= device::available_cores();
  std::vector<Meeting> seats;
  for (int member = 0; member < members; ++member) seats.emplace_back(memory, members, member, options);
  return seats;
}

bool any_flag(const Meeting& meeting) {
  for (int member = 0; member < meeting.size(); ++member)
    if (meeting.call(member).flag != 0) return true;
  return false;
}

}  // namespace lockstep::allreduce
