#include "lockstep/train/input/target_scale.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
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
  const bool is_absolute = std::holds_alternative<model::MeanAbsoluteError>(loss);
  const bool is_difference = is_absolute || std::holds_alternative<model::MeanSquaredError>(loss) ||
                             std::holds_alternative<model::Huber>(loss);
  if (!is_difference || network.has_named_outputs() || network.outputs().size() != 1) return false;
  const auto deviation = static_cast<float>(scale.deviation);
  const float factor = is_absolute ? 1 / deviation : 1 / (deviation * deviation);
  if (!std::isnormal(factor)) return false;
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

}  // namespace lockstep::inline v0::train
