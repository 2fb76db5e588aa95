#include "lockstep/allreduce/algorithm/recursive_doubling.h"

#include <cstring>

namespace lockstep::allreduce {
namespace {

constexpr int kDoublingTag = 2;
// Indices of slots in MessageBuffers.
constexpr std::size_t kSent = 0;
constexpr std::size_t kReceived = 1;

}  // namespace

RecursiveDoubling::RecursiveDoubling(MPI_Comm comm, const Values& values, ReduceOp op,
                                     MessageBuffers& buffers)
    : comm_(comm), values_(values), op_(op), buffers_(buffers) {
  buffers_.reserve(2, bytes_of(values));
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  while (core_ * 2 <= size_) core_ *= 2;
  if (values.count == 0 || size_ == 1) stage_ = Stage::done;
  begin_stage();
}

int RecursiveDoubling::partner() const {
  if (stage_ == Stage::exchange) return rank_ ^ distance_;
  return is_extra() ? rank_ - core_ : rank_ + core_;
}

void RecursiveDoubling::begin_stage() {
  const bool has_extra = is_extra() || rank_ + core_ < size_;
  switch (stage_) {
    case Stage::hand_over:
      if (is_extra()) return send();
      if (has_extra) return receive();
      return next_stage();
    case Stage::exchange:
      if (is_extra() || distance_ >= core_) return next_stage();
      send();
      return receive();
    case Stage::hand_back:
      if (is_extra()) return receive();
      if (has_extra) return send();
      return next_stage();
    case Stage::done:
      return;
  }
}

// Called when the send and the receive of the stage are complete.
void RecursiveDoubling::end_stage() {
  if (stage_ == Stage::hand_over && !is_extra()) add_received();
  if (stage_ == Stage::hand_back && is_extra())
    std::memcpy(values_.data, buffers_.slot(kReceived), bytes_of(values_));
  if (stage_ != Stage::exchange) return next_stage();
  add_received();
  distance_ *= 2;
  begin_stage();
}

void RecursiveDoubling::next_stage() {
  stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
  begin_stage();
}

bool RecursiveDoubling::advance() {
  if (is_done()) return false;
  int complete = 0;
  keep(MPI_Testall(2, &buffers_.request(kSent), &complete, MPI_STATUSES_IGNORE));
  if (complete == 0 || status_ != MPI_SUCCESS) return false;
  end_stage();
  return true;
}

void RecursiveDoubling::send() {
  std::memcpy(buffers_.slot(kSent), values_.data, bytes_of(values_));
  keep(MPI_Isend(buffers_.slot(kSent), static_cast<int>(bytes_of(values_)), MPI_BYTE, partner(),
                 kDoublingTag, comm_, &buffers_.request(kSent)));
}

void RecursiveDoubling::receive() {
  keep(MPI_Irecv(buffers_.slot(kReceived), static_cast<int>(bytes_of(values_)), MPI_BYTE, partner(),
                 kDoublingTag, comm_, &buffers_.request(kReceived)));
}

void RecursiveDoubling::add_received() {
  std::byte* received = buffers_.slot(kReceived);
  if (partner() < rank_)
    return reduce_into(values_.data, received, values_.count, values_.type, op_);
  // Adds into the receive buffer, so that the partner's values come first, then copies the sum
  // back.
  reduce_into(received, values_.data, values_.count, values_.type, op_);
  std::memcpy(values_.data, received, bytes_of(values_));
}

void RecursiveDoubling::keep(int status) {
  if (status_ == MPI_SUCCESS) status_ = status;
}

}  // namespace lockstep::allreduce
