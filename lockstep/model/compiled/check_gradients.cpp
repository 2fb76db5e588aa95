#include "lockstep/model/compiled/check_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layer/custom_layer.h"
#include "lockstep/model/loss/batch_view.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Numbers from -1 to below 1.
std::vector<float> random_numbers(std::size_t count, std::uint64_t seed, std::string_view purpose) {
  const Philox generator(random_key(seed, purpose));
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i)
    numbers[i] = 2 * to_unit_float(generator.block(0, i)[0]) - 1;
  return numbers;
}

std::vector<std::int32_t> random_indices(std::size_t count, std::int64_t limit, std::uint64_t seed,
                                         std::string_view purpose) {
  const Philox generator(random_key(seed, purpose));
  std::vector<std::int32_t> indices(count);
  for (std::size_t i = 0; i < count; ++i)
    indices[i] = static_cast<std::int32_t>(generator.block(0, i)[0] % limit);
  return indices;
}

/// Values, and the gradients of the loss with respect to them.
struct CheckedArray {
  std::string name;
  std::span<float> values;
  std::vector<float> gradients;
};

double largest_of(const CheckedArray& array) {
  double largest = 0;
  for (const float gradient : array.gradients)
    largest = std::max(largest, std::abs(static_cast<double>(gradient)));  // a NaN is ignored
  return largest;
}

/// Throws the Error of check_gradients(). `loss` computes the loss of the values as they are.
void compare(std::string_view where, std::span<CheckedArray> arrays,
             const std::function<double()>& loss, const GradientCheck& check) {
  constexpr double kRounding = 1e-6;
  const auto loss_with = [&](float& value, float changed) {
    const float kept = std::exchange(value, changed);
    const double result = loss();
    value = kept;
    return result;
  };
  double largest = 0;
  for (const CheckedArray& array : arrays) largest = std::max(largest, largest_of(array));
  for (const CheckedArray& array : arrays) {
    const double scale = std::max(largest_of(array), check.floor * largest);
    const auto limit = static_cast<std::size_t>(std::max<std::int64_t>(1, check.elements));
    const std::size_t stride = (array.values.size() + limit - 1) / limit;
    for (std::size_t i = 0; i < array.values.size(); i += stride) {
      const auto difference_over = [&](float step) {
        const float up = array.values[i] + step;
        const float down = array.values[i] - step;
        return (loss_with(array.values[i], up) - loss_with(array.values[i], down)) /
               (static_cast<double>(up) - static_cast<double>(down));
      };
      const auto fits = [&](double difference) {
        return std::abs(static_cast<double>(array.gradients[i]) - difference) <=
               check.tolerance * scale + kRounding;
      };
      const double difference = difference_over(check.step);
      if (!fits(difference) && !fits(difference_over(check.step / 8)) &&
          !fits(difference_over(check.step / 64)))
        throw Error(ErrorCategory::input, where,
                    fmt::format("expected element {} of the gradient of {} to be {:.6g}, the "
                                "central difference of the loss",
                                i, array.name, difference),
                    fmt::format("got {:.6g} from the backward pass", array.gradients[i]));
    }
  }
}

/// The identity, plus a parameter of the shape of the batch, whose gradient is that of the input of
/// each sample.
class InputProbe final : public CustomLayer {
 public:
  explicit InputProbe(std::int64_t samples) : samples_(samples) {}
  std::string kind() const override { return "input"; }
  Shape build(BuildContext& context) const override {
    Shape batch = context.input();
    batch.insert(batch.begin(), samples_);
    context.parameter("value", std::move(batch), {.kind = Initializer::Kind::constant}, false);
    return context.input();
  }
  void forward(const Tensors& t, const PassContext& /*pass*/) const override {
    for (std::size_t i = 0; i < t.output.size(); ++i)
      t.output[i] = t.inputs[0][i] + t.parameters[0][i];
  }
  void backward(const Tensors& t, const PassContext& /*pass*/) const override {
    std::ranges::copy(t.output_gradient, t.parameter_gradients[0].begin());
    if (!t.input_gradients[0].empty())
      std::ranges::copy(t.output_gradient, t.input_gradients[0].begin());
  }

 private:
  std::int64_t samples_;
};

/// The number of values of the int32 input `input`, by the layers that read it.
std::int64_t index_count(const Network& network, NodeId input) {
  constexpr std::int64_t kAny = 5;  // for layers that do not state it
  std::int64_t count = std::numeric_limits<std::int64_t>::max();
  for (const Node& node : network.nodes())
    if (const auto index = node.layer->index_input(node.inputs.size());
        index && node.inputs[*index] == input && node.layer->traits().index_count > 0)
      count = std::min(count, node.layer->traits().index_count);
  return count == std::numeric_limits<std::int64_t>::max() ? kAny : count;
}

