#include "lockstep/train/input/check_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::train {
namespace {

/// Returns advice on resizing the images of `dataset`, which are used as stored, to a network's
/// input of `shape`; empty for other data.
std::string resizing_text(const data::Dataset& dataset, const model::Shape& shape) {
  const data::SourceInfo& info = dataset.source().info();
  if (!info.has_encoded_images || dataset.preparation() != info.preparation || shape.size() != 3)
    return "";
  return shape == model::Shape({224, 224, 3})
             ? ", or --images imagenet, which resizes images to 224 x 224"
             : fmt::format(
                   ": train with --image-size N, which resizes all images to N x N, or "
                   "resize them to {} x {}",
                   shape[0], shape[1]);
}

[[noreturn]] void refuse(const data::Dataset& dataset, const std::string& expected,
                         const std::string& actual) {
  throw Error(ErrorCategory::data, dataset.description(), expected, actual);
}

/// "image [8, 8, 3], table [5]"
std::string list_of(const std::vector<data::TensorSpec>& tensors) {
  std::vector<std::string> texts;
  for (const data::TensorSpec& tensor : tensors) texts.push_back(to_string(tensor));
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

/// Returns the tensor called `name`, or the only one if `is_only`; null if there is none.
const data::TensorSpec* find(const std::vector<data::TensorSpec>& tensors, const std::string& name,
                             bool is_only) {
  if (tensors.empty()) return nullptr;
  if (name.empty() || (is_only && tensors.size() == 1)) return &tensors.front();
  const auto found = std::ranges::find(tensors, name, &data::TensorSpec::name);
  return found == tensors.end() ? nullptr : &*found;
}

void check_inputs(const data::Dataset& dataset, const model::Network& network) {
  const std::vector<data::TensorSpec>& inputs = dataset.spec().inputs;
  std::vector<data::TensorSpec> expected;
  for (const model::NetworkInput& input : network.inputs())
    expected.push_back({.name = input.name, .type = input.type, .shape = input.shape});
  const bool is_only = expected.size() == 1;
  for (const data::TensorSpec& input : expected) {
    const data::TensorSpec* found = find(inputs, input.name, is_only);
    if (found != nullptr) data::check_fixed_sizes({found, 1}, dataset.description());
    const bool has_type =
        found != nullptr && (found->type == input.type ||
                             (found->type == ElementType::uint8 && found == &inputs.front() &&
                              input.type == ElementType::float32));
    const bool has_shape = found != nullptr && (found->shape == input.shape ||
                                                (input.shape.empty() && found->elements() == 1));
    if (has_type && has_shape) continue;
    if (has_type && is_only && inputs.size() == 1)
      refuse(dataset,
             fmt::format("expected samples of shape {}, the input of model {}{}",
                         model::to_string(input.shape), network.name(),
                         resizing_text(dataset, input.shape)),
             fmt::format("got {}", model::to_string(found->shape)));
    refuse(dataset,
           fmt::format("expected {} {} of model {}", is_only ? "the input" : "inputs",
                       list_of(expected), network.name()),
           fmt::format("got {}", list_of(inputs)));
  }
}

/// Returns advice for an output with a row per position if the data has one target per sample.
std::string flatten_text(const model::Shape& output, std::int64_t expected) {
  if (output.size() < 2 || output.back() != expected) return "";
  return fmt::format(
      "; the output is {}, a row for each position: add a flatten layer before the dense layers",
      model::to_string(output));
}

/// Checks that there is a class number for each row of an output of this shape.
void check_positions(const data::Dataset& dataset, const model::Network& network,
                     const data::TensorSpec& target, const model::Shape& output) {
  const model::Shape positions(output.begin(), output.end() - (output.empty() ? 0 : 1));
  const std::int64_t rows = model::element_count(positions);
  if (rows == 1 ? target.elements() == 1 : target.shape == positions) return;
  refuse(dataset,
         rows == 1
             ? fmt::format("expected one class number per sample for the output {} of model {}",
                           model::to_string(output), network.name())
             : fmt::format("expected class numbers {}, one at each position of the output {} "
                           "of model {}",
                           model::to_string(positions), model::to_string(output), network.name()),
         fmt::format("got {} {}{}", target.name, model::to_string(target.shape),
                     flatten_text(output, target.classes)));
}

/// Checks the target that a loss reads.
void check_target(const data::Dataset& dataset, const model::Network& network,
                  const model::LossTerm& term, bool is_only, DataUse use) {
  const model::Loss& loss = term.loss;
  const data::SourceInfo& info = dataset.source().info();
  const std::vector<data::TensorSpec>& targets = dataset.spec().targets;
  const data::TensorSpec* target = find(targets, term.target, is_only);
  const model::NetworkOutput& output = network.outputs()[term.output];
  if (target == nullptr && !targets.empty())
    refuse(dataset,
           fmt::format("expected a target {} for the output {} of model {}", term.target,
                       output.name, network.name()),
           fmt::format("got {}", list_of(targets)));
  if (target != nullptr) data::check_fixed_sizes({target, 1}, dataset.description());
  const bool is_first = targets.empty() || target == &targets.front();
  const std::int64_t classes = target == nullptr ? 0 : target->classes;
  const std::int64_t values =
      target == nullptr || target->type != ElementType::float32 ? 0 : target->elements();
  const model::Shape& shape = network.shape(output.node);
  const std::int64_t outputs = model::row_width(loss, shape);
  const std::string model_text =
      is_only ? fmt::format("the outputs of model {}", network.name())
              : fmt::format("the output {} of model {}", output.name, network.name());
  if (std::holds_alternative<model::SparseCategoricalCrossentropy>(loss)) {
    if (classes == 0)
      refuse(dataset, fmt::format("expected class labels for {}", model::to_string(loss)),
             values == 0 ? "the data set has none"
             : is_only ? "the data set has targets, which are for losses such as mean-squared-error"
                       : "got the values " + to_string(*target));
    check_positions(dataset, network, *target, shape);
    if (use == DataUse::training && classes == 1) {
      const auto names = is_first ? info.class_names : std::vector<std::string>();
      refuse(dataset, "expected at least 2 classes to train on (of images, a folder for each)",
             names.empty() ? "all records have the same class"
                           : fmt::format("there is only {}", names.front()));
    }
    const bool may_lack_classes = use == DataUse::evaluation && classes < outputs && is_first &&
                                  (info.counts_classes || !info.class_names.empty());
    if (classes != outputs && !may_lack_classes)
      refuse(dataset, fmt::format("expected {} classes, {}", outputs, model_text),
             fmt::format("got {} classes", classes));
  } else if (std::holds_alternative<model::CustomLossPointer>(loss)) {
    return;  // a custom loss validates its own targets
  } else if (classes > 0 && std::holds_alternative<model::BinaryCrossentropy>(loss)) {
    if (classes > 2 || outputs != 1)
      refuse(dataset,
             fmt::format("expected 2 classes and a network with 1 output for {}, or targets",
                         model::to_string(loss)),
             fmt::format("got {} classes, and model {} has {}{}", classes, network.name(),
                         counted(outputs, "output"), flatten_text(network.shape(output.node), 1)));
  } else if (values != outputs) {
    refuse(dataset,
           fmt::format("expected {} targets per sample for {}, {}", outputs, model::to_string(loss),
                       model_text),
           classes > 0 ? "the data set has class labels; targets= selects columns of a table"
                       : fmt::format("got {} targets{}", values,
                                     flatten_text(network.shape(output.node), values)));
  }
}

}  // namespace

void check_data_fits(const data::Dataset& dataset, const model::Network& network,
                     const model::TotalLoss& loss, DataUse use) {
  if (dataset.global_batch() == 0)
    throw Error(ErrorCategory::input, "data", "expected a batched data set",
                "batch() was not called");
  if (dataset.size() == 0) refuse(dataset, "expected at least one record", "the data set is empty");
  check_inputs(dataset, network);
  if (dataset.mixup_alpha() > 0 &&
      !std::holds_alternative<model::SparseCategoricalCrossentropy>(loss[0].loss))
    throw Error(ErrorCategory::input, "mixup", "expected cross-entropy as the loss",
                fmt::format("got {}", to_string(loss[0].loss)));
  if (use != DataUse::training && dataset.mixup_alpha() > 0)
    throw Error(ErrorCategory::input, "data",
                "expected unmixed samples for evaluation or prediction", "the data set uses mixup");
  if (use != DataUse::training && dataset.shard_policy() != data::ShardPolicy::automatic)
    throw Error(ErrorCategory::input, "data",
                "expected each record once for evaluation or prediction",
                fmt::format("the shard policy is {}", to_string(dataset.shard_policy())));
  if (use == DataUse::prediction) return;
  for (const model::LossTerm& term : loss.terms())
    check_target(dataset, network, term, loss.terms().size() == 1, use);
}

std::string describe_plan(const data::Dataset& dataset) {
  const data::SampleSpec& spec = dataset.spec();
  const std::string labels = spec.classes() > 0
                                 ? fmt::format("in {} classes", spec.classes())
                                 : fmt::format("with {} targets", spec.target_count());
  const std::string samples = spec.is_single()
                                  ? fmt::format("{} {}", model::to_string(spec.shape()), labels)
                                  : data::to_string(spec);
  const std::uint64_t identity = dataset.source().info().identity;
  const auto allowed = dataset.bad_records_allowed();
  return fmt::format(
      "global batch: {}\ndata: {} records of {}{}\nhash of the names of files: {}\n"
      "bad records: {}\n",
      dataset.global_batch(), dataset.size(), samples, dataset.preparation(),
      identity == 0 ? "none" : fmt::format("{:016x}", identity),
      allowed ? fmt::format("up to {}", *allowed) : "none");
}

}  // namespace lockstep::inline v0::train
