#include "lockstep/job/session.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>

#include <sys/resource.h>
#include <unistd.h>
#include <array>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/allreduce/groups/ranks.h"
#include "lockstep/allreduce/letters/letter_thread.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/endpoint.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/allreduce/transport/mpi/mpi_loader.h"
#include "lockstep/allreduce/transport/mpi/mpi_transport.h"
#include "lockstep/allreduce/transport/tcp_endpoint.h"
#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/allreduce/watchdog/final_message.h"
#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/allreduce/watchdog/watchdog.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/system/processor.h"
#include "lockstep/base/terminal.h"
#include "lockstep/base/trace/recording.h"
#include "lockstep/job/agreement.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/failure_comparison.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/job/launch/rendezvous.h"
#include "lockstep/job/launch/start_monitor.h"
#include "lockstep/job/launch/task.h"
#include "lockstep/job/operator_settings.h"

namespace lockstep::inline v0::job {
namespace {

/// How long a failed rank waits for the same failure on the others: long enough for ranks that
/// check the same options, short enough for the end of a job.
constexpr double kFailureWaitSeconds = 1.0;
constexpr std::string_view kFinding = "[watchdog] ";  // begins what a watchdog finds
constexpr std::chrono::milliseconds kPrintLimit(
    1000);  // if the reader of standard output or error does not read

/// Before MPI_Abort: the launcher of Open MPI 5 ends a job without the output of its ranks that it
/// has not yet read.
constexpr std::chrono::milliseconds kForwardingTime(200);

/// Flushes standard output and all other streams, for at most `limit`.
void flush_within(std::chrono::milliseconds limit) {
  try {
    const auto flushed = std::make_shared<std::promise<void>>();
    const std::future<void> done = flushed->get_future();
    std::thread([flushed] {
      std::fflush(nullptr);
      flushed->set_value();
    }).detach();
    done.wait_for(limit);
  } catch (const std::system_error&) {
    // No thread available: unwritten output is lost, and the job ends.
  }
}

/// With fewer file descriptors, MPI may hang.
void require_descriptors() {
  constexpr rlim_t kLeast = 24;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kLeast) return;
  throw Error(
      ErrorCategory::device, "session",
      fmt::format("expected a limit of at least {} open files for a rank (ulimit -n)", kLeast),
      fmt::format("got {}", limit.rlim_cur));
}

/// Throws if MPI has one rank, but the launcher or the environment describes several: each would
/// train alone.
void require_all_ranks(const allreduce::MpiFunctions& mpi, const Launch& launch) {
  if (mpi.size(mpi.world()) > 1) return;
  if (launch.ranks > 1)
    throw Error(ErrorCategory::communication, "session",
                fmt::format("expected the {} ranks that {} started in one job", launch.ranks,
                            launch.launcher),
                fmt::format("{}, which was loaded, treats each of them as a separate job: put the "
                            "MPI of the launcher first in LD_LIBRARY_PATH, or use srun --mpi=pmix, "
                            "or --transport tcp (LOCKSTEP_TRANSPORT=tcp)",
                            allreduce::mpi_loaded_version(launch.mpi)));
  require_no_task(process_environment());
}

/// Whether messages go over TCP. `has_mpi`: the program has initialized MPI, or a launcher that
/// connects its ranks by MPI started this process.
bool choose_tcp(TransportChoice choice, bool has_mpi) {
  if (choice == TransportChoice::mpi && !has_mpi)
    throw Error(ErrorCategory::input, "session",
                "expected a rank that mpirun, or srun with PMIx, started for the transport mpi",
                "this process was started without MPI: mpirun -np N COMMAND");
  if (choice != TransportChoice::automatic) return choice == TransportChoice::tcp;
  if (has_mpi) return false;
  const auto task = find_task(process_environment());
  return task && task->ranks > 1;
}

std::optional<Task> task_of(const DescribedJob& job) {
  constexpr const char* kWhere = "DescribedJob";
  if (job.rank < 0 || job.rank >= job.ranks)
    throw Error(ErrorCategory::input, kWhere,
                fmt::format("expected a rank from 0 to {}", job.ranks - 1),
                fmt::format("got {}", job.rank));
  return Task{.source = "the program",
              .rank = job.rank,
              .ranks = job.ranks,
              .rendezvous = parse_address(kWhere, job.address),
              .listener = job.listener,
              .job = job.address};
}

/// The communicator of an integer handle. Throws unless it is one of the ranks of this program.
allreduce::MpiHandle require_communicator(const allreduce::MpiFunctions& mpi, int handle) {
  const allreduce::MpiHandle communicator = mpi.from_fortran(handle);
  const auto refuse = [](const char* actual) {
    throw Error(ErrorCategory::input, "session",
                "expected a communicator of the ranks that create a session", actual);
  };
  if (communicator == 0)
    refuse("got MPI_COMM_NULL: a rank that is not in the communicator creates no session");
  if (mpi.is_between_groups(communicator)) refuse("got an intercommunicator");
  return communicator;
}

// The calls of the start that may wait, in order.
constexpr StartCall kInit{
    .name = "MPI_Init_thread",
    .advice =
        "another rank, or mpirun, was stopped, has not started or cannot be reached. "
        "--start-timeout (SessionOptions::start_timeout) allows more time; mpirun --mca "
        "btl_tcp_if_include IF --mca oob_tcp_if_include IF selects an interface"};
constexpr StartCall kSession{
    .name = "MPI_Comm_dup",
    .advice =
        "another rank was stopped or has not created its Session. All ranks of the "
        "communicator create one: SessionOptions::communicator selects fewer ranks, "
        "SessionOptions::start_timeout (--start-timeout) allows more time"};
constexpr StartCall kJoin{.name = "the job's ranks",
                          .advice =
                              "another rank was stopped or cannot be reached. "
                              "--start-timeout (SessionOptions::start_timeout) allows more "
                              "time"};
constexpr double kMonitorGrace = 5;  // seconds
constexpr StartCall kExchange{.name = "the start of the watchdog",
                              .advice =
                                  "another rank was stopped or cannot be reached. --start-timeout "
                                  "(SessionOptions::start_timeout) allows more time"};

/// Seconds for the start; 0: no limit.
double start_limit(std::optional<double> start_timeout, double stall_timeout) {
  constexpr double kUsual = 60;
  if (start_timeout) return *start_timeout;
  return stall_timeout > 0 ? std::min(kUsual, stall_timeout) : kUsual;
}

/// Leaves the monitored calls at the end of a scope.
struct LeaveMonitor {
  StartMonitor& monitor;
  ~LeaveMonitor() { monitor.leave(); }
};

/// A name of the job, equal on all its ranks: the host, process and start time of rank 0.
std::string job_name(const allreduce::Communicator& ranks) {
  std::array<char, 96> name{};
  const ProcessIdentity process = this_process();
  const auto written = fmt::format_to_n(name.data(), name.size() - 1, "{:.64}-{}-{}", host_name(),
                                        process.id, process.start);
  *written.out = '\0';
  ranks.broadcast(std::as_writable_bytes(std::span(name)), 0);
  return name.data();
}

/// Exists once per process: MPI, its end and the exit status belong to the process.
class OnlySession {
 public:
  OnlySession() {
    if (exists.exchange(true))
      throw Error(ErrorCategory::input, "session", "expected one session per process",
                  "got a second one before the end of the first");
  }
  ~OnlySession() { exists = false; }
  OnlySession(const OnlySession&) = delete;
  OnlySession& operator=(const OnlySession&) = delete;

