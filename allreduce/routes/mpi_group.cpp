#include "allreduce/routes/mpi_group.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <numeric>

#include "device/error.h"

namespace lockstep::allreduce {
namespace {

constexpr int kTag = 0;
constexpr std::size_t kLongestNotice = 2000;                 // short enough to be sent without waiting for a receiver
constexpr std::size_t kLargestPiece = std::size_t{1} << 30;  // MPI counts in int

std::string pack(const Failure& failure) {
  return fmt::format("{}\n{}\n{}", failure.where, failure.needed, failure.given).substr(0, kLongestNotice);
}

Failure unpack(const std::string& text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = text.find('\n', first + 1);
  return {text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

bool mpi_is_over() {
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
}

MPI_Comm duplicate(MPI_Comm ranks) {
  MPI_Comm copy = MPI_COMM_NULL;
  const int status = MPI_Comm_dup(ranks, &copy);
  if (status != MPI_SUCCESS)
    throw Error(ErrorCategory::communication, "mpi", "needed a communicator", fmt::format("MPI error {}", status));
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

}  // namespace

PendingRequests::~PendingRequests() {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

MpiGroup::MpiGroup(MPI_Comm ranks) : comm_(duplicate(ranks)), failures_(duplicate(ranks)) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  numbers_.resize(static_cast<std::size_t>(size_));
  std::iota(numbers_.begin(), numbers_.end(), 0);
  calls_ = std::make_unique<std::vector<Call>>(numbers_.size());
}

MpiGroup::~MpiGroup() {
  if (exchange_ != MPI_REQUEST_NULL) static_cast<void>(calls_.release());
  // Freeing is collective: after a failure the others may not come to it.
  if (failure_ || mpi_is_over()) return;
  MPI_Comm_free(&failures_);
  MPI_Comm_free(&comm_);
}

void MpiGroup::check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  raise({"mpi", fmt::format("needed {} to succeed on rank {}", call, rank_), text.data()});
}

void MpiGroup::raise(const Failure& failure) {
  fail(failure);
  failure_->raise();
}

void MpiGroup::fail(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  notice_ = pack(failure);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Isend(notice_.data(), static_cast<int>(notice_.size()), MPI_BYTE, rank, kTag, failures_, &request) ==
        MPI_SUCCESS)
      MPI_Request_free(&request);
  }
}

void MpiGroup::receive_failure() {
  int arrived = 0;
  MPI_Status status;
  check(MPI_Iprobe(MPI_ANY_SOURCE, kTag, failures_, &arrived, &status), "MPI_Iprobe");
  if (arrived == 0) return;
  int length = 0;
  MPI_Get_count(&status, MPI_BYTE, &length);
  std::string text(static_cast<std::size_t>(length), ' ');
  MPI_Recv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, kTag, failures_, MPI_STATUS_IGNORE);
  // Whoever failed has told everyone: passing it on would only repeat it.
  failure_ = unpack(text);
  failure_->raise();
}

void MpiGroup::announce(const Call& call) {
  if (failure_) failure_->raise();
  (*calls_)[static_cast<std::size_t>(rank_)] = call;
  check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, calls_->data(), sizeof(Call), MPI_BYTE, comm_, &exchange_),
        "MPI_Iallgather");
}

bool MpiGroup::agreed() {
  if (exchange_ == MPI_REQUEST_NULL) return true;
  int complete = 0;
  check(MPI_Test(&exchange_, &complete, MPI_STATUS_IGNORE), "MPI_Test");
  if (complete == 0) return false;
  if (auto difference = find_difference(*calls_, numbers_)) {
    // All members find the same, by themselves.
    failure_ = std::move(difference);
    failure_->raise();
  }
  return true;
}

const std::vector<Call>& MpiGroup::agree() {
  wait_until_done([this] { return agreed() ? Progress::done : Progress::none; });
  return *calls_;
}

void MpiGroup::wait(MPI_Request& request) {
  wait_until_done([&] {
    int complete = 0;
    check(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "MPI_Test");
    return complete != 0 ? Progress::done : Progress::none;
  });
}

void MpiGroup::broadcast(std::span<std::byte> values, int root) {
  announce(Call::broadcast(values.size(), root));
  agree();
  for (std::size_t begin = 0; begin < values.size(); begin += kLargestPiece) {
    const auto piece = values.subspan(begin, std::min(kLargestPiece, values.size() - begin));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
    wait(request);
  }
}

std::vector<std::vector<std::byte>> MpiGroup::all_gather(std::span<const std::byte> mine) {
  announce(Call::all_gather(mine.size()));
  const std::vector<Call>& calls = agree();
  std::vector<int> counts;
  std::vector<int> offsets;
  std::size_t total = 0;
  for (const Call& call : calls) {
    offsets.push_back(static_cast<int>(total));
    counts.push_back(static_cast<int>(call.count));
    total += call.count;
    LOCKSTEP_CHECK_OP(total, <=, static_cast<std::size_t>(INT_MAX));
  }
  std::vector<std::byte> gathered(total);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, gathered.data(), counts.data(),
                        offsets.data(), MPI_BYTE, comm_, &request),
        "MPI_Iallgatherv");
  wait(request);
  std::vector<std::vector<std::byte>> all;
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    const auto begin = gathered.begin() + offsets[rank];
    all.emplace_back(begin, begin + counts[rank]);
  }
  return all;
}

void MpiGroup::barrier() {
  announce(Call::barrier());
  agree();
}

bool MpiGroup::any(bool mine) {
  announce(Call::any(mine));
  return std::ranges::any_of(agree(), [](const Call& call) { return call.flag != 0; });
}

}  // namespace lockstep::allreduce
