#include "lockstep/strategy/fit/data_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/model/tensor.h"

namespace lockstep::strategy {

void check_data_fits(const data::Dataset& dataset, const model::Network& network,
                     const model::Loss& loss, DataUse use) {
  const auto refuse = [&](const std::string& expected, const std::string& actual) {
    throw Error(ErrorCategory::data, dataset.description(), expected, actual);
  };
  if (dataset.global_batch() == 0)
    throw Error(ErrorCategory::input, "data", "expected a batched data set",
                "batch() was not called");
  if (dataset.size() == 0) refuse("expected at least one record", "the data set is empty");
  const data::SampleSpec& spec = dataset.spec();
  if (spec.shape != network.input_shape())
    refuse(fmt::format("expected samples of shape {}, the input of model {}",
                       model::to_string(network.input_shape()), network.name()),
           fmt::format("got {}", model::to_string(spec.shape)));
  if (use != DataUse::training && dataset.mixup_alpha() > 0)
    throw Error(ErrorCategory::input, "data",
                "expected unmixed samples for evaluation or prediction", "the data set uses mixup");
  if (use != DataUse::training &&
      (dataset.shard_policy() != data::ShardPolicy::automatic || dataset.bad_records_allowed()))
    throw Error(ErrorCategory::input, "data",
                "expected each record once for evaluation or prediction",
                dataset.bad_records_allowed()
                    ? "bad records may be skipped"
                    : fmt::format("the shard policy is {}", to_string(dataset.shard_policy())));
  if (use == DataUse::prediction) return;
  const std::int64_t outputs = model::element_count(network.output_shape());
  if (std::holds_alternative<model::SparseCategoricalCrossentropy>(loss)) {
    if (spec.classes == 0)
      refuse(fmt::format("expected class labels for {}", model::to_string(loss)),
             "the data set has none");
    if (use == DataUse::evaluation ? spec.classes > outputs : spec.classes != outputs)
      refuse(fmt::format("expected {} classes, the outputs of model {}", outputs, network.name()),
             fmt::format("got {} classes", spec.classes));
  } else if (spec.targets != outputs) {
    refuse(fmt::format("expected {} targets per sample for {}, the outputs of model {}", outputs,
                       model::to_string(loss), network.name()),
           spec.targets == 0 ? "the data set has class labels"
                             : fmt::format("got {} targets", spec.targets));
  }
}

void check_same_classes(const data::Dataset& training, const data::Dataset& validation) {
  const auto names = training.source().class_names();
  const auto others = validation.source().class_names();
  if (names.empty() || others.empty() || names == others) return;
  throw Error(ErrorCategory::data, validation.description(),
              fmt::format("expected the classes of the training data, {}", fmt::join(names, ", ")),
              fmt::format("got {}", fmt::join(others, ", ")));
}

std::string describe_plan(const data::Dataset& dataset) {
  const data::SampleSpec& spec = dataset.spec();
  const std::string labels = spec.classes > 0 ? fmt::format("in {} classes", spec.classes)
                                              : fmt::format("with {} targets", spec.targets);
  return fmt::format("{} records of {} {}{}, global batch {}", dataset.size(),
                     model::to_string(spec.shape), labels, dataset.preparation(),
                     dataset.global_batch());
}

}  // namespace lockstep::strategy
