#include "lockstep/model/optimizer/updater.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/model/loss/metric_sums.h"
#include "lockstep/model/optimizer/optimizer.h"

namespace lockstep::inline v0::model {

std::span<float> Updater::slot(std::string_view name) {
  for (std::size_t i = 0; i < slot_names_.size(); ++i)
    if (slot_names_[i] == name) return slot(i);
  throw Error(ErrorCategory::checkpoint, to_string(options_),
              fmt::format("expected one of the slots {}", fmt::join(slot_names_, ", ")),
              fmt::format("got \"{}\"", name));
}

namespace {

class HostUpdater final : public Updater {
 public:
  HostUpdater(const OptimizerOptions& options, const ParameterTable& table,
              const UpdateArrays& arrays)
      : Updater(options, arrays.average_decay),
        arrays_(arrays),
        optimizer_(options, table),
        average_(averages() ? table.flat_size() : 0) {}

  void begin(const UpdateRequest& request) override { request_ = request; }

  void update(std::span<const float> summable) override {
    outcome_ = {.applied = SummableMetrics::is_finite(summable.data()) &&
                           !SummableMetrics::is_weightless(summable.data())};
    const float weight_factor = SummableMetrics::gradient_factor(summable.data());
    float scale = weight_factor / request_.loss_scale;
    if (outcome_.applied && request_.clip_norm > 0) {
      outcome_.gradient_norm = global_norm(arrays_.gradients) * static_cast<double>(weight_factor) /
                               static_cast<double>(request_.loss_scale);
      outcome_.applied = std::isfinite(outcome_.gradient_norm);
      scale *= clip_scale(outcome_.gradient_norm, request_.clip_norm);
    } else if (outcome_.applied) {
      outcome_.applied = all_finite(arrays_.gradients);
    }
    if (!outcome_.applied) {
      std::ranges::copy(arrays_.kept_statistics, arrays_.statistics.begin());
      return;
    }
    optimizer_.apply(arrays_.parameters, arrays_.gradients, request_.learning_rate, request_.update,
                     scale);
    const float decay = average_decay(request_.update);
    for (std::size_t i = 0; i < average_.size(); ++i)
      average_[i] = follow(average_[i], arrays_.parameters[i], decay);
    if (!arrays_.weights.empty()) narrow(arrays_.parameters, arrays_.weights.as<BFloat16>());
  }

  UpdateOutcome outcome() override { return outcome_; }

 private:
  std::span<float> slot(std::size_t index) override {
    if (averages() && index + 1 == slot_names().size()) return average_;
    return optimizer_.slot(slot_names()[index]);
  }

  UpdateArrays arrays_;
  Optimizer optimizer_;
  std::vector<float> average_;  // empty: none
  UpdateRequest request_;
  UpdateOutcome outcome_;
};

}  // namespace

std::unique_ptr<Updater> make_host_updater(const OptimizerOptions& options,
                                           const ParameterTable& table,
                                           const UpdateArrays& arrays) {
  return std::make_unique<HostUpdater>(options, table, arrays);
}

}  // namespace lockstep::inline v0::model