 private:
  static inline std::atomic<bool> exists = false;
};

}  // namespace

struct Session::State {
  std::optional<OnlySession> only;  // none: the program describes the job
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  const int exceptions_at_start = std::uncaught_exceptions();
  // Read before MPI is initialized, so that all ranks end if the variable is invalid.
  OperatorSettings settings = OperatorSettings::of(process_environment());
  const allreduce::MpiFunctions* mpi = nullptr;    // null without a launcher
  allreduce::MpiHandle communicator = 0;           // the program's
  std::shared_ptr<allreduce::Transport> failures;  // for the comparison of failures
  // One member without a launcher.
  allreduce::Communicator ranks = allreduce::make_in_process_group(1).front();
  std::shared_ptr<allreduce::LetterThread> letters;  // null unless the program describes the job
  std::mutex group_mutex;
  std::optional<allreduce::Communicator> group;  // that of workers(), for the watchdog
  std::exception_ptr start_error;                // from starting the watchdog; guard() throws it
  bool is_guarding = false;
  std::optional<Failure> reported;
  FailureVerdict verdict;  // on the reported failure

  // The latest watch is the last.
  struct Watch {
    std::uint64_t number;
    std::vector<std::shared_ptr<allreduce::Activity>> replicas;
  };
  std::vector<Watch> watches;
  std::uint64_t next_watch = 0;
  std::vector<std::shared_ptr<allreduce::Activity>> groups;  // this process in groups of ranks

