#include "lockstep/strategy/replica/local_updater.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/device/host_view.h"
#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::strategy {
namespace {

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
                           model::CompiledModel& model, const model::UpdateArrays& arrays,
                           std::function<void(std::span<float>)> sum)
    : Updater(options, arrays.average_decay),
      local_(local),
      model_(model),
      parameters_(arrays.parameters),
      sum_(std::move(sum)),
      inner_(inner_updater(options, model, arrays)),
      outer_(model.backend().updater(
          model::Sgd{.momentum = local.outer.momentum, .nesterov = local.outer.momentum > 0},
          without_groups(model.trained_table()), arrays)) {
  if (local.outer.momentum > 0) add_slot(kOuterMomentumSlot);
}

void LocalUpdater::begin_round() {
  start_.resize(1 + inner_->slot_names().size());
  const auto keep = [this](std::span<float> values, std::vector<float>& kept) {
    device::HostView view(values, model_.backend().stream());
    kept.assign(view.values().begin(), view.values().end());
  };
  keep(parameters_, start_[0]);
  for (std::size_t i = 1; i < start_.size(); ++i)
    keep(inner_->slot(inner_->slot_names()[i - 1]), start_[i]);
  sums_ = {};
  taken_ = 0;
}

void LocalUpdater::take_local_step(std::span<float> report) {
  model::Backend& backend = model_.backend();
  inner_->begin({.learning_rate = request_.learning_rate,
                 .update = request_.update + taken_++,
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

void LocalUpdater::end_local_steps(float weight) {
  weight_ = weight;
  device::Stream& stream = model_.backend().stream();
  device::HostView parameters(parameters_, stream);
  device::HostView gradients(model_.gradients(), stream);
  const std::span<float> now = parameters.values();
  const std::span<float> change = gradients.values();
  for (std::size_t i = 0; i < now.size(); ++i) change[i] = weight * (start_[0][i] - now[i]);
  std::ranges::copy(start_[0], now.begin());
  gradients.write_back(stream);
  parameters.write_back(stream);
  model_.parameters_changed();
}

void LocalUpdater::update(std::span<const float> summable) {
  device::Stream& stream = model_.backend().stream();
  std::array<float, model::SummableMetrics::kSize> sums{};
  device::copy(sums.data(), summable.data(), sizeof sums, stream);
  stream.synchronize();
  // Gradients of weighted samples are multiplied by this factor, but the change of the parameters
  // already contains that of each local step.
  const float factor = model::SummableMetrics::gradient_factor(sums.data());
  outer_->begin({.learning_rate = local_.outer.learning_rate,
                 .update = request_.update,
                 .loss_scale = factor > 0 ? factor : 1});
  outer_->update(summable);
  stream.synchronize();
  // Depends on sums over all replicas alone, so all of them average or none does.
  const bool applied = outer_->outcome().applied;
  for (std::size_t i = 1; i < start_.size(); ++i) {
    const std::span<float> slot = inner_->slot(inner_->slot_names()[i - 1]);
    device::HostView view(slot, stream);
    if (applied)
      for (float& value : view.values()) value *= weight_;
    else
      std::ranges::copy(start_[i], view.values().begin());
    view.write_back(stream);
    if (applied) sum_(slot);
  }
}

std::span<float> LocalUpdater::slot(std::size_t index) {
  const std::string& name = slot_names()[index];
  if (name == model::kAverageSlot) return outer_->slot(name);
  return name == kOuterMomentumSlot ? outer_->slot("momentum") : inner_->slot(name);
}

}  // namespace lockstep::inline v0::strategy
