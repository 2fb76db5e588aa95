// Timing of a function with warm caches.
#pragma once

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
#include <type_traits>
#include <vector>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/float16.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::apps {

/// Seconds for `calls` consecutive calls of `run`. First calls `run` once untimed to warm the
/// caches, and then `barrier`, which synchronizes the participants.
template <typename Clock = std::chrono::steady_clock, typename Run, typename Barrier>
double warm_time(int calls, const Run& run, const Barrier& barrier) {
  run();
  barrier();
  const auto start = Clock::now();
  for (int call = 0; call < calls; ++call) run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The element types of the all-reduce benchmark.

/// Bits of precision of an element type.
template <typename T>
inline constexpr int kPrecision = std::numeric_limits<T>::digits;
template <>
inline constexpr int kPrecision<Float16> = 11;
template <>
inline constexpr int kPrecision<BFloat16> = 8;

/// An element type: its name, and how reductions call it.
template <typename T>
struct ElementTag {
  std::string_view name;
  allreduce::ElementType type;
};

/// Calls `body(ElementTag<T>)` for each of the types.
template <typename Body>
void for_each_element_type(const Body& body) {
  body(ElementTag<float>{"float32", allreduce::ElementType::float32});
  body(ElementTag<double>{"float64", allreduce::ElementType::float64});
  body(ElementTag<Float16>{"float16", allreduce::ElementType::float16});
  body(ElementTag<BFloat16>{"bfloat16", allreduce::ElementType::bfloat16});
  body(ElementTag<std::int32_t>{"int32", allreduce::ElementType::int32});
  body(ElementTag<std::int64_t>{"int64", allreduce::ElementType::int64});
}

/// Calls `body` for the type of this name; does nothing for an unknown name.
template <typename Body>
void with_element_type(std::string_view name, const Body& body) {
  for_each_element_type([&](const auto& type) {
    if (type.name == name) body(type);
  });
}

inline std::vector<std::string_view> element_type_names() {
  std::vector<std::string_view> names;
  for_each_element_type([&](const auto& type) { names.emplace_back(type.name); });
  return names;
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
      for (int replica = 0; replica < replicas; ++replica) expected_[i] += (replica + i) % period_;
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
  static constexpr double kExact =
      static_cast<double>(std::int64_t{1} << std::min(kPrecision<T>, kPrecision<float>));

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
  std::string dtype = "float32";   ///< a name of element_type_names()
  std::vector<allreduce::Route> routes = {allreduce::Route::automatic};
  /// Measurements of each size and route; 0: as many as fit into half a second, 3 to 500.
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
/// single route. A barrier follows, the same for all routes, and then enough calls to last 200
/// microseconds. Route mpi is plain MPI_Allreduce if every rank has one replica and MPI has the
/// type; otherwise it is the group that is built on MPI. Collective. Returns the number of wrong
/// elements, the same on all ranks. Throws Error (input) for a route that cannot connect these
/// replicas.
std::int64_t time_reductions(job::Session& session, int local_replicas, const ReductionPlan& plan,
                             const ReductionListener& chief);

}  // namespace lockstep::inline v0::apps