  std::vector<std::shared_ptr<const allreduce::Activity>> with_groups(
      const std::vector<std::shared_ptr<allreduce::Activity>>& replicas) const {
    std::vector<std::shared_ptr<const allreduce::Activity>> all(replicas.begin(), replicas.end());
    all.insert(all.end(), groups.begin(), groups.end());
    return all;
  }

  FailureVerdict judge(const Failure& failure, int size) const;
};

Session::Session(int argc, char** argv, const SessionOptions& options)
    : workers_options_(options.workers), state_(std::make_unique<State>()) {
  if (!options.job) state_->only.emplace();
  require_processor();
  const std::shared_ptr<StartMonitor> monitor =
      options.start_monitor ? options.start_monitor : std::make_shared<StartMonitor>();
  const LeaveMonitor after{*monitor};
  double stall_timeout = options.stall_timeout;
  if (stall_timeout > 0) stall_timeout = state_->settings.stall_timeout.value_or(stall_timeout);
  const Launch launch = detect_launch();
  const bool program_has_mpi = allreduce::program_has_mpi();
  const std::optional<double>& start_timeout = state_->settings.start_timeout;
  const double limit =
      start_limit(start_timeout ? start_timeout : options.start_timeout, stall_timeout);
  const bool has_mpi = program_has_mpi || (launch.launched && launch.connects);
  const bool over_tcp =
      options.job || choose_tcp(state_->settings.transport == TransportChoice::automatic
                                    ? options.transport
                                    : state_->settings.transport,
                                has_mpi);
  if (!program_has_mpi && options.communicator)
    throw Error(ErrorCategory::input, "session",
                "expected MPI_Init before a session with a communicator", "MPI is not initialized");
  if (over_tcp) {
    connect_over_tcp(options, limit, *monitor);
    monitor->enter(kExchange);
  } else if (has_mpi) {
    monitor->watch(limit);
    initialize_mpi(argc, argv, options.communicator, *monitor);
    monitor->enter(kExchange);
  }
  logger_ = make_logger(
      {.quiet = options.quiet, .verbose = options.verbose, .rank = rank_, .ranks = size_});
  trace::set_recorded_rank(
      {.job = job_name(ranks()), .host = host_name(), .rank = rank_, .ranks = size_});
  activity_->set_phase(allreduce::Phase::starting);
  ranks().broadcast(std::as_writable_bytes(std::span(&stall_timeout, 1)), 0);
  if (size_ > 1)
    state_->settings = OperatorSettings::from_lines(all_gather(state_->settings.lines()).front());
  if (is_chief()) {
    for (const std::string& warning : similar_variables()) logger_->warn(warning);
    if (const std::string lines = state_->settings.lines(); !lines.empty())
      logger_->debug(fmt::format("from the environment: {}", lines));
  }
  if (options.job && size_ > 1)
    state_->letters =
        std::make_shared<allreduce::LetterThread>(ranks().impl()->transport()->duplicate());
  if (stall_timeout <= 0) return;
  try {
    start_watchdog({activity_}, {.stall_timeout = stall_timeout});
  } catch (const Error&) {
    state_->start_error = std::current_exception();
  }
}

