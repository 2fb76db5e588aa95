#include "lockstep/train/input/target_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <variant>

#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/model/layers/elementwise/rescaling.h"

namespace lockstep::inline v0::train {

std::string TargetScale::text() const {
  return fmt::format("{} (mean {:.6g}, deviation {:.6g})", column, mean, deviation);
}

std::optional<TargetScale> target_scale(const data::Dataset& dataset) {
  const data::RecordSource& source = dataset.source();
  const auto& table = source.info().table;
  if (!table || table->targets.size() != 1 || source.size() == 0) return std::nullopt;
  data::Batch one(source.spec());
  data::Sample sample = one.sample();
  const auto for_targets = [&](auto use) {
    for (std::int64_t record = 0; record < source.size(); ++record) {
      source.read(record, sample);
      for (const float target : sample.values()) use(static_cast<double>(target));
    }
  };
  double sum = 0;
  double squares = 0;
  for_targets([&](double target) { sum += target; });
  const auto count = static_cast<double>(source.size() * source.spec().target_count());
  TargetScale scale = {.column = table->targets.front(), .mean = sum / count};
  for_targets([&](double target) { squares += (target - scale.mean) * (target - scale.mean); });
  if (squares > 0) scale.deviation = std::sqrt(squares / count);
  return scale;
}

bool scale_targets(const TargetScale& scale, const model::Loss& loss, model::Network& network) {
  const auto deviation = static_cast<float>(scale.deviation);
  // The largest gradient of the loss for an error of one deviation.
  float limit = 0;
  if (std::holds_alternative<model::MeanSquaredError>(loss))
    limit = deviation;
  else if (std::holds_alternative<model::MeanAbsoluteError>(loss))
    limit = 1;
  else if (const auto* const huber = std::get_if<model::Huber>(&loss))
    limit = std::min(deviation, huber->delta);
  const float factor = 1 / (deviation * limit);
  const auto outputs = network.outputs();
  if (!std::isnormal(factor) || network.has_named_outputs() || outputs.size() != 1 ||
      outputs.front().node < 0)
    return false;
  const std::string kind =
      network.nodes()[static_cast<std::size_t>(outputs.front().node)].layer->kind();
  if (kind != "dense" && kind != "add") return false;
  network.add(model::Rescaling(
      {.scale = deviation, .offset = static_cast<float>(scale.mean), .gradient_factor = factor}));
  return true;
}

bool has_scaled_targets(const model::Network& network) {
  const model::NodeId output = network.outputs().front().node;
  return output >= 0 &&
         dynamic_cast<const model::Rescaling*>(
             network.nodes()[static_cast<std::size_t>(output)].layer.get()) != nullptr;
}

nlohmann::json stored_scale(const nlohmann::json& configuration) {
  const nlohmann::json layers = configuration.value(
      nlohmann::json::json_pointer(fmt::format("/{}/description/layers", kNetworkKey)),
      nlohmann::json::array());
  if (!layers.is_array() || layers.empty()) return {};
  const nlohmann::json& last = layers.back();
  if (last.value("type", "") != model::RescalingFunction::kKind) return {};
  return {{"scale", last.value("scale", 1.0)}, {"offset", last.value("offset", 0.0)}};
}

}  // namespace lockstep::inline v0::train
