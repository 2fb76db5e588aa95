#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/float16.h"
#include "lockstep/model/backend.h"
#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"

namespace lockstep::model::cpu {
namespace {

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Saved from forward to backward: batch mean, batch variance, and the mask of a fused ReLU.
class BatchNormalizationOperation final : public Operation {
 public:
  BatchNormalizationOperation(Context& context, const BatchNormalizationSpec& spec)
      : spec_(spec), element_bytes_(memory::data_type_size(context.type)) {
    const memory::desc array = image(context.type, spec.rows, spec.channels, 1, 1);
    const memory::desc channels = vector(memory::data_type::f32, spec.channels);
    auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    if (spec.relu) flags |= dnnl::normalization_flags::fuse_norm_relu;
    if (spec.moving) flags |= dnnl::normalization_flags::use_global_stats;
    const auto kind =
        spec.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;

    const BatchNormalizationArrays arrays = {array, spec.epsilon, flags};
    const auto forward = describe_forward(context.engine, kind, arrays, user_scratchpad());
    const memory::desc workspace = forward.workspace_desc();
    workspace_bytes_ = workspace.get_size();
    std::vector<std::pair<int, memory::desc>> arguments = {
        {DNNL_ARG_SRC, array},         {DNNL_ARG_DST, array},      {DNNL_ARG_MEAN, channels},
        {DNNL_ARG_VARIANCE, channels}, {DNNL_ARG_SCALE, channels}, {DNNL_ARG_SHIFT, channels}};
    if (workspace_bytes_ > 0) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace);
    forward_ = Primitive(context, dnnl::batch_normalization_forward(forward), arguments,
                         forward.scratchpad_desc());
    if (!spec.training) return;

    const auto backward = describe_backward(context.engine, arrays, user_scratchpad(), forward);
    arguments = {{DNNL_ARG_SRC, array},           {DNNL_ARG_MEAN, channels},
                 {DNNL_ARG_VARIANCE, channels},   {DNNL_ARG_SCALE, channels},
                 {DNNL_ARG_DIFF_DST, array},      {DNNL_ARG_DIFF_SRC, array},
                 {DNNL_ARG_DIFF_SCALE, channels}, {DNNL_ARG_DIFF_SHIFT, channels}};
    if (batch_normalization_backward_takes_shift())
      arguments.emplace_back(DNNL_ARG_SHIFT, channels);
    if (workspace_bytes_ > 0) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace);
    backward_ = Primitive(context, dnnl::batch_normalization_backward(backward), arguments,
                          backward.scratchpad_desc());
  }

  Needs needs() const override {
    // The gradients of gamma and beta always require the gradient of the input to be computed; if
    // it is not needed, it goes to scratch.
    return {
        .inputs_in_backward = true,
        .output_in_backward = false,
        .skips_frozen = true,
        .saved_bytes = spec_.training ? 2 * statistic_bytes() + workspace_bytes_ : 0,
        .scratch_bytes = round_up(std::max(forward_.scratch_bytes(), backward_.scratch_bytes())) +
                         (spec_.training ? round_up(array_bytes()) + 2 * statistic_bytes() : 0)};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    float* mean = mean_of(t);
    float* variance = variance_of(t);
    forward_.place(DNNL_ARG_SRC, t.inputs[0]);
    forward_.place(DNNL_ARG_DST, t.output);
    forward_.place(DNNL_ARG_MEAN, mean);
    forward_.place(DNNL_ARG_VARIANCE, variance);
    forward_.place(DNNL_ARG_SCALE, t.parameters[0]);
    forward_.place(DNNL_ARG_SHIFT, t.parameters[1]);
    if (workspace_bytes_ > 0)
      forward_.place(DNNL_ARG_WORKSPACE, t.saved.data() + 2 * statistic_bytes());
    forward_.run(t.scratch);
    if (!spec_.moving && !pass.recomputing) update_moving_statistics(t, mean, variance);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const std::size_t own = round_up(std::max(forward_.scratch_bytes(), backward_.scratch_bytes()));
    const bool wanted = !t.input_gradients[0].empty();
    backward_.place(DNNL_ARG_SRC, t.inputs[0]);
    backward_.place(DNNL_ARG_MEAN, mean_of(t));
    backward_.place(DNNL_ARG_VARIANCE, variance_of(t));
    backward_.place(DNNL_ARG_SCALE, t.parameters[0]);
    if (batch_normalization_backward_takes_shift())
      backward_.place(DNNL_ARG_SHIFT, t.parameters[1]);
    backward_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
    backward_.place(DNNL_ARG_DIFF_SRC, wanted
                                           ? static_cast<const void*>(t.input_gradients[0].data())
                                           : static_cast<const void*>(t.scratch.data() + own));
    std::byte* const unread = t.scratch.data() + own + round_up(array_bytes());
    backward_.place(DNNL_ARG_DIFF_SCALE, gradient_of(t, 0, unread));
    backward_.place(DNNL_ARG_DIFF_SHIFT, gradient_of(t, 1, unread + statistic_bytes()));
    if (workspace_bytes_ > 0)
      backward_.place(DNNL_ARG_WORKSPACE, t.saved.data() + 2 * statistic_bytes());
    backward_.run(t.scratch);
  }

