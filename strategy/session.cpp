#include "strategy/session.h"

#include <fmt/format.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <numeric>
#include <thread>

#include "device/error.h"
#include "strategy/failure.h"
#include "strategy/task.h"

namespace lockstep::strategy {
namespace {

/// How long a failed rank waits for the others to fail alike. Long enough for ranks that check the same options, short
/// for a job to end.
constexpr double kFailureWaitSeconds = 1.0;

}  // namespace

Session::Session(int argc, char** argv, const SessionOptions& options)
    : exceptions_at_start_(std::uncaught_exceptions()), workers_options_(options.workers) {
  const Launch launch = detect_launch();
  int runs = 0;
  MPI_Initialized(&runs);
  // Before MPI is asked, which would end a process of a plain srun with words of its own.
  if (runs == 0 && (!launch.launched || !launch.connects)) require_no_task(process_environment());
  if (launch.launched || runs != 0) initialize_mpi(argc, argv, launch);
  logger_ = device::make_logger({.quiet = options.quiet, .rank = rank_, .ranks = size_});
}

void Session::initialize_mpi(int argc, char** argv, const Launch& launch) {
  int runs = 0;
  int has_ended = 0;
  MPI_Initialized(&runs);
  MPI_Finalized(&has_ended);
  if (has_ended != 0)
    throw Error(ErrorCategory::communication, "session", "needed MPI for its ranks", "MPI_Finalize has been called");
  owns_mpi_ = runs == 0;
  int provided = MPI_THREAD_SINGLE;
  if (owns_mpi_)
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  else
    MPI_Query_thread(&provided);
  try {
    if (provided < MPI_THREAD_SERIALIZED)
      throw Error(ErrorCategory::communication, "session",
                  "needed an MPI that several threads may call in turn (MPI_THREAD_SERIALIZED)",
                  owns_mpi_ ? "this MPI serves the main thread only"
                            : "the program initialised MPI for less: call MPI_Init_thread with that level");
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks_);
    MPI_Comm_dup(MPI_COMM_WORLD, &failures_);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    if (size_ == 1 && launch.ranks > 1)
      throw Error(ErrorCategory::communication, "session",
                  fmt::format("needed the {} ranks that {} started in one job", launch.ranks, launch.launcher),
                  "MPI shows each of them alone: start them with the mpirun of the MPI this program was built with, or "
                  "srun --mpi=pmix, or put \"lockstep launch --\" in front of the command");
    find_nodes();
  } catch (...) {
    if (owns_mpi_) MPI_Finalize();
    throw;
  }
}

void Session::find_nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(ranks_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local_rank_);
  MPI_Comm_size(node, &local_size_);
  // A node's number is that of its first rank among the first ranks of all nodes.
  const int leads = local_rank_ == 0 ? 1 : 0;
  int leaders_to_here = 0;
  MPI_Scan(&leads, &leaders_to_here, 1, MPI_INT, MPI_SUM, ranks_);
  node_ = leaders_to_here - 1;
  MPI_Bcast(&node_, 1, MPI_INT, 0, node);
  MPI_Allreduce(&leads, &nodes_, 1, MPI_INT, MPI_SUM, ranks_);
  MPI_Comm_free(&node);
}

Session::~Session() {
  if (ranks_ == MPI_COMM_NULL) return;
  if (std::uncaught_exceptions() > exceptions_at_start_) {
    fmt::print(stderr, "lockstep: rank {} leaves because of an exception; the job ends\n", rank_);
    MPI_Abort(ranks_, 1);
  }
  workers_.reset();
  int has_ended = 0;
  MPI_Finalized(&has_ended);
  if (has_ended != 0) {
    logger_->error("MPI was finalized before the session that stands on it ended");
    return;
  }
  wait_for_others();
  MPI_Comm_free(&failures_);
  MPI_Comm_free(&ranks_);
  if (owns_mpi_) MPI_Finalize();
}

// Where a rank dies while another waits for it in MPI_Finalize, the mpirun of Open MPI 4 (its PMIx server, 4.2) crashes
// or hangs for ever. So all come here first.
void Session::wait_for_others() const {
  MPI_Request everyone = MPI_REQUEST_NULL;
  MPI_Ibarrier(ranks_, &everyone);
  for (int here = 0; MPI_Test(&everyone, &here, MPI_STATUS_IGNORE), here == 0;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

double Session::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::vector<std::string> Session::all_gather(const std::string& mine) const {
  if (size_ == 1) return {mine};
  if (workers_) workers_->settle();
  const auto own = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(size_));
  MPI_Allgather(&own, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, ranks_);
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (total > INT_MAX)  // MPI counts in int; all ranks know the total, so all throw
    throw Error(ErrorCategory::input, "session",
                fmt::format("expected at most {} bytes to gather over all ranks together", INT_MAX),
                fmt::format("got {}", total));
  const std::vector<int> lengths(sizes.begin(), sizes.end());
  std::vector<int> offsets(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), offsets.begin(), 0);
  std::string together(static_cast<std::size_t>(total), '\0');
  MPI_Allgatherv(mine.data(), static_cast<int>(own), MPI_CHAR, together.data(), lengths.data(), offsets.data(),
                 MPI_CHAR, ranks_);
  std::vector<std::string> all;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    all.push_back(together.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(lengths[i])));
  return all;
}

void Session::barrier() const {
  if (size_ == 1) return;
  if (workers_) workers_->settle();
  MPI_Barrier(ranks_);
}

// A reduction that is under way for an optimizer outside of the body would be in MPI at the same time as what follows.
void Session::leave_workers(const std::string& reason) {
  if (!workers_) return;
  workers_->group().abort(reason);
  try {
    workers_->settle();
  } catch (const std::exception&) {
    return;  // it failed for that reason
  }
}

Workers& Session::workers() {
  if (!workers_) workers_ = std::make_unique<Workers>(*this, workers_options_);
  return *workers_;
}

int Session::guard(const std::function<int()>& body) {
  Failure failure;
  try {
    return body();
  } catch (...) {
    failure = describe_current_exception();
  }
  leave_workers(failure.message);
  FailureVerdict verdict{.everyone_failed = true, .print = true, .exit_status = failure.exit_status};
  if (size_ > 1) verdict = compare_failures(failure, failures_, kFailureWaitSeconds);
  if (verdict.print) fmt::print(stderr, "lockstep: error: {}\n", failure.message);
  if (!verdict.everyone_failed) {
    std::fflush(nullptr);
    MPI_Abort(ranks_, verdict.exit_status);
  }
  return verdict.exit_status;
}

}  // namespace lockstep::strategy
