#include "apps/lockstep/doctor/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/system/host.h"
#include "lockstep/job/device_share.h"
#include "lockstep/model/compiled_model.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::apps::doctor {
namespace {

constexpr std::int64_t kImages = 64;  // for each core
constexpr std::int64_t kClasses = 10;
constexpr double kBetter = 1.1;  // what is worth another command line

double images_per_second(std::int64_t images, int threads, double seconds) {
  set_thread_budget(threads);
  const auto network = std::make_shared<const model::Network>(zoo::cnn({28, 28, 1}, kClasses));
  device::HostAllocator allocator;
  model::CompiledModel model(network, device::Device{}, allocator);
  model.initialize(1);
  model.parameters_changed();
  const std::vector<float> features(
      static_cast<std::size_t>(images * model::element_count(network->input_shape())), 0.5F);
  const std::vector<float> targets(static_cast<std::size_t>(images * kClasses), 0.1F);
  const model::BatchView batch{
      .samples = images, .features = features, .targets = {.labels = {}, .values = targets}};
  const double step = shortest_seconds(seconds, [&] {
    model.train_batch(batch, {.global_samples = images}, model::MeanSquaredError{});
  });
  return static_cast<double>(images) / step;
}

ReplicaFacts measure(int cores, double seconds) {
  ReplicaFacts facts{.cores = cores};
  if (cores < 2) return facts;
  facts.as_one = images_per_second(kImages * cores, cores, seconds / 2);
  std::vector<std::future<double>> replicas;
  for (int core = 0; core < cores; ++core)
    replicas.push_back(std::async(std::launch::async, images_per_second, kImages, 1, seconds / 2));
  for (std::future<double>& replica : replicas) facts.as_many += replica.get();
  return facts;
}

}  // namespace

Reports<ReplicaFacts> measure_replicas(Ranks& ranks, double seconds) {
  constexpr const char* kCheck = "replicas";
  const int cores = job::share_of_cores(ranks.session());
  ranks.barrier(kCheck);
  return ranks.measure<ReplicaFacts>(
      kCheck, [cores, seconds] { return measure(cores, seconds); },
      std::chrono::milliseconds(3000 + static_cast<std::int64_t>(1000 * seconds)));
}

Outcome judge_replicas(const Reports<ReplicaFacts>& reports) {
  Outcome outcome{.check = "replicas"};
  add_missing(outcome, reports.missing, kLookAtTheHost);
  const auto slowest = std::ranges::min_element(
      reports.answered, {}, [](const auto& report) { return report.facts.as_many; });
  if (slowest == reports.answered.end()) return outcome;
  const ReplicaFacts& facts = slowest->facts;
  if (facts.cores < 2) {
    outcome.skipped = true;
    outcome.summary = "a rank has one core: nothing to divide";
    return outcome;
  }
  const bool many = facts.as_many > kBetter * facts.as_one;
  std::string devices = "cpu:0";
  for (int core = 1; many && core < facts.cores; ++core) devices += ",cpu:0";
  outcome.summary = fmt::format(
      "cnn, {} images per core: one replica on {} cores {:.0f}/s, {} replicas {:.0f}/s: {}",
      kImages, facts.cores, facts.as_one, facts.cores, facts.as_many,
      many ? (facts.cores > 4 ? fmt::format("--devices cpu:0,cpu:0,… ({} times)", facts.cores)
                              : "--devices " + devices)
           : "one is enough");
  return outcome;
}

}  // namespace lockstep::apps::doctor