 private:
  std::size_t statistic_bytes() const {
    return round_up(static_cast<std::size_t>(spec_.channels) * sizeof(float));
  }
  std::size_t array_bytes() const {
    return static_cast<std::size_t>(spec_.rows * spec_.channels) * element_bytes_;
  }
  float* mean_of(const Operands& t) const {
    return spec_.moving ? t.buffers[0].data() : reinterpret_cast<float*>(t.saved.data());
  }
  float* variance_of(const Operands& t) const {
    return spec_.moving ? t.buffers[1].data()
                        : reinterpret_cast<float*>(t.saved.data() + statistic_bytes());
  }
  // Where the gradient of a parameter goes: to `unread` if it is frozen.
  static float* gradient_of(const Operands& t, std::size_t parameter, std::byte* unread) {
    const std::span<float> gradient = t.parameter_gradients[parameter];
    return gradient.empty() ? reinterpret_cast<float*>(unread) : gradient.data();
  }

  void update_moving_statistics(const Operands& t, const float* mean, const float* variance) const {
    const auto rows = static_cast<float>(spec_.rows);
    const float bessel = spec_.rows > 1 ? rows / (rows - 1) : 1.0f;
    for (std::size_t c = 0; c < t.buffers[0].size(); ++c) {
      t.buffers[0][c] += (1 - spec_.momentum) * (mean[c] - t.buffers[0][c]);
      t.buffers[1][c] += (1 - spec_.momentum) * (bessel * variance[c] - t.buffers[1][c]);
    }
  }

  BatchNormalizationSpec spec_;
  std::size_t element_bytes_;
  Primitive forward_;
  Primitive backward_;
  std::size_t workspace_bytes_ = 0;
};

// Rows that are summed before they are merged: rounding errors grow with this number, not with the
// number of rows.
constexpr std::size_t kRowsAtOnce = 128;

// Some rows of an array as float32: in place, or a copy.
std::span<const float> read_rows(const TensorView& array, std::size_t begin, std::size_t count,
                                 std::vector<float>& room) {
  if (array.type() == Precision::float32) return array.as<float>().subspan(begin, count);
  widen(array.as<BFloat16>().subspan(begin, count), std::span(room).first(count));
  return std::span(room).first(count);
}

