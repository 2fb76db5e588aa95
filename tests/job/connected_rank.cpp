// A rank of a job that connects itself. WHAT it does: sums | throws | killed | hangs | leaves.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/job/run.h"
#include "lockstep/job/workers.h"

namespace {

using lockstep::job::Workers;

constexpr int kFailingStep = 3;

void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// Each size takes another way: with the calls, in one segment, in many.
void sum(Workers& workers) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{300'000}}) {
    std::vector<double> values(count, workers.rank() + 1);
    workers.group().all_reduce(std::span<double>(values)).wait();
    const double total = workers.size() * (workers.size() + 1) / 2;
    expect(values.front() == total && values.back() == total, "wrong sums");
  }
  std::vector<std::int64_t> from_last(100'000, workers.rank());
  workers.broadcast(std::span<std::int64_t>(from_last), workers.size() - 1);
  expect(from_last.back() == workers.size() - 1, "wrong broadcast");
  const std::vector<std::vector<int>> all = workers.all_gather(
      std::span<const int>(std::vector<int>(static_cast<std::size_t>(workers.rank()), 4)));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    expect(all[rank] == std::vector<int>(rank, 4), "wrong gather");
}

void fail(const std::string& what) {
  if (what == "throws") throw std::runtime_error("bad image 17.jpg");
  if (what == "killed") std::raise(SIGKILL);
  if (what == "leaves") std::_Exit(0);
  if (what == "hangs") std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "sums";
  return lockstep::job::run(argc, argv, [&](lockstep::job::Session& session) {
    Workers& workers = session.workers();
    sum(workers);
    const std::vector<int> others = {workers.size() - 1, 0};
    if (workers.size() > 1)
      if (const auto group = workers.make_group(others)) sum(*group);
    for (int step = 1; step <= kFailingStep; ++step) {
      workers.activity().set_step(step);
      if (step == kFailingStep && session.rank() == 1) fail(what);
      workers.barrier();
    }
    if (session.is_chief())
      fmt::print("{} ranks on {} nodes by {}\n", session.size(), session.nodes(),
                 workers.group().route());
  });
}
