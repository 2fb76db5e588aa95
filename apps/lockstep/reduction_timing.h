// Timing of a function with warm caches.
#pragma once

#include <mpi.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/allreduce/groups.h"
#include "lockstep/base/float16.h"
#include "lockstep/job/session.h"

namespace lockstep::apps {

/// Seconds for `calls` consecutive calls of `run`. First calls `run` once untimed to warm the
/// caches, and then `line_up`, such as a barrier with the other participants.
template <typename Clock = std::chrono::steady_clock, typename Run, typename LineUp>
double warm_time(int calls, const Run& run, const LineUp& line_up) {
  run();
  line_up();
  const auto start = Clock::now();
  for (int call = 0; call < calls; ++call) run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The element types of the all-reduce benchmark.

/// An element type: its name, its bits of precision, and its MPI datatype (null if MPI has none).
template <typename T>
struct ElementType;

template <>
struct ElementType<float> {
  using Value = float;
  static constexpr std::string_view kName = "float32";
  static constexpr int kPrecision = std::numeric_limits<float>::digits;
  static MPI_Datatype mpi() { return MPI_FLOAT; }
};
template <>
struct ElementType<double> {
  using Value = double;
  static constexpr std::string_view kName = "float64";
  static constexpr int kPrecision = std::numeric_limits<double>::digits;
  static MPI_Datatype mpi() { return MPI_DOUBLE; }
};
template <>
struct ElementType<Float16> {
  using Value = Float16;
  static constexpr std::string_view kName = "float16";
  static constexpr int kPrecision = 11;
  static MPI_Datatype mpi() { return MPI_DATATYPE_NULL; }
};
template <>
struct ElementType<BFloat16> {
  using Value = BFloat16;
  static constexpr std::string_view kName = "bfloat16";
  static constexpr int kPrecision = 8;
  static MPI_Datatype mpi() { return MPI_DATATYPE_NULL; }
};
template <>
struct ElementType<std::int32_t> {
  using Value = std::int32_t;
  static constexpr std::string_view kName = "int32";
  static constexpr int kPrecision = std::numeric_limits<std::int32_t>::digits;
  static MPI_Datatype mpi() { return MPI_INT32_T; }
};
template <>
struct ElementType<std::int64_t> {
  using Value = std::int64_t;
  static constexpr std::string_view kName = "int64";
  static constexpr int kPrecision = std::numeric_limits<std::int64_t>::digits;
  static MPI_Datatype mpi() { return MPI_INT64_T; }
};

using ElementTypes =
    std::tuple<ElementType<float>, ElementType<double>, ElementType<Float16>, ElementType<BFloat16>,
               ElementType<std::int32_t>, ElementType<std::int64_t>>;

/// Calls `body(ElementType<T>{})` for the type of this name; does nothing for an unknown name.
template <typename Body>
void with_element_type(std::string_view name, const Body& body) {
  std::apply([&](auto... types) { ((types.kName == name ? body(types) : void()), ...); },
             ElementTypes{});
}

inline std::vector<std::string_view> element_type_names() {
  return std::apply([](auto... types) { return std::vector<std::string_view>{types.kName...}; },
                    ElementTypes{});
}

// Test values whose sum over all replicas is known in closed form.

/// Element i of replica r is (r + i) mod period. These are small integers, so their sum is exact in
/// every type and for any order of additions. The exception is 16-bit floats with hundreds of
/// replicas, where one rounding per replica is allowed.
template <typename T>
class ReductionPattern {
 public:
  explicit ReductionPattern(int replicas)
      : period_(period_for(replicas)),
        expected_(static_cast<std::size_t>(period_)),
        replicas_(replicas) {
    for (int i = 0; i < period_; ++i)
      for (int replica = 0; replica < replicas; ++replica)
        expected_[static_cast<std::size_t>(i)] += (replica + i) % period_;
  }

  void fill(int replica, std::span<T> values) const {
    in_blocks(values, [&](std::size_t begin, std::span<float> block) {
      for (std::size_t i = 0; i < block.size(); ++i)
        block[i] = static_cast<float>(index(begin + i + static_cast<std::size_t>(replica)));
      store(block, values.subspan(begin, block.size()));
    });
  }

  /// The number of `values` that differ from the sum over all replicas.
  std::int64_t count_errors(std::span<const T> values) const {
    std::int64_t errors = 0;
    in_blocks(values, [&](std::size_t begin, std::span<float> block) {
      load(values.subspan(begin, block.size()), block);
      for (std::size_t i = 0; i < block.size(); ++i)
        errors += is_right(block[i], index(begin + i)) ? 0 : 1;
    });
    return errors;
  }

 private:
  static constexpr std::size_t kBlock = 4096;
  // The largest n such that all integers up to n are exact. Values are converted through float32
  // here.
  static constexpr double kExact = static_cast<double>(
      std::int64_t{1} << std::min(ElementType<T>::kPrecision, ElementType<float>::kPrecision));

  static int period_for(int replicas) {
    constexpr int kShortest = 3;
    constexpr int kLongest = 251;
    const int fits = static_cast<int>(std::min<double>(kLongest, kExact / replicas + 1));
    return std::max(kShortest,
                    fits - (fits + 1) % 2);  // odd, so that slices start with different values
  }

  std::size_t index(std::size_t i) const { return i % static_cast<std::size_t>(period_); }

  bool is_right(float value, std::size_t index) const {
    const double expected = expected_[index];
    const double tolerance = expected > kExact ? expected * replicas_ / kExact : 0;
    return std::abs(static_cast<double>(value) - expected) <= tolerance;  // false for NaN
  }

  template <typename Values, typename Body>
  static void in_blocks(Values values, const Body& body) {
    std::array<float, kBlock> block{};
    for (std::size_t begin = 0; begin < values.size(); begin += kBlock)
      body(begin, std::span(block).first(std::min(kBlock, values.size() - begin)));
  }

  static void store(std::span<const float> from, std::span<T> to) {
    if constexpr (std::is_arithmetic_v<T>)
      std::ranges::transform(from, to.begin(), [](float value) { return static_cast<T>(value); });
    else
      narrow(from, to);
  }

  static void load(std::span<const T> from, std::span<float> to) {
    if constexpr (std::is_arithmetic_v<T>)
      std::ranges::transform(from, to.begin(), [](T value) { return static_cast<float>(value); });
    else
      widen(from, to);
  }

  int period_;
  std::vector<double> expected_;
  int replicas_;
};

// Timing of all-reduce on several routes.

/// What to time.
struct ReductionPlan {
  std::vector<std::size_t> bytes;  ///< sizes of the reduced buffer
  std::string dtype = "float32";   ///< a name of element_types.h
  std::vector<allreduce::Route> routes;
  /// Measurements of each size and route; 0: as many as half a second holds, 3 to 500.
  int iterations = 0;
  bool check = false;
};

/// One size on one route.
struct ReductionTiming {
  allreduce::Route route{};
  std::string carrier;  ///< the route that was used, Communicator::route()
  std::size_t bytes = 0;
  double microseconds = 0;  ///< time of one call on the slowest replica, median over the iterations
  double best_microseconds = 0;
  int iterations = 0;
  int calls = 0;                       ///< calls per iteration, one after the other
  std::optional<std::int64_t> errors;  ///< wrong elements over all replicas, if checked
};

/// Callbacks on the chief, from the calling thread.
struct ReductionListener {
  std::function<void(std::size_t bytes)> size_begins;
  std::function<void(const ReductionTiming& timing)> timed;
};

/// Times in-place sums over `local_replicas` replicas of each rank. For each size the routes are
/// interleaved, so that disturbances affect them equally. Each measurement starts with an untimed
/// call, because the caches contain the buffers of another route, unlike in a training that uses a
/// single route. A barrier follows, the same for all routes, and then enough calls to fill 200
/// microseconds. Route mpi is plain MPI_Allreduce if every rank has one replica and MPI has the
/// type; otherwise it is the group that is built on MPI. Collective. Returns the number of wrong
/// elements, the same on all ranks. Throws Error (input) for a route that cannot connect these
/// replicas.
std::int64_t time_reductions(job::Session& session, int local_replicas, const ReductionPlan& plan,
                             const ReductionListener& chief);

}  // namespace lockstep::apps