// In training, with statistics synchronized across replicas. Saved from forward to backward: mean
// and inverse deviation of each channel, and the total count.
class SynchronizedBatchNormalization final : public Operation {
 public:
  SynchronizedBatchNormalization(const BatchNormalizationSpec& spec, StatisticsExchange& exchange)
      : spec_(spec),
        exchange_(exchange),
        rows_(static_cast<std::size_t>(spec.rows)),
        channels_(static_cast<std::size_t>(spec.channels)),
        layout_{channels_, static_cast<std::size_t>(exchange.members())},
        values_(kRowsAtOnce * channels_),
        gradients_(values_.size()),
        results_(values_.size()),
        sums_(2 * channels_) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .saves_once = true,
            .saved_bytes = (2 * channels_ + 1) * sizeof(float),
            .scratch_bytes = std::max(layout_.size(), 2 * channels_) * sizeof(float)};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    if (!pass.recomputing) {
      const std::span<float> moments = shared_array(t, layout_.size());
      write_own_moments(t.inputs[0], moments);
      share_moments(t, moments);
    }
    each_rows([&](std::size_t begin, std::size_t rows) { normalize(t, begin, rows); });
  }

  void forward_without_samples(const Operands& t) override {
    share_moments(t, shared_array(t, layout_.size()));
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const std::span<float> sums = shared_array(t, 2 * channels_);
    each_rows([&](std::size_t begin, std::size_t rows) { add_gradients(t, begin, rows, sums); });
    std::ranges::copy(sums.first(channels_), t.parameter_gradients[1].begin());
    std::ranges::copy(sums.last(channels_), t.parameter_gradients[0].begin());
    exchange_.sum(sums);
    if (t.input_gradients[0].empty()) return;
    each_rows(
        [&](std::size_t begin, std::size_t rows) { write_input_gradients(t, begin, rows, sums); });
  }

  void backward_without_samples(const Operands& t) override {
    exchange_.sum(shared_array(t, 2 * channels_));
  }

 private:
  struct Channels {
    const float* mean;
    const float* inverse;  // 1 / standard deviation
    const float* gamma;
    const float* beta;
  };

  Channels channels(const Operands& t) const {
    return {saved(t), saved(t) + channels_, t.parameters[0].data(), t.parameters[1].data()};
  }
  float* saved(const Operands& t) const { return reinterpret_cast<float*>(t.saved.data()); }
  float& count(const Operands& t) const { return saved(t)[2 * channels_]; }

  static std::span<float> shared_array(const Operands& t, std::size_t size) {
    const std::span<float> array(reinterpret_cast<float*>(t.scratch.data()), size);
    std::ranges::fill(array, 0.0F);
    return array;
  }

  template <typename Body>
  void each_rows(Body body) const {
    for (std::size_t row = 0; row < rows_; row += kRowsAtOnce)
      body(row * channels_, std::min(kRowsAtOnce, rows_ - row));
  }

  void write_own_moments(const TensorView& input, std::span<float> moments) {
    const auto me = static_cast<std::size_t>(exchange_.member());
    float* const means = &moments[layout_.mean(me, 0)];
    float* const squares = &moments[layout_.squares(me, 0)];
    float& count = moments[layout_.count(me)];
    each_rows([&](std::size_t begin, std::size_t rows) {
      sum_up(read_rows(input, begin, rows * channels_, values_), rows);
      const auto added = static_cast<float>(rows);
      for (std::size_t c = 0; c < channels_; ++c) {
        const BatchMoments both =
            combine({count, means[c], squares[c]}, {added, sums_[c], sums_[channels_ + c]});
        means[c] = both.mean;
        squares[c] = both.squares;
      }
      count += added;
    });
  }

  // Adds the means of some rows, then the squared distances from them, to sums_.
  void sum_up(std::span<const float> values, std::size_t rows) {
    std::ranges::fill(sums_, 0.0F);
    float* const means = sums_.data();
    float* const squares = means + channels_;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < channels_; ++c) means[c] += values[r * channels_ + c];
    for (std::size_t c = 0; c < channels_; ++c) means[c] /= static_cast<float>(rows);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < channels_; ++c) {
        const float distance = values[r * channels_ + c] - means[c];
        squares[c] += distance * distance;
      }
    }
  }

  void share_moments(const Operands& t, std::span<float> moments) const {
    exchange_.sum(moments);
    count(t) = layout_.together(moments.data(), 0).count;
    if (count(t) == 0) return;
    for (std::size_t c = 0; c < channels_; ++c) {
      const BatchMoments all = layout_.together(moments.data(), c);
      saved(t)[c] = all.mean;
      saved(t)[channels_ + c] = 1 / std::sqrt(biased_variance(all) + spec_.epsilon);
      t.buffers[0][c] = moved(t.buffers[0][c], all.mean, spec_.momentum);
      t.buffers[1][c] = moved(t.buffers[1][c], unbiased_variance(all), spec_.momentum);
    }
  }

  void normalize(const Operands& t, std::size_t begin, std::size_t rows) {
    const std::size_t elements = rows * channels_;
    const std::span<const float> values = read_rows(t.inputs[0], begin, elements, values_);
    const float least = spec_.relu ? 0.0F : -std::numeric_limits<float>::infinity();
    const Channels of = channels(t);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < channels_; ++c) {
        const float result =
            scaled(normalized(values[r * channels_ + c], of.mean[c], of.inverse[c]), of.gamma[c],
                   of.beta[c]);
        // Written so that NaN propagates.
        results_[r * channels_ + c] = result < least ? least : result;
      }
    }
    write_rows(t.output, begin, elements);
  }

  // Writes the part of the output's gradient that passes a fused ReLU to gradients_, and normalized
  // values to values_.
  void read_gradients(const Operands& t, std::size_t begin, std::size_t rows) {
    const std::size_t elements = rows * channels_;
    const std::span<const float> values = read_rows(t.inputs[0], begin, elements, values_);
    const std::span<const float> gradients =
        read_rows(t.output_gradient, begin, elements, gradients_);
    const Channels of = channels(t);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::size_t i = r * channels_ + c;
        const float normal = normalized(values[i], of.mean[c], of.inverse[c]);
        const bool passes = !spec_.relu || scaled(normal, of.gamma[c], of.beta[c]) > 0;
        gradients_[i] = passes ? gradients[i] : 0.0F;
        values_[i] = normal;
      }
    }
  }

  void add_gradients(const Operands& t, std::size_t begin, std::size_t rows,
                     std::span<float> sums) {
    read_gradients(t, begin, rows);
    std::ranges::fill(sums_, 0.0F);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::size_t i = r * channels_ + c;
        sums_[c] += gradients_[i];
        sums_[channels_ + c] += gradients_[i] * values_[i];
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += sums_[i];
  }

  void write_input_gradients(const Operands& t, std::size_t begin, std::size_t rows,
                             std::span<const float> sums) {
    read_gradients(t, begin, rows);
    const Channels of = channels(t);
    const float total = count(t);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::size_t i = r * channels_ + c;
        results_[i] = input_gradient(gradients_[i], values_[i], sums[c], sums[channels_ + c], total,
                                     of.gamma[c] * of.inverse[c]);
      }
    }
    write_rows(t.input_gradients[0], begin, rows * channels_);
  }

  void write_rows(const TensorView& array, std::size_t begin, std::size_t elements) const {
    const std::span<const float> results = std::span(results_).first(elements);
    if (array.type() == Precision::float32)
      std::ranges::copy(results, array.as<float>().begin() + static_cast<std::ptrdiff_t>(begin));
    else
      narrow(results, array.as<BFloat16>().subspan(begin, elements));
  }

  BatchNormalizationSpec spec_;
  StatisticsExchange& exchange_;
  std::size_t rows_;
  std::size_t channels_;
  MomentsLayout layout_;
  // Of the current rows.
  std::vector<float> values_;
  std::vector<float> gradients_;
  std::vector<float> results_;
  std::vector<float> sums_;
};

}  // namespace
}  // namespace lockstep::model::cpu

namespace lockstep::model {

std::unique_ptr<Operation> BatchNormalization::compile_cpu(const CompileContext& context,
                                                           cpu::Context& cpu) const {
  if (context.training && !context.frozen && cpu.statistics != nullptr)
    return std::make_unique<cpu::SynchronizedBatchNormalization>(spec(context), *cpu.statistics);
  return std::make_unique<cpu::BatchNormalizationOperation>(cpu, spec(context));
}

}  // namespace lockstep::model
