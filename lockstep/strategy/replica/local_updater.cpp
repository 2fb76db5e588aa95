#include "lockstep/strategy/replica/local_updater.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "lockstep/device/host_view.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::strategy {
namespace {

constexpr std::string_view kOuterMomentum = "outer_momentum";

// Settings of groups and weight decay belong to the optimizer of the local steps.
model::ParameterTable without_groups(const model::ParameterTable& table) {
  std::vector<model::ParameterInfo> entries(table.entries().begin(), table.entries().end());
  for (model::ParameterInfo& entry : entries) {
    entry.decay = false;
    entry.rate_factor = 1;
    entry.weight_decay.reset();
  }
  return model::ParameterTable(std::move(entries));
}

std::unique_ptr<model::Updater> inner_updater(const model::OptimizerOptions& options,
                                              model::CompiledModel& model,
                                              model::UpdateArrays arrays) {
  arrays.statistics = {};
  arrays.kept_statistics = {};
  arrays.average_decay = 0;
  return model.backend().updater(options, model.trained_table(), arrays);
}

}  // namespace

LocalUpdater::LocalUpdater(const model::OptimizerOptions& options, const LocalSteps& local,
                           model::CompiledModel& model, const model::UpdateArrays& arrays)
    : Updater(options, arrays.average_decay),
      local_(local),
      model_(model),
      parameters_(arrays.parameters),
      inner_(inner_updater(options, model, arrays)),
      outer_(model.backend().updater(
          model::Sgd{.momentum = local.outer.momentum, .nesterov = local.outer.momentum > 0},
          without_groups(model.trained_table()), arrays)) {
  if (local.outer.momentum > 0) add_slot(kOuterMomentum);
}

void LocalUpdater::begin(const model::UpdateRequest& request) {
  request_ = request;
  outer_->begin({.learning_rate = local_.outer.learning_rate, .update = request.update});
}

void LocalUpdater::begin_round() {
  device::HostView view(parameters_, model_.backend().stream());
  start_.assign(view.values().begin(), view.values().end());
  sums_ = {};
  taken_ = 0;
}

void LocalUpdater::take_local_step(std::span<float> report) {
  model::Backend& backend = model_.backend();
  inner_->begin({.learning_rate = request_.learning_rate,
                 .update = (request_.update - 1) * local_.steps.value_or(1) + ++taken_,
                 .clip_norm = request_.clip_norm});
  backend.write_sums(report);
  inner_->update(report);
  backend.fetch_sums();
  backend.stream().synchronize();
  model::MetricSums mine = backend.read_sums();
  const bool is_weightless = mine.samples > 0 && !(mine.weight_sum() > 0);
  if (!inner_->outcome().applied && !is_weightless)
    mine.loss_sum = std::numeric_limits<double>::quiet_NaN();
  sums_ += mine;
  backend.clear_sums();
}

void LocalUpdater::end_local_steps(float weight, const std::function<void(std::span<float>)>& sum) {
  device::Stream& stream = model_.backend().stream();
  device::HostView parameters(parameters_, stream);
  device::HostView gradients(model_.gradients(), stream);
  const std::span<float> now = parameters.values();
  const std::span<float> change = gradients.values();
  for (std::size_t i = 0; i < start_.size(); ++i) change[i] = weight * (start_[i] - now[i]);
  std::ranges::copy(start_, now.begin());
  gradients.write_back(stream);
  parameters.write_back(stream);
  model_.parameters_changed();
  for (const std::string& name : inner_->slot_names()) {
    device::HostView values(inner_->slot(name), stream);
    for (float& value : values.values()) value *= weight;
    values.write_back(stream);
    sum(inner_->slot(name));
  }
}

std::span<float> LocalUpdater::slot(std::size_t index) {
  const std::string& name = slot_names()[index];
  if (name == model::kAverageSlot) return outer_->slot(name);
  return name == kOuterMomentum ? outer_->slot("momentum") : inner_->slot(name);
}

}  // namespace lockstep::inline v0::strategy
