#include "apps/lockstep/allreduce_bench/reduction_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/allreduce/transport/mpi/mpi_loader.h"
#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/strategy/replica_threads.h"

namespace lockstep::inline v0::apps {
namespace {

using allreduce::Communicator;
using allreduce::Route;

constexpr double kIterationSeconds =
    200e-6;                            // minimum, so that clock and barrier overhead is negligible
constexpr double kRouteSeconds = 0.5;  // all iterations of a size and route
constexpr double kQuickSeconds = 10e-3;  // shorter calls are estimated from several
constexpr int kFewestIterations = 3;
constexpr int kMaxIterations = 500;
constexpr int kMaxCalls = 100;
constexpr int kEstimateCalls = 5;

std::vector<Communicator> make_group(const job::Session& session, int local_replicas, Route route) {
  if (session.is_connected())
    return allreduce::make_multi_worker_group(session.ranks(), local_replicas, route);
  allreduce::require_no_ranks(route);
  return allreduce::make_in_process_group(local_replicas, route);
}

/// A communicator for plain MPI_Allreduce.
class PlainMpi {
 public:
  /// `ranks`: the communicator of the session. `type` is one that MPI has.
  PlainMpi(int ranks, allreduce::ElementType type)
      : type_(mpi_.type(type)), sum_(mpi_.operation(allreduce::ReduceOp::sum)) {
    mpi_.duplicate(mpi_.from_fortran(ranks), &comm_);
    mpi_.return_errors(comm_);
  }
  PlainMpi(const PlainMpi&) = delete;
  PlainMpi& operator=(const PlainMpi&) = delete;
  ~PlainMpi() { mpi_.free_communicator(comm_); }

  void sum(void* values, int count) const {
    if (const int status = mpi_.all_reduce(comm_, values, count, type_, sum_); status != 0)
      throw Error(ErrorCategory::communication, "mpi", "expected MPI_Allreduce to succeed",
                  fmt::format("MPI error {}", status));
  }

 private:
  const allreduce::MpiFunctions& mpi_ = allreduce::loaded_mpi();
  allreduce::MpiHandle type_;
  allreduce::MpiHandle sum_;
  allreduce::MpiHandle comm_ = 0;
};

/// A route to measure: a group of the local replicas, or plain MPI.
struct Contender {
  Route route{};
  std::vector<Communicator> group;  // by local replica; empty for plain MPI
  std::unique_ptr<PlainMpi> plain;
};

/// The communicators of this process, created before its threads start.
struct Arena {
  std::vector<Communicator> control;  // barriers and the exchange of times, the same for all routes
  std::vector<Contender> contenders;