void Session::connect_over_tcp(const SessionOptions& options, double limit, StartMonitor& monitor) {
  auto task = options.job ? task_of(*options.job) : find_task(process_environment());
  if (const std::string& place = state_->settings.rendezvous;
      task && !options.job && !place.empty()) {
    constexpr const char* kVariable = "LOCKSTEP_RENDEZVOUS";
    task->rendezvous = parse_address(kVariable, place);
    if (task->rendezvous.port == 0)
      throw Error(ErrorCategory::input, kVariable, "expected an address \"host:port\"",
                  fmt::format("got \"{}\"", place));
  }
  if (!task)
    throw Error(ErrorCategory::input, "session",
                "expected RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, TF_CONFIG, or the "
                "variables of a Slurm step for the transport tcp",
                "none of them is set");
  if (options.communicator)
    throw Error(ErrorCategory::input, "session", "expected no communicator for the transport tcp",
                "got one of MPI");
  if (task->ranks == 1) return;
  transport_reason_ = task->source;
  require_descriptors();
  // The limit of the call itself, whose error says more, comes first.
  monitor.watch(limit > 0 ? limit + kMonitorGrace : 0);
  monitor.enter(kJoin);
  const auto secret =
      !options.job ? net::find_job_secret(std::getenv(net::kSecretFileVariable),
                                          std::getenv(net::kSecretVariable))
      : options.job->secret.empty()
          ? std::nullopt
          : std::optional(net::JobSecret(options.job->secret, "DescribedJob::secret"));
  JobConnections job = connect_job(*task, secret.value_or(net::JobSecret::none()),
                                   std::chrono::duration<double>(limit));
  use(allreduce::make_transport(allreduce::make_tcp_endpoint(task->rank, std::move(job.nodes),
                                                             job.job, std::move(job.sockets))));
}

void Session::use(std::shared_ptr<allreduce::Transport> transport) {
  is_connected_ = true;
  state_->failures = transport->duplicate();
  find_nodes(*transport);
  state_->ranks = allreduce::make_ranks(std::move(transport));
}

void Session::initialize_mpi(int argc, char** argv, std::optional<int> communicator,
                             StartMonitor& monitor) {
  const Launch launch = detect_launch();
  const allreduce::MpiFunctions& mpi = allreduce::load_mpi(launch.mpi);
  state_->mpi = &mpi;
  if (mpi.is_finalized())
    throw Error(ErrorCategory::communication, "session", "expected MPI to be usable",
                "MPI_Finalize has been called");
  owns_mpi_ = !mpi.is_initialized();
  if (owns_mpi_) {
    require_descriptors();
    monitor.enter(kInit);
    mpi.initialize(&argc, &argv);
  }
  try {
    if (!mpi.allows_turns())
      throw Error(
          ErrorCategory::communication, "session",
          "expected an MPI that several threads can call, one at a time (MPI_THREAD_SERIALIZED)",
          owns_mpi_ ? "this MPI supports calls from the main thread only"
                    : "the program initialized MPI with a lower thread level: call MPI_Init_thread "
                      "with that level");
    require_all_ranks(mpi, launch);
    const allreduce::MpiHandle members =
        communicator ? require_communicator(mpi, *communicator) : mpi.world();
    monitor.enter(kSession);
    mpi.duplicate(members, &state_->communicator);
    communicator_ = mpi.to_fortran(state_->communicator);
    transport_reason_ = fmt::format("{} of {}", allreduce::mpi_loaded_version(launch.mpi),
                                    owns_mpi_ ? launch.launcher : "the program");
    use(allreduce::make_mpi_transport(mpi, state_->communicator));
  } catch (...) {
    if (owns_mpi_) mpi.finalize();
    throw;
  }
}

