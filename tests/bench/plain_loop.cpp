// Times a plain loop over two shared buffers on two cores: the upper bound with which scripts/bench
// compares the shared-memory all-reduce of two ranks.
//
// Two processes on different cores, each with a shared buffer, as two ranks of one node. Each runs
// `a[i] += b[i]; b[i] = a[i]` over its half of both buffers. They synchronize only before each
// measurement, so that it contains nothing but the loop.
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/shared_segment.h"

namespace {

using namespace lockstep;

constexpr int kWorkers = 2;
constexpr double kIterationSeconds = 200e-6;  // minimum, so that clock overhead is negligible
constexpr double kSizeSeconds = 0.5;          // for all iterations of a size
constexpr double kMaxCalls = 10000;
constexpr double kFewestIterations = 3;
constexpr double kMaxIterations = 500;

struct Options {
  std::size_t min_bytes = std::size_t{64} << 10;
  std::size_t max_bytes = std::size_t{128} << 20;
  std::size_t factor = 2;
};

// Shared state of the workers; initially zero.
struct Board {
  std::atomic<int> arrived;
  std::array<SharedSegment::Handle, kWorkers> segments;
  std::array<double, kWorkers> seconds;  // last measurement
  int calls;                             // calls per measurement; set by the first worker
  int iterations;
};

[[gnu::noinline]] void add_and_share(float* __restrict a, float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    a[i] += b[i];
    b[i] = a[i];
  }
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

class Worker {
 public:
  Worker(Board& board, int number, std::size_t bytes)
      : board_(board), number_(number), mine_(SharedSegment::create(bytes)) {
    board_.segments[number] = mine_.handle();
    synchronize();
    other_ = SharedSegment::open(board_.segments[1 - number]);
  }

  void measure(std::size_t bytes) {
    slice_ = allreduce::slice_of(bytes / sizeof(float), allreduce::ElementType::float32, kWorkers,
                                 number_);
    time(1);  // warms up
    const double seconds = time(1);
    if (number_ == 0) choose_counts(seconds);
    synchronize();
    std::vector<double> times;
    for (int iteration = 0; iteration < board_.iterations; ++iteration)
      times.push_back(time(board_.calls) / board_.calls);
    if (number_ == 0) print(bytes, times);
    synchronize();
  }

 private:
  // Spins: each worker has its core.
  void synchronize() {
    arrivals_ += kWorkers;
    board_.arrived.fetch_add(1);
    while (board_.arrived.load(std::memory_order_acquire) < arrivals_) {
    }
  }

  /// Returns the seconds of `calls` calls on the slower worker.
  double time(int calls) {
    float* first = values_of(number_ == 0 ? mine_ : other_);
    float* second = values_of(number_ == 0 ? other_ : mine_);
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call)
      add_and_share(first, second, slice_.end - slice_.begin);
    board_.seconds[number_] = seconds_since(start);
    synchronize();
    return std::ranges::max(board_.seconds);
  }

  float* values_of(const SharedSegment& segment) const {
    return reinterpret_cast<float*>(segment.data()) + slice_.begin;
  }

  void choose_counts(double seconds) {
    const double calls = std::clamp(std::ceil(kIterationSeconds / seconds), 1.0, kMaxCalls);
    board_.calls = static_cast<int>(calls);
    board_.iterations = static_cast<int>(
        std::clamp(kSizeSeconds / (seconds * calls), kFewestIterations, kMaxIterations));
  }

  void print(std::size_t bytes, const std::vector<double>& seconds) const {
    constexpr double kMicroseconds = 1e6;
    const nlohmann::ordered_json row = {
        {"bytes", bytes},
        {"microseconds", median(seconds) * kMicroseconds},
        {"best_microseconds", std::ranges::min(seconds) * kMicroseconds},
        {"iterations", board_.iterations},
        {"calls_per_iteration", board_.calls}};
    fmt::print("{}\n", row.dump());
    std::fflush(stdout);
  }

  Board& board_;
  int number_;
  SharedSegment mine_;
  SharedSegment other_;
  allreduce::Slice slice_;
  int arrivals_ = 0;  // arrivals that the next barrier waits for
};

// The first processors that this process may use.
std::array<int, kWorkers> choose_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  if (CPU_COUNT(&allowed) < kWorkers)
    throw Error(ErrorCategory::device, "plain loop",
                fmt::format("expected {} processors", kWorkers),
                fmt::format("this process may use {}", CPU_COUNT(&allowed)));
  std::array<int, kWorkers> processors{};
  int processor = 0;
  for (int& chosen : processors) {
    while (!CPU_ISSET(processor, &allowed)) ++processor;
    chosen = processor++;
  }
  return processors;
}

void bind_to(int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  ::sched_setaffinity(0, sizeof(one), &one);
}

int work(Board& board, int number, const Options& options) {
  try {
    Worker worker(board, number, options.max_bytes);
    for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor)
      worker.measure(bytes);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep_bench_plain_loop: error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}

/// Forks the workers and waits for them. If one fails, the other is killed, as it would hang.
int run(const Options& options) {
  const SharedSegment memory = SharedSegment::create(sizeof(Board));
  Board& board = *new (memory.data()) Board{};
  const std::array<int, kWorkers> processors = choose_processors();
  std::vector<pid_t> workers;
  for (int number = 0; number < kWorkers; ++number) {
    const pid_t worker = ::fork();
    LOCKSTEP_CHECK_OP(worker, >=, 0);
    if (worker == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      bind_to(processors[number]);
      std::_Exit(work(board, number, options));
    }
    workers.push_back(worker);
  }
  int result = EXIT_SUCCESS;
  while (!workers.empty()) {
    int status = 0;
    std::erase(workers, ::wait(&status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) continue;
    result = EXIT_FAILURE;
    for (const pid_t worker : workers) ::kill(worker, SIGKILL);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program(
      "Times `a[i] += b[i]; b[i] = a[i]` over two float32 buffers that two processes on two cores "
      "share; prints JSON.");
  Options options;
  program
      .add_option("--min-bytes", options.min_bytes,
                  "the smallest buffer; 64KiB and 1MiB are understood as well")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1} << 7, std::size_t{1} << 40))
      ->capture_default_str();
  program.add_option("--max-bytes", options.max_bytes, "no buffer is larger")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  program.add_option("--factor", options.factor, "from one size to the next")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  CLI11_PARSE(program, argc, argv);
  try {
    return run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep_bench_plain_loop: error: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