/// A network on the CPU with a batch of random inputs and targets.
class Trial {
 public:
  Trial(const Network& network, const GradientCheck& check)
      : samples_(check.samples),
        model_(std::make_shared<const Network>(network), device::Device{}, allocator_),
        targets_(random_numbers(elements(network.output_shape()), check.seed, "targets")) {
    constexpr float kChange = 0.25F;
    model_.initialize(check.seed);
    const std::span<float> parameters = model_.parameters();
    const std::vector<float> changes = random_numbers(parameters.size(), check.seed, "parameters");
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] += kChange * changes[i];
    model_.parameters_changed();
    NodeId id = kInput;
    for (const NetworkInput& input : network.inputs()) {
      if (input.type == ElementType::int32)
        indices_.push_back(random_indices(elements(input.shape), index_count(network, id),
                                          check.seed, input.name));
      else
        features_.push_back(random_numbers(elements(input.shape), check.seed, input.name));
      --id;
    }
    std::size_t feature = 0;
    std::size_t index = 0;
    for (const NetworkInput& input : network.inputs())
      if (input.type == ElementType::int32)
        inputs_.push_back({.indices = indices_[index++]});
      else
        inputs_.push_back({.features = features_[feature++]});
  }

  /// The loss of a training pass, which writes the gradients.
  double train() {
    return model_
        .train_batch({.samples = samples_, .targets = {.values = targets_}, .inputs = inputs_},
                     {.global_samples = samples_}, MeanSquaredError{})
        .loss();
  }

  /// The trained parameters, with their gradients.
  std::vector<CheckedArray> arrays() {
    train();  // leaves numbers in the memory that the next pass has to write
    std::ranges::fill(model_.gradients(), kNan);
    train();
    std::vector<CheckedArray> all;
    for (const ParameterInfo& entry : model_.trained_table().entries()) {
      const std::span<float> gradients = ParameterTable::slice(model_.gradients(), entry);
      all.push_back({.name = entry.name,
                     .values = ParameterTable::slice(model_.parameters(), entry),
                     .gradients = {gradients.begin(), gradients.end()}});
    }
    return all;
  }

 private:
  std::size_t elements(const Shape& shape) const {
    return static_cast<std::size_t>(samples_ * element_count(shape));
  }

  device::HostAllocator allocator_;
  std::int64_t samples_;
  CompiledModel model_;
  std::vector<float> targets_;
  std::vector<std::vector<float>> features_;
  std::vector<std::vector<std::int32_t>> indices_;
  std::vector<InputView> inputs_;
};

/// Limits the kernels of this thread to one thread: more do not pay off for such small networks.
class OneThread {
 public:
  OneThread() { set_thread_budget(1); }
  ~OneThread() { set_thread_budget(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = thread_budget();
};

}  // namespace

void check_gradients(const Network& network, const GradientCheck& check) {
  const OneThread one;
  Trial trial(network, check);
  std::vector<CheckedArray> arrays = trial.arrays();
  compare(
      network.name(), arrays, [&] { return trial.train(); }, check);
}

void check_gradients(const Layer& layer, const std::vector<Shape>& inputs,
                     const GradientCheck& check) {
  const auto index = layer.index_input(inputs.size());
  std::vector<NetworkInput> read;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    read.push_back({.name = fmt::format("input {}", i),
                    .shape = inputs[i],
                    .type = index == i ? ElementType::int32 : ElementType::float32});
  Network network(read, layer.kind());
  std::vector<NodeId> nodes;
  for (std::size_t i = 0; i < read.size(); ++i) {
    const NodeId id = network.input(read[i].name);
    nodes.push_back(index == i ? id : network.add(InputProbe(check.samples), {id}, read[i].name));
  }
  // The network lives as long as this call, and does not own the layer.
  network.add_node(std::shared_ptr<const Layer>(std::shared_ptr<void>(), &layer), nodes,
                   layer.kind());
  const OneThread one;
  Trial trial(network, check);
  std::vector<CheckedArray> arrays = trial.arrays();
  for (CheckedArray& array : arrays)
    if (const std::string_view probe = "/value";
        array.name.starts_with("input ") && array.name.ends_with(probe))
      array.name.erase(array.name.size() - probe.size());
  compare(
      layer.kind(), arrays, [&] { return trial.train(); }, check);
}

void check_gradients(const Loss& loss, std::int64_t width, const GradientCheck& check) {
  const auto samples = static_cast<std::size_t>(check.samples);
  const std::size_t count = samples * static_cast<std::size_t>(width);
  const std::vector<float> outputs = random_numbers(count, check.seed, "outputs");
  std::vector<float> values = random_numbers(count, check.seed, "targets");
  std::vector<std::int32_t> labels;
  if (activation_of(loss) == "softmax")
    labels = random_indices(samples, width, check.seed, "labels");
  else if (activation_of(loss) == "sigmoid")
    for (float& value : values) value = value < 0 ? 0 : 1;
  check_gradients(loss, outputs,
                  labels.empty() ? Targets{.values = values} : Targets{.labels = labels}, check);
}

void check_gradients(const Loss& loss, std::span<const float> outputs, const Targets& targets,
                     const GradientCheck& check) {
  std::vector<float> values(outputs.begin(), outputs.end());
  std::vector<CheckedArray> arrays = {
      {.name = "the outputs", .values = values, .gradients = std::vector(values.size(), kNan)}};
  compute_loss(loss, values, check.samples, targets, 1, arrays.front().gradients);
  compare(
      name_of(loss), arrays,
      [&] { return compute_loss(loss, values, check.samples, targets, 1, {}).loss_sum; }, check);
}

}  // namespace lockstep::inline v0::model