// Nodes are numbered in the order of their first ranks.
void Session::find_nodes(const allreduce::Transport& transport) {
  rank_ = transport.rank();
  size_ = transport.size();
  std::vector<int> nodes;
  std::vector<int> ranks_of;
  for (int rank = 0; rank < size_; ++rank) {
    const auto known = std::ranges::find(nodes, transport.node_of(rank));
    const auto node = static_cast<std::size_t>(known - nodes.begin());
    if (known == nodes.end()) {
      nodes.push_back(transport.node_of(rank));
      ranks_of.push_back(0);
    }
    if (rank == rank_) {
      node_ = static_cast<int>(node);
      local_rank_ = ranks_of[node];
    }
    ++ranks_of[node];
  }
  nodes_ = static_cast<int>(nodes.size());
  local_size_ = ranks_of[static_cast<std::size_t>(node_)];
}

void Session::start_watchdog(const std::vector<std::shared_ptr<allreduce::Activity>>& replicas,
                             allreduce::WatchdogOptions options) {
  const auto progress = std::make_shared<allreduce::ProcessProgress>();
  options.made_progress = [progress] { return progress->made_progress(); };
  if (!state_->only)
    options.on_failure = [this](const allreduce::WatchdogReport& report) {
      const std::string text = report.text.substr(std::min(report.text.size(), kFinding.size()));
      const auto end = std::min(text.find("; "), text.size());
      const ErrorMessage failure{"watchdog", text.substr(0, end),
                                 text.substr(std::min(text.size(), end + 2))};
      ranks().impl()->fail(failure);
      if (state_->letters) state_->letters->fail(failure);
      const std::lock_guard lock(state_->group_mutex);
      if (state_->group) state_->group->impl()->fail(failure);
    };
  std::vector<const allreduce::Activity*> watched;
  for (const auto& replica : replicas) watched.push_back(replica.get());
  const allreduce::CollectiveScope scope = enter("the start of the watchdog");
  auto next = is_connected_ ? std::make_unique<allreduce::Watchdog>(ranks(), watched, options)
                            : std::make_unique<allreduce::Watchdog>(watched, options);
  // The watchdog shares ownership, because it may outlive the caller.
  next->watch(state_->with_groups(replicas));
  watchdog_ = std::move(next);
}

void Session::set_group(std::optional<allreduce::Communicator> group) {
  const std::lock_guard lock(state_->group_mutex);
  state_->group = std::move(group);
}

std::uint64_t Session::watch(const std::vector<std::shared_ptr<allreduce::Activity>>& replicas,
                             const allreduce::WatchdogOptions& options) {
  allreduce::WatchdogOptions watch = options;
  watch.stall_timeout = state_->settings.stall_timeout.value_or(options.stall_timeout);
  start_watchdog(replicas, std::move(watch));
  state_->watches.push_back({.number = state_->next_watch, .replicas = replicas});
  return state_->next_watch++;
}

void Session::end_watch(std::uint64_t number) {
  std::vector<State::Watch>& watches = state_->watches;
  const bool is_latest = !watches.empty() && watches.back().number == number;
  std::erase_if(watches, [&](const State::Watch& one) { return one.number == number; });
  // Also after a failure, which has ended all watches: the program may have caught it.
  if (!watches.empty() && !is_latest) return;
  activity_->set_phase(allreduce::Phase::idle);
  // They have missed the collectives since the later watch began.
  if (!watches.empty())
    for (const auto& replica : std::span(watches.back().replicas).subspan(1))
      replica->catch_up(activity_->state().entered);
  watch_current();
}

