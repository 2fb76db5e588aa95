// Ends of jobs that depend on the order of events, repeated many times.
#include <fmt/format.h>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/faults/endings.h"

namespace lockstep::inline v0::faults {
namespace {

using ::testing::HasSubstr;

/// Keeps all processors of this machine busy.
class Stress {
 public:
  Stress() {
    for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
      threads_.emplace_back([](const std::stop_token& stop) {
        for (std::atomic<unsigned> turns = 0; !stop.stop_requested();) ++turns;
      });
  }

 private:
  std::vector<std::jthread> threads_;
};

int repeats(int usual) {
  const char* text = std::getenv("LOCKSTEP_REPEATS");
  return text == nullptr ? usual : std::atoi(text);
}

TEST(LongKilledRank, IsNamedEachTimeWithAllProcessorsBusy) {
  const Stress stress;
  for (int i = 0; i < repeats(100); ++i) {
    Jobs jobs;
    for (const Route& route : kRoutes) {
      jobs.start(route.ranks, fmt::format("--wrapped --allreduce {} --fault killed --step {}",
                                          route.name, i % 20));
      jobs.start(route.ranks,
                 fmt::format("--allreduce {} --fault killed --step {}", route.name, i % 20));
    }
    for (const Outcome& outcome : jobs.finish())
      ASSERT_THAT(expect_failure(outcome),
                  HasSubstr("[watchdog] expected every rank to stay connected; " + name_of_rank(1)))
          << "repeat " << i << ": " << outcome.output;
  }
}

class LongFailingRing : public ::testing::TestWithParam<const char*> {};

// Freed memory of messages in flight is poisoned. The status is that of the exception, or 4 if
// another rank detects the failure first; never that of a signal.
TEST_P(LongFailingRing, EndsWithTheErrorEachTime) {
  setenv("OMPI_MCA_btl", GetParam(), 1);
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  setenv("MALLOC_PERTURB_", "165", 1);
  setenv("MALLOC_CHECK_", "3", 1);
  for (int i = 0; i < repeats(200); ++i) {
    Jobs jobs;
    jobs.start(4, fmt::format("--allreduce ring --units 1024 --bucket-bytes 4194304 --steps 50 "
                              "--fault fails-in-backward --rank 1 --step {}",
                              i % 20));
    for (const Outcome& outcome : jobs.finish()) {
      ASSERT_EQ(outcome.status, 4) << "repeat " << i << ": " << outcome.output;
      ASSERT_THAT(outcome.output, HasSubstr("a layer has lost its connection")) << "repeat " << i;
    }
  }
  for (const char* name : {"OMPI_MCA_btl", "OMPI_MCA_btl_vader_single_copy_mechanism",
                           "MALLOC_PERTURB_", "MALLOC_CHECK_"})
    unsetenv(name);
}

INSTANTIATE_TEST_SUITE_P(Messages, LongFailingRing, ::testing::Values("self,tcp", "self,vader"),
                         [](const auto& btl) {
                           return std::string(btl.param) == "self,tcp" ? "Tcp" : "SharedMemory";
                         });

}  // namespace
}  // namespace lockstep::inline v0::faults
