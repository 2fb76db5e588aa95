#include "lockstep/train/input/class_weights.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/base/error.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/job/agreement.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::inline v0::train {
namespace {

/// Counts the labels of each class in `records`.
std::vector<std::int64_t> count_labels(const data::Dataset& dataset, data::Range records,
                                       const std::function<void()>& tick) {
  const data::RecordSource& source = dataset.source();
  data::Batch batch(source.spec());
  data::Sample sample = batch.sample();
  data::StoredImage undecoded;  // only the label is read
  sample.image = source.info().has_encoded_images ? &undecoded : nullptr;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(source.spec().classes()));
  for (std::int64_t record = records.begin; record < records.end; ++record) {
    tick();
    try {
      source.read(record, sample);
    } catch (const data::RecordError&) {
      if (!dataset.bad_records_allowed()) throw;
      continue;
    }
    for (const std::int32_t label : sample.targets.front().as<std::int32_t>())
      if (label != kMasked) ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

}  // namespace

std::vector<float> balanced_class_weights(const strategy::Strategy& strategy,
                                          const data::Dataset& dataset) {
  const auto classes = static_cast<std::size_t>(dataset.spec().classes());
  if (classes == 0)
    throw Error(ErrorCategory::input, "class-weights", "expected class labels to balance",
                fmt::format("{} has targets", dataset.description()));
  const allreduce::Communicator& ranks = strategy.ranks();
  const auto tick = [&] {
    if (ranks.activity() != nullptr) ranks.activity()->tick();
  };
  std::vector<std::int64_t> counts;
  const auto count = [&]() -> std::string {
    counts = count_labels(dataset, data::split(dataset.size(), ranks.size(), ranks.rank()), tick);
    return {};
  };
  job::Agreement(ranks).all_or_none(ErrorCategory::data, dataset.description(),
                                    "expected every rank to read its labels", count,
                                    job::Agreement::LocalError::rethrown);
  ranks.all_reduce(std::span<std::int64_t>(counts)).wait();
  const auto records = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0LL));
  std::vector<float> weights;
  for (const std::int64_t records_of_class : counts)
    weights.push_back(records_of_class == 0
                          ? 0
                          : static_cast<float>(records / (static_cast<double>(classes) *
                                                          static_cast<double>(records_of_class))));
  return weights;
}

}  // namespace lockstep::inline v0::train