void Session::watch_group(std::shared_ptr<allreduce::Activity> activity) {
  state_->groups.push_back(std::move(activity));
  watch_current();
}

void Session::end_group(const std::shared_ptr<allreduce::Activity>& activity) {
  std::erase(state_->groups, activity);
  watch_current();
}

allreduce::CollectiveScope Session::enter(const char* operation) const {
  const std::span<const std::shared_ptr<allreduce::Activity>> replicas =
      state_->watches.empty() ? std::span<const std::shared_ptr<allreduce::Activity>>()
                              : state_->watches.back().replicas;
  return {activity_.get(), operation, -1, replicas.empty() ? replicas : replicas.subspan(1)};
}

void Session::watch_current() {
  if (!watchdog_) return;
  watchdog_->watch(state_->with_groups(state_->watches.empty() ? std::vector{activity_}
                                                               : state_->watches.back().replicas));
}

// The previous collectives of this rank are over; the next one is the end of the job. From their
// number, the others determine which of their own collectives can still complete. After a failure
// of all ranks, which the program may catch, the numbers differ, and all ranks start over.
void Session::enter_end(bool counts) {
  constexpr std::uint64_t kBefore = allreduce::kCollectivesBeforeTheEnd;
  std::vector<std::string> buckets = activity_->bucket_contents();
  const std::uint64_t completed = counts ? activity_->state().entered % kBefore : 0;
  activity_ = std::make_shared<allreduce::Activity>(kBefore + completed);
  activity_->describe_buckets(std::move(buckets));  // for reports about the other ranks
  state_->watches.clear();
  state_->groups.clear();
  activity_->set_phase(allreduce::Phase::ending);
  watch_current();
}

Session::~Session() {
  const bool after_exception = std::uncaught_exceptions() > state_->exceptions_at_start;
  if (after_exception && watchdog_) watchdog_->announce_error();
  if (after_exception && is_connected_) {
    // The destructor cannot see the exception.
    allreduce::print_error(
        fmt::format("lockstep: error: an exception has left the scope of the session{}; "
                    "lockstep::run() prints its text\n",
                    place()),
        kPrintLimit);
    end_job(1);
  }
  workers_.reset();
  set_group(std::nullopt);
  if (!is_connected_) return;
  enter_end(true);
  if (!state_->failures->is_open()) {
    logger_->error("MPI was finalized before the session that uses it ended");
    return;
  }
  wait_for_others();
  // A launcher that ends the job may kill ranks in MPI_Finalize; the watchdog must not report them
  // as lost.
  watchdog_.reset();
  if (state_->letters) state_->letters->end();  // requests may still hold it
  state_->letters.reset();
  state_->ranks = allreduce::make_in_process_group(1).front();
  state_->failures.reset();
  if (!communicator_) return;
  state_->mpi->free_communicator(state_->communicator);
  if (owns_mpi_) state_->mpi->finalize();
}

// If a rank dies while another waits for it in MPI_Finalize, the mpirun of Open MPI 4 (with
// PMIx 4.2) crashes or hangs. So all ranks synchronize here first.
void Session::wait_for_others() const {
  const allreduce::CollectiveScope scope(activity_.get(), "the end of the job");
  try {
    ranks().barrier();
  } catch (const Error&) {  // a rank has failed: there is nobody to wait for
  }
}

const OperatorSettings& Session::settings() const { return state_->settings; }

double Session::seconds() const { return seconds_since(state_->start); }

std::vector<std::string> Session::all_gather(const std::string& mine) const {
  if (size_ == 1) return {mine};
  if (workers_) workers_->wait_pending();
  const allreduce::CollectiveScope scope = enter("all_gather");
  return allreduce::gather_texts(ranks(), mine);
}

// Here, because agreements do not depend on sessions otherwise.
Agreement::Agreement(const Session& session)
    : size_(session.size()),
      rank_(session.rank()),
      gather_([&session](const std::string& mine) { return session.all_gather(mine); }) {}

