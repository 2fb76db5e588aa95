#include "apps/lockstep/doctor/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/system/host.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

constexpr std::int64_t kImages = 64;  // per core
constexpr std::int64_t kClasses = 10;
constexpr int kMaxCores = 16;    // maximum number of cores to measure
constexpr double kBetter = 1.1;  // minimum speedup that is recommended

// A replica that has computed one step.
class Replica {
 public:
  Replica(std::int64_t images, int threads)
      : images_(images),
        threads_(threads),
        model_(std::make_shared<const model::Network>(zoo::cnn({28, 28, 1}, kClasses)),
               device::Device{}, allocator_),
        features_(
            static_cast<std::size_t>(images * model::element_count(model_.network().input_shape())),
            0.5F),
        targets_(static_cast<std::size_t>(images * kClasses), 0.1F) {
    model_.initialize(1);
    model_.parameters_changed();
    set_thread_budget(threads);
    step();
  }

  /// Trains until `deadline`, and returns the number of images.
  std::int64_t train_until(std::chrono::steady_clock::time_point deadline) {
    set_thread_budget(threads_);
    std::int64_t trained = 0;
    for (; std::chrono::steady_clock::now() < deadline; trained += images_) step();
    return trained;
  }

 private:
  void step() {
    const model::BatchView batch{
        .samples = images_, .features = features_, .targets = {.labels = {}, .values = targets_}};
    model_.train_batch(batch, {.global_samples = images_}, model::MeanSquaredError{});
  }

  std::int64_t images_;
  int threads_;
  device::HostAllocator allocator_;
  model::CompiledModel model_;
  std::vector<float> features_;
  std::vector<float> targets_;
};

/// Images per second of all replicas at once.
double speed_of(int count, std::int64_t images, int threads, double seconds) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (int i = 0; i < count; ++i) replicas.push_back(std::make_unique<Replica>(images, threads));
  const auto begin = std::chrono::steady_clock::now();
  const auto deadline = begin + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                    std::chrono::duration<double>(seconds));
  std::vector<std::future<std::int64_t>> trained;
  for (const std::unique_ptr<Replica>& replica : replicas)
    trained.push_back(
        std::async(std::launch::async, &Replica::train_until, replica.get(), deadline));
  std::int64_t all = 0;
  for (std::future<std::int64_t>& each : trained) all += each.get();
  return static_cast<double>(all) / seconds_since(begin);
}

ReplicaFacts measure(int cores, double seconds) {
  if (cores < 2) return {.cores = cores};
  return {.cores = cores,
          .as_one = speed_of(1, kImages * cores, cores, seconds / 2),
          .as_many = speed_of(cores, kImages, 1, seconds / 2)};
}

}  // namespace

Reports<ReplicaFacts> measure_replicas(Ranks& ranks, double seconds) {
  constexpr const char* kCheck = "replicas";
  const int cores = std::min(job::share_of_cores(ranks.session()), kMaxCores);
  ranks.barrier(kCheck);
  return ranks.measure<ReplicaFacts>(
      kCheck, [cores, seconds] { return measure(cores, seconds); },
      std::chrono::milliseconds(3000 + static_cast<std::int64_t>(1000 * seconds)));
}

Outcome judge_replicas(const Reports<ReplicaFacts>& reports) {
  Outcome outcome{.check = "replicas"};
  for (const Missing& missing : reports.missing)
    outcome.warn(missing.place, missing.why, kCheckTheHost);
  // Every step waits for the slowest rank.
  const Reported<ReplicaFacts>* slowest = nullptr;
  for (const Reported<ReplicaFacts>& report : reports.answered)
    if (report.facts.cores > 1 &&
        (slowest == nullptr || report.facts.as_many < slowest->facts.as_many))
      slowest = &report;
  if (slowest == nullptr) {
    outcome.skipped = reports.missing.empty();
    outcome.summary = "each rank has a share of one core: nothing to divide";
    return outcome;
  }
  const auto& [cores, as_one, as_many] = slowest->facts;
  std::string advice = "one is enough";
  if (as_many > kBetter * as_one) {
    advice = "--devices cpu:0,cpu:0";
    if (cores > 2) advice += fmt::format(",… ({} times)", cores);
  }
  outcome.summary = fmt::format(
      "cnn, {} images per core: one replica on {} cores {:.0f}/s, {} replicas {:.0f}/s: {}",
      kImages, cores, as_one, cores, as_many, advice);
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
