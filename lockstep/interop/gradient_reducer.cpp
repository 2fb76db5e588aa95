#include "lockstep/interop/gradient_reducer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lockstep/allreduce/buckets/layout.h"
#include "lockstep/base/error.h"
#include "lockstep/interop/check_together.h"
#include "lockstep/job/operator_settings.h"

namespace lockstep::inline v0::interop {
namespace {

constexpr std::int64_t kStepsUntilNamed = 100;

std::string passes_text(int passes) {
  return passes == 1 ? "one backward pass" : fmt::format("{} backward passes", passes);
}

}  // namespace

GradientReducer::GradientReducer(job::Workers& workers, std::vector<ParameterLayout> parameters,
                                 const ReducerOptions& options, device::Stream* compute,
                                 DeviceMath math, std::string where)
    : workers_(workers),
      where_(std::move(where)),
      parameters_(std::move(parameters)),
      options_(options),
      compute_(compute),
      observer_(workers.observer()),
      pass_has_(parameters_.size()),
      step_has_(parameters_.size()),
      counts_(kFlags + parameters_.size()),
      last_gradient_(parameters_.size()) {
  const bool has_math = math.float32 != nullptr;
  const bool on_gpu = workers_.device().kind == device::DeviceKind::gpu;
  GradientLayout layout;
  workers_.wait_pending();
  check_together(workers_, where_, [&] {
    check_options(options_);
    layout = make_gradient_layout(parameters_, options_);
    if (on_gpu && (compute == nullptr || !has_math))
      throw Error(ErrorCategory::input, where_,
                  "expected a stream and GradientMath of the GPU for gradients on " +
                      device::to_string(workers_.device()),
                  "got those of the host: gradients in host memory need Workers on the CPU");
    return to_string(options_);
  });
  allreduce::check_layout(workers_.group(), describe(parameters_));
  if (!has_math)
    math = {.float32 = std::make_unique<HostGradientMath<float>>(),
            .float64 = std::make_unique<HostGradientMath<double>>()};
  std::vector<std::size_t> begins = layout.begins;
  begins.push_back(layout.size);
  arrays_ = std::make_unique<GradientArrays>(workers_.group(), parameters_, std::move(layout),
                                             counts_.size(), std::move(math));
  const auto bucket_bytes =
      static_cast<std::size_t>(workers_.session().settings().bucket_bytes.value_or(
          static_cast<std::int64_t>(options_.bucket_bytes)));
  buckets_ = std::make_unique<allreduce::GradientBuckets>(
      workers_.group(), arrays_->with_scalars(), begins,
      allreduce::BucketOptions{
          .first_bytes = std::min(options_.first_bucket_bytes, bucket_bytes),
          .bytes = bucket_bytes,
          .wire = begins.back() > 0 ? options_.compression : allreduce::WireType::float32},
      /*exact_entries=*/1, compute, workers_.communication_thread());
  missing_ = arrays_->layout().counts;
  describe_buckets();
  workers_.activity().set_step(0);
  if (!observer_) return;
  std::vector<job::ObservedParameter> observed;
  for (const ParameterLayout& parameter : parameters_)
    observed.push_back({.name = parameter.name, .shape = parameter.shape});
  observed_as_ = observer_->add_reducer(std::move(observed));
}

void GradientReducer::describe_buckets() {
  std::vector<std::pair<std::size_t, std::string_view>> names;
  for (std::size_t parameter = parameters_.size(); parameter-- > 0;)
    if (!parameters_[parameter].is_float64)
      names.emplace_back(arrays_->layout().entries[parameter], parameters_[parameter].name);
  workers_.activity().describe_buckets(buckets_->contents(names));
}

bool GradientReducer::is_alone() const {
  return workers_.size() == 1 && options_.backward_passes_per_step == 1 &&
         options_.clip_norm == 0 && !options_.skip_non_finite && !observer_;
}

void GradientReducer::usage_error(const std::string& expected, const std::string& actual) {
  const Error error(ErrorCategory::input, where_, expected, actual);
  if (ends_group_on_misuse_) workers_.group().abort(error.what());
  throw error;
}

void GradientReducer::require_between_steps(std::string_view call) {
  if (!in_pass_ && passes_ == 0 && !reduced_) return;
  usage_error(fmt::format("expected step() before {}", call),
              fmt::format("{} was called after {}, whose gradients no step has used", call,
                          reduced_ ? "synchronize()" : "a backward pass"));
}

void GradientReducer::begin_pass(double samples, std::optional<bool> is_last) {
  if (!std::isfinite(samples) || samples < 0)
    usage_error("expected a number of samples of at least 0", fmt::format("got {}", samples));
  if (in_pass_)
    usage_error("expected one backward pass to end before the next begins", "two are open");
  if (reduced_) usage_error("expected step() after synchronize()", "another backward pass began");
  if (is_complete_)
    usage_error(
        fmt::format("expected step() after {} (backward_passes_per_step)", passes_text(passes_)),
        fmt::format("backward pass {} began before it", passes_ + 1));
  if (passes_ == 0) workers_.begin_step(steps_ + 1);
  is_last_ = is_last.value_or(is_last_pass());
  in_pass_ = true;
  std::fill(pass_has_.begin(), pass_has_.end(), false);
  given_samples_ += samples;
  pass_samples_ = options_.reduction == Reduction::average ? samples : std::min(samples, 1.0);
  rescale_to(pass_samples_);
  if (is_last_pass()) agree_on_samples();
}

// Stored gradients of earlier passes are means over another number of samples. Rescales them to the
// number of this pass.
void GradientReducer::rescale_to(double samples) {
  if (samples == 0) return;
  if (unit_ > 0 && unit_ != samples && options_.reduction == Reduction::average)
    arrays_->scale_all(unit_ / samples);
  unit_ = samples;
  weight_ += samples;
}

// Gradients are divided before the sum by the expected number of samples, which is that of the last
// step. The result is corrected afterwards if the actual number differs.
void GradientReducer::agree_on_samples() {
  if (expected_ > 0 || options_.reduction == Reduction::sum) return;
  auto total = static_cast<float>(weight_);
  workers_.all_reduce(std::span(&total, 1));
  expected_ = total;
}

double GradientReducer::factor_before() const {
  if (options_.reduction == Reduction::sum || expected_ == 0 || is_alone()) return 1;
  const double later =
      options_.predivide_factor == 0 ? 1 : options_.predivide_factor / workers_.size();
  return unit_ / expected_ / later;
}

double GradientReducer::factor_after() const {
  if (options_.reduction == Reduction::sum || samples() == 0 || is_alone()) return 1;
  const double later =
      options_.predivide_factor == 0 ? 1 : options_.predivide_factor / workers_.size();
  const double passes =
      options_.average_passes ? 1 : static_cast<double>(counts_[1]) / workers_.size();
  return passes * later * (expected_ == 0 ? 1 : expected_) / samples();
}

/// Throws Error (input) unless the parameter has no gradient in this pass yet. Returns its name.
const std::string& GradientReducer::expect_gradient(std::size_t parameter) {
  LOCKSTEP_CHECK_OP(parameter, <, parameters_.size());
  const std::string& name = parameters_[parameter].name;
  if (!in_pass_)
    usage_error("expected an open backward pass for a gradient",
                fmt::format("got one for {} outside a pass", name));
  if (pass_has_[parameter])
    usage_error("expected one gradient per parameter in a backward pass",
                fmt::format("{} got two", name));
  return name;
}

void GradientReducer::submit(std::size_t parameter, std::span<const float> values) {
  submit_values(parameter, values);
}

void GradientReducer::submit(std::size_t parameter, std::span<const double> values) {
  submit_values(parameter, values);
}

std::uint64_t GradientReducer::submit_hashed(std::size_t parameter, std::span<const float> values) {
  std::uint64_t hash = 0;
  submit_values(parameter, values, &hash);
  return hash;
}

std::uint64_t GradientReducer::submit_hashed(std::size_t parameter,
                                             std::span<const double> values) {
  std::uint64_t hash = 0;
  submit_values(parameter, values, &hash);
  return hash;
}

template <typename T>
void GradientReducer::submit_values(std::size_t parameter, std::span<const T> values,
                                    std::uint64_t* hash) {
  const std::string& name = expect_gradient(parameter);
  if (values.size() != parameters_[parameter].elements())
    usage_error(fmt::format("expected {} elements of {}", parameters_[parameter].elements(), name),
                fmt::format("its gradient has {}", values.size()));
  if (pass_samples_ == 0) {  // a mean over no samples, possibly NaN
    pass_has_[parameter] = true;
    if (is_last_pass()) complete_without(parameter);
    return;
  }
  const double factor = is_last_pass() ? factor_before() : 1;
  if (!is_alone() || hash != nullptr)
    arrays_->accumulate(parameter, values, step_has_[parameter], factor, hash);
  pass_has_[parameter] = step_has_[parameter] = true;
  if (is_last_pass()) complete(parameter);
}

void GradientReducer::submit_in_place(std::size_t parameter) {
  const std::string& name = expect_gradient(parameter);
  if (pass_samples_ == 0)
    usage_error("expected no gradient in a backward pass without samples",
                fmt::format("{} has one", name));
  pass_has_[parameter] = step_has_[parameter] = true;
  if (!is_last_pass()) return;
  arrays_->scale(parameter, factor_before());
  complete(parameter);
}

void GradientReducer::complete(std::size_t parameter) {
  // Before the reduction, which overwrites the gradient. Not on a GPU, where it would wait for
  // each.
  if (observer_) observe_gradient(parameter);
  if (options_.skip_non_finite && compute_ == nullptr && step_has_[parameter])
    is_own_finite_ = is_own_finite_ && std::isfinite(arrays_->squared_norm(parameter));
  const std::size_t entry = arrays_->layout().entries[parameter];
  if (entry == GradientLayout::kNoEntry) return;  // sum_wide_gradients() follows the buckets
  if (--missing_[entry] == 0) buckets_->ready(entry);
}

void GradientReducer::end_pass() {
  if (!in_pass_) usage_error("expected an open backward pass to end", "none is open");
  if (is_last_) complete_remaining(/*is_last_pass=*/true);
  is_complete_ = is_last_;
  in_pass_ = false;
  ++passes_;
}

void GradientReducer::complete_remaining(bool is_last_pass) {
  for (std::size_t parameter = parameters_.size(); parameter-- > 0;) {
    if (!is_last_pass || !pass_has_[parameter]) complete_without(parameter);
  }
}

// Completes a parameter that has no gradient in the last pass.
void GradientReducer::complete_without(std::size_t parameter) {
  if (step_has_[parameter])
    arrays_->scale(parameter, factor_before());
  else if (!is_alone())
    arrays_->clear(parameter);
  complete(parameter);
}

void GradientReducer::reduce() {
  if (in_pass_)
    usage_error("expected the end of the backward pass before step()", "it is still open");
  if (reduced_)
    usage_error("expected step() once after synchronize()", "synchronize() was called twice");
  if (passes_ == 0)
    usage_error("expected a backward pass before step()", "there was none since the last step");
  if (!is_complete_)
    usage_error(fmt::format("expected {} before step() (backward_passes_per_step)",
                            passes_text(options_.backward_passes_per_step)),
                fmt::format("there were {}; at the end of an epoch call flush() for a partial step",
                            passes_));
  finish();
}

bool GradientReducer::reduce_partial() {
  if (in_pass_)
    usage_error("expected the end of the backward pass before flush()", "it is still open");
  if (reduced_) usage_error("expected step() after synchronize()", "flush() was called before it");
  if (is_complete_)
    usage_error(
        fmt::format("expected step() after {} (backward_passes_per_step)", passes_text(passes_)),
        "flush() was called, which is for fewer");
  if (!workers_.any(passes_ > 0)) return false;
  agree_on_samples();
  complete_remaining(/*is_last_pass=*/false);
  finish();
  return true;
}

void GradientReducer::finish() {
  counts_[0] = static_cast<float>(weight_);
  counts_[1] = static_cast<float>(passes_);
  std::copy(step_has_.begin(), step_has_.end(), counts_.begin() + kFlags);
  arrays_->write_scalars(counts_);
  buckets_->ready(arrays_->layout().begins.size());
  buckets_->finish();
  sum_wide_gradients();
  arrays_->read_scalars(counts_);
  finish_average();
  if (observer_) observe_step();
  if (must_skip()) warn_of_skip();
  missing_ = arrays_->layout().counts;
  reduced_ = true;
}

// The thread of the buckets does not use the group between finish() and the next ready().
void GradientReducer::sum_wide_gradients() {
  const std::span<double> values = arrays_->wide();
  if (values.empty()) return;
  if (compute_ == nullptr) return workers_.all_reduce(values);
  workers_.group().all_reduce(values, allreduce::ReduceOp::sum, *compute_).wait(*compute_);
}

void GradientReducer::finish_average() {
  double factor = factor_after();
  if (options_.clip_norm > 0 || options_.skip_non_finite)
    gradient_norm_ = std::sqrt(arrays_->squared_norm()) * factor;
  if (options_.clip_norm > 0 && gradient_norm_ > options_.clip_norm)
    factor *= options_.clip_norm / gradient_norm_;
  arrays_->scale_all(factor);
  if (samples() > 0) expected_ = samples();
}

void GradientReducer::observe_gradient(std::size_t parameter) const {
  const double factor = options_.reduction == Reduction::sum ? 1
                        : weight_ == 0                       ? 0
                                                             : unit_ / weight_ / factor_before();
  if (parameters_[parameter].is_float64)
    observer_->on_gradient(observed_as_, parameter,
                           std::span<const double>(gradient<double>(parameter)), factor);
  else
    observer_->on_gradient(observed_as_, parameter, std::span<const float>(gradient(parameter)),
                           factor);
}

void GradientReducer::observe_step() {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter)
    if (parameters_[parameter].is_float64)
      observer_->on_reduced(observed_as_, parameter,
                            std::span<const double>(gradient<double>(parameter)));
    else
      observer_->on_reduced(observed_as_, parameter, std::span<const float>(gradient(parameter)));
  observer_->on_step(observed_as_, given_samples_);
}