const allreduce::Communicator& Session::ranks() const { return state_->ranks; }

std::shared_ptr<allreduce::LetterThread> Session::letters() const { return state_->letters; }

void Session::barrier() const {
  if (size_ == 1) return;
  if (workers_) workers_->wait_pending();
  const allreduce::CollectiveScope scope = enter("barrier");
  ranks().barrier();
}

// A reduction in flight for an optimizer outside the body would call MPI concurrently with the code
// that follows.
void Session::finish_reductions() {
  if (!workers_) return;
  try {
    workers_->wait_pending();
  } catch (const std::exception&) {
    return;  // it failed for the same reason
  }
}

// Other threads may still be in MPI for groups that have just been notified of the failure. If one
// does not return, such as from a reduction of the MPI library itself, this rank cannot compare
// failures.
FailureVerdict Session::State::judge(const Failure& failure, int size) const {
  if (size == 1)
    return {.everyone_failed = true, .all_alike = true, .exit_status = failure.exit_status};
  const std::unique_lock turn(failures->turn().mutex,
                              std::chrono::duration<double>(kFailureWaitSeconds));
  if (!turn.owns_lock()) return {.exit_status = failure.exit_status};
  return compare_failures(failure, *failures, kFailureWaitSeconds);
}

std::string Session::place() const {
  const std::int64_t step = activity_->state().step;
  return fmt::format(" (rank {}, host {}{})", rank_, host_name(),
                     step < 0 ? "" : fmt::format(", step {}", step));
}

void Session::report(const Failure& failure) {
  if (!state_->is_guarding) {
    trace::write_recording_of_failure(failure.message);
    return;
  }
  if (state_->reported && state_->reported->message == failure.message) return;
  if (watchdog_) watchdog_->announce_error();
  // After a failure of this rank alone, the job ends anyway. The program may have caught a failure
  // of all ranks; the new one may be of this rank alone.
  if (state_->reported && !state_->verdict.everyone_failed)
    state_->verdict.print = true;
  else
    state_->verdict = state_->judge(failure, size_);
  state_->reported = failure;
  if (state_->verdict.print)
    allreduce::print_error(fmt::format("{}lockstep: error: {}{}\n", message_start(),
                                       failure.message, state_->verdict.all_alike ? "" : place()),
                           kPrintLimit);
  // After the comparison, for which the other ranks do not wait long.
  const std::filesystem::path recording = trace::write_recording_of_failure(failure.message);
  if (state_->verdict.print && !recording.empty() && logger_->should_log(spdlog::level::info))
    allreduce::print_error(fmt::format("lockstep: {}\n", trace::recording_hint(recording)),
                           kPrintLimit);
  enter_end(!state_->verdict.everyone_failed);
}

// After a failure of only some ranks, the job must end: the state of the others is unknown.
void Session::reset_failure() {
  if (state_->reported && state_->verdict.everyone_failed) state_->reported.reset();
}

void Session::end_job(int exit_status) const {
  if (watchdog_) watchdog_->announce_error();
  flush_within(kPrintLimit);
  if (communicator_) {
    std::this_thread::sleep_for(kForwardingTime);
    state_->mpi->abort(state_->communicator, exit_status);
  }
  std::_Exit(exit_status);
}

int Session::guard(const std::function<int()>& body) {
  state_->is_guarding = true;
  reset_failure();
  Failure failure;
  try {
    if (state_->start_error) std::rethrow_exception(std::exchange(state_->start_error, nullptr));
    const int status = body();
    state_->is_guarding = false;
    return status;
  } catch (...) {
    failure = describe_current_exception();
  }
  if (workers_) workers_->abort(failure.message);
  report(failure);
  state_->is_guarding = false;
  if (!state_->verdict.everyone_failed) end_job(state_->verdict.exit_status);
  finish_reductions();
  return state_->verdict.exit_status;
}

}  // namespace lockstep::inline v0::job
