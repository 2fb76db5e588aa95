#include "lockstep/model/layer/step_profile.h"

#include <algorithm>

#include "lockstep/base/enum_names.h"

namespace lockstep::inline v0::model {
namespace {

constexpr auto kParts = enum_names<Part>({{Part::forward, "forward"},
                                          {Part::statistics, "statistics"},
                                          {Part::backward, "backward"},
                                          {Part::gradient_sums, "gradient sums"},
                                          {Part::weight_gradient, "weight gradient"},
                                          {Part::data_gradient, "data gradient"},
                                          {Part::recomputation, "recomputation"}});

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double floor_milliseconds(const Work& work, const DeviceSpeed& speed) {
  const auto seconds = [](std::int64_t amount, double per_second) {
    return per_second > 0 ? static_cast<double>(amount) / per_second : 0;
  };
  return 1e3 * std::max(seconds(work.bytes, speed.bytes_per_second),
                        seconds(work.flop, speed.flop_per_second));
}

}  // namespace

std::string_view to_string(Part part) { return kParts.name(part); }

bool StepProfile::begin_step(std::int64_t samples, double input_seconds) {
  if (samples > samples_) {  // earlier measurements were not of a full batch
    samples_ = samples;
    pieces_.clear();
    piece_indices_.clear();
    step_seconds_.clear();
  }
  if (++begun_ <= kWarmUpSteps || samples < samples_ || steps() == kMaxSteps) return false;
  input_seconds_ = input_seconds;
  laps_.clear();
  end({}, {});
  return true;
}

void StepProfile::end(std::string_view name, const Work& work) {
  laps_.push_back({.end = stream_.record_timed(), .name = name, .work = work});
  layer_laps_ = laps_.size();
}

void StepProfile::end(Part part) {
  laps_.push_back({.end = stream_.record_timed(), .name = {}, .is_part = true, .part = part});
}

const Part* StepProfile::last_part() const {
  return laps_.size() == layer_laps_ ? nullptr : &laps_.back().part;
}

void StepProfile::end_layer(std::string_view layer, const std::function<Work(Part)>& work) {
  for (; layer_laps_ < laps_.size(); ++layer_laps_) {
    Lap& lap = laps_[layer_laps_];
    lap.name = layer;
    lap.work = work(lap.part);
  }
}

StepProfile::Piece& StepProfile::piece(const std::string& name) {
  const auto [found, is_new] = piece_indices_.try_emplace(name, pieces_.size());
  if (is_new) pieces_.push_back({.name = name, .step_seconds = {}});
  return pieces_[found->second];
}

void StepProfile::end_step() {
  laps_.push_back({.end = stream_.record_timed(), .name = {}});
  laps_.back().end.synchronize();
  for (Piece& piece : pieces_) {
    piece.work = {};
    piece.seconds = 0;
  }
  for (std::size_t i = 1; i + 1 < laps_.size(); ++i) {
    const Lap& lap = laps_[i];
    std::string name(lap.name);
    if (lap.is_part) name.append(" ").append(to_string(lap.part));
    Piece& lap_piece = piece(name);
    lap_piece.seconds += lap.end.seconds_since(laps_[i - 1].end);
    lap_piece.work += lap.work;
    lap_piece.work.algorithm = lap.work.algorithm;
    if (i == 1) lap_piece.seconds += input_seconds_;
  }
  for (Piece& piece : pieces_) piece.step_seconds.push_back(piece.seconds);
  step_seconds_.push_back(input_seconds_ + laps_.back().end.seconds_since(laps_.front().end));
}

Profile StepProfile::result(const DeviceSpeed& speed) const {
  Profile profile;
  profile.step = {.name = "step", .milliseconds = 1e3 * median(step_seconds_)};
  profile.steps = steps();
  profile.samples = samples_;
  profile.speed = speed;
  for (const Piece& piece : pieces_) {
    profile.pieces.push_back({.name = piece.name,
                              .milliseconds = 1e3 * median(piece.step_seconds),
                              .work = piece.work,
                              .floor_milliseconds = floor_milliseconds(piece.work, speed)});
    profile.step.work += piece.work;
    profile.step.floor_milliseconds += profile.pieces.back().floor_milliseconds;
  }
  return profile;
}

}  // namespace lockstep::inline v0::model