// Names no rank if only the sum is not finite.
void GradientReducer::warn_of_skip() {
  const char mine = is_own_finite_ ? 0 : 1;
  std::vector<int> ranks;
  const auto all = workers_.all_gather(std::span(&mine, 1));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].front() != 0) ranks.push_back(static_cast<int>(rank));
  if (workers_.rank() == 0)
    workers_.session().logger()->warn(fmt::format("step {} skipped: non-finite gradient{}{}",
                                                  steps_ + 1, ranks.empty() ? "" : " on rank ",
                                                  fmt::join(ranks, ", ")));
}

void GradientReducer::applied() {
  if (!reduced_)
    usage_error("expected a backward pass before step()", "there was none since the last step");
  reduced_ = is_complete_ = false;
  is_own_finite_ = true;
  passes_ = 0;
  unit_ = weight_ = given_samples_ = 0;
  std::fill(step_has_.begin(), step_has_.end(), false);
  ++steps_;
  workers_.activity().set_step(steps_);
  workers_.end_step(steps_);
  warn_of_untrained();
}

void GradientReducer::warn_of_untrained() {
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter)
    if (has_gradient(parameter)) last_gradient_[parameter] = steps_;
  std::vector<std::string> names;
  for (std::size_t parameter = 0; parameter < parameters_.size(); ++parameter)
    if (steps_ - last_gradient_[parameter] == kStepsUntilNamed)
      names.push_back(parameters_[parameter].name);
  if (!names.empty() && workers_.rank() == 0)
    workers_.session().logger()->warn(
        fmt::format("no rank had a gradient of {} for {} steps: these parameters are not trained",
                    fmt::join(names, ", "), kStepsUntilNamed));
}

}  // namespace lockstep::inline v0::interop