  void abort(int local, const std::string& reason) const {
    const auto member = static_cast<std::size_t>(local);
    control[member].abort(reason);
    for (const Contender& contender : contenders)
      if (!contender.group.empty()) contender.group[member].abort(reason);
  }
};

Arena make_arena(const job::Session& session, int local_replicas, const ReductionPlan& plan) {
  Arena arena;
  const bool alone = !session.is_connected();
  arena.control = make_group(session, local_replicas, alone ? Route::in_process : Route::ring);
  const int replicas = arena.control.front().size();
  if (replicas == 1)
    throw Error(ErrorCategory::input, "allreduce-bench",
                "expected at least two replicas: mpirun -np 2, or --devices cpu:0,cpu:0",
                "got one");
  allreduce::ElementType type{};
  with_element_type(plan.dtype, [&](const auto& element) { type = element.type; });
  const bool plain = session.communicator() && replicas == session.size() &&
                     allreduce::loaded_mpi().type(type) != 0;
  for (const Route route : plan.routes) {
    Contender contender;
    contender.route = route;
    if (route == Route::mpi && plain)
      contender.plain = std::make_unique<PlainMpi>(*session.communicator(), type);
    else
      contender.group = make_group(session, local_replicas, route);
    arena.contenders.push_back(std::move(contender));
  }
  return arena;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// The benchmark of one replica, on its own thread.
template <typename T>
class Member {
 public:
  Member(const Arena& arena, int local, const ReductionPlan& plan, const ReductionListener* chief)
      : arena_(arena),
        local_(static_cast<std::size_t>(local)),
        control_(arena.control[local_]),
        plan_(plan),
        chief_(chief),
        pattern_(control_.size()) {
    const std::size_t bytes = std::ranges::max(plan.bytes) + sizeof(T);
    for (const Contender& contender : arena.contenders)
      buffers_.push_back(contender.plain ? device::HostAllocator().allocate(bytes)
                                         : contender.group[local_].allocate(bytes));
  }

  /// Measures all sizes and routes. Returns the number of wrong elements over all replicas.
  std::int64_t run() {
    std::int64_t errors = 0;
    for (const std::size_t bytes : plan_.bytes) {
      count_ = std::max<std::size_t>(1, bytes / sizeof(T));
      if (chief_ != nullptr) chief_->size_begins(count_ * sizeof(T));
      const std::vector<std::int64_t> wrong =
          plan_.check ? check() : std::vector<std::int64_t>(contenders());
      measure(wrong);
      errors = std::accumulate(wrong.begin(), wrong.end(), errors);
    }
    return errors;
  }

 private:
  std::size_t contenders() const { return arena_.contenders.size(); }
  std::span<T> values(std::size_t contender) const {
    return buffers_[contender].template as<T>().first(count_);
  }

  void reduce(std::size_t contender) const {
    const Contender& one = arena_.contenders[contender];
    if (one.plain)
      one.plain->sum(values(contender).data(), static_cast<int>(count_));
    else
      one.group[local_].all_reduce(values(contender)).wait();
  }

  /// Number of wrong elements of each route, over all replicas. Fills the buffers with zeros, which
  /// repeated sums do not change.
  std::vector<std::int64_t> check() const {
    std::vector<std::int64_t> wrong(contenders());
    for (std::size_t i = 0; i < contenders(); ++i) {
      pattern_.fill(control_.rank(), values(i));
      reduce(i);
      wrong[i] = pattern_.count_errors(values(i));
      std::ranges::fill(values(i), T{});
    }
    std::vector<std::int64_t> total(contenders());
    for (const auto& member : exchange(wrong))
      std::ranges::transform(total, member, total.begin(), std::plus{});
    return total;
  }

  /// All-gathers `mine` over the replicas.
  template <typename Value>
  std::vector<std::vector<Value>> exchange(const std::vector<Value>& mine) const {
    std::vector<std::vector<Value>> all;
    for (const auto& bytes : control_.all_gather(std::as_bytes(std::span(mine)))) {
      LOCKSTEP_CHECK_OP(bytes.size(), ==, mine.size() * sizeof(Value));
      all.emplace_back(mine.size());
      std::memcpy(all.back().data(), bytes.data(), bytes.size());
    }
    return all;
  }

  /// Element-wise maximum of `mine` over the replicas.
  std::vector<double> slowest(const std::vector<double>& mine) const {
    std::vector<double> slowest(mine.size());
    for (const auto& member : exchange(mine))
      std::ranges::transform(slowest, member, slowest.begin(),
                             [](double a, double b) { return std::max(a, b); });
    return slowest;
  }

  /// Seconds for `calls` calls after a barrier. An untimed call first brings the buffers of this
  /// route back into the caches.
  double time(std::size_t contender, int calls) const {
    return warm_time(
        calls, [&] { reduce(contender); }, [&] { control_.barrier(); });
  }

  /// Estimated seconds of one call on each route, the same on all replicas.
  std::vector<double> estimate() const {
    std::vector<double> seconds(contenders());
    for (std::size_t i = 0; i < contenders(); ++i) seconds[i] = time(i, 1);
    seconds = slowest(seconds);
    for (std::size_t i = 0; i < contenders(); ++i)
      if (seconds[i] < kQuickSeconds) seconds[i] = time(i, kEstimateCalls) / kEstimateCalls;
    return slowest(seconds);
  }

  void measure(const std::vector<std::int64_t>& wrong) const {
    const std::vector<double> seconds = estimate();
    std::vector<int> calls;
    double round = 0;  // seconds for one iteration of every route, including the untimed call
    for (const double each : seconds) {
      calls.push_back(
          static_cast<int>(std::clamp<double>(std::ceil(kIterationSeconds / each), 1, kMaxCalls)));
      round += each * (calls.back() + 1);
    }
    const double fit = kRouteSeconds * static_cast<double>(contenders()) / round;
    const int iterations =
        plan_.iterations > 0
            ? plan_.iterations
            : static_cast<int>(std::clamp<double>(fit, kFewestIterations, kMaxIterations));
    std::vector<double> times;  // [iteration][route]
    for (int iteration = 0; iteration < iterations; ++iteration)
      for (std::size_t i = 0; i < contenders(); ++i) times.push_back(time(i, calls[i]) / calls[i]);
    times = slowest(times);
    if (chief_ == nullptr) return;
    for (std::size_t i = 0; i < contenders(); ++i) {
      std::vector<double> of_route;
      for (std::size_t at = i; at < times.size(); at += contenders()) of_route.push_back(times[at]);
      tell(i, of_route, calls[i], wrong[i]);
    }
  }

  void tell(std::size_t contender, const std::vector<double>& seconds, int calls,
            std::int64_t wrong) const {
    constexpr double kMicroseconds = 1e6;
    const Contender& one = arena_.contenders[contender];
    ReductionTiming timing;
    timing.route = one.route;
    timing.carrier = one.plain ? "mpi" : one.group[local_].route();
    timing.bytes = count_ * sizeof(T);
    timing.microseconds = median(seconds) * kMicroseconds;
    timing.best_microseconds = std::ranges::min(seconds) * kMicroseconds;
    timing.iterations = static_cast<int>(seconds.size());
    timing.calls = calls;
    if (plan_.check) timing.errors = wrong;
    chief_->timed(timing);
  }

  const Arena& arena_;
  std::size_t local_;
  const Communicator& control_;
  const ReductionPlan& plan_;
  const ReductionListener* chief_;  // null except on the chief
  ReductionPattern<T> pattern_;
  std::vector<device::Buffer> buffers_;  // one per contender
  std::size_t count_ = 0;
};

}  // namespace

std::int64_t time_reductions(job::Session& session, int local_replicas, const ReductionPlan& plan,
                             const ReductionListener& chief) {
  const Arena arena = make_arena(session, local_replicas, plan);
  const int budget = std::max(1, job::share_of_cores(session) / local_replicas);
  strategy::ReplicaThreads threads(
      local_replicas, budget,
      [&](int local, const std::string& reason) { arena.abort(local, reason); });
  std::int64_t errors = 0;
  with_element_type(plan.dtype, [&]<typename T>(const ElementTag<T>& /*type*/) {
    threads.run([&](int local) {
      const bool is_chief = session.is_chief() && local == 0;
      Member<T> member(arena, local, plan, is_chief ? &chief : nullptr);
      const std::int64_t wrong = member.run();
      if (local == 0) errors = wrong;
    });
  });
  return errors;
}

}  // namespace lockstep::inline v0::apps
