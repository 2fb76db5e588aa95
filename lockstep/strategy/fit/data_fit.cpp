#include "lockstep/strategy/fit/data_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/data/order/batch_plan.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/text/text_schema.h"
#include "lockstep/job/agreement.h"
#include "lockstep/model/tensor.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::strategy {
namespace {

constexpr const char* kClassesKey = "class_names";
constexpr const char* kFeaturesKey = "feature_names";
constexpr const char* kTargetsKey = "target_names";
constexpr const char* kTargetKey = "named_target";
constexpr const char* kTableKey = "table_schema";
constexpr const char* kTextKey = "text_schema";

/// What makes images of `dataset`, which are used as stored, fit a network's input of `shape`;
/// empty for other data.
std::string resizing_text(const data::Dataset& dataset, const model::Shape& shape) {
  if (!dataset.source().info().has_encoded_images ||
      dataset.preparation() != dataset.source().info().preparation || shape.size() != 3)
    return "";
  return shape == model::Shape({224, 224, 3})
             ? ", or --images imagenet, which resizes images to 224 x 224"
             : fmt::format(
                   ": resize the images to {} x {}, or train with --image-size N, which "
                   "resizes all images",
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

/// The one called `name`, or the only one if `is_only`, whatever its name; null if there is none.
const data::TensorSpec* find(const std::vector<data::TensorSpec>& tensors, const std::string& name,
                             bool is_only) {
  if (tensors.empty()) return nullptr;
  if (name.empty() || (is_only && tensors.size() == 1)) return &tensors.front();
  const auto found = std::ranges::find(tensors, name, &data::TensorSpec::name);
  return found == tensors.end() ? nullptr : &*found;
}

void check_inputs(const data::Dataset& dataset, const model::Network& network) {
  const std::vector<data::TensorSpec>& given = dataset.spec().inputs;
  std::vector<data::TensorSpec> expected;
  for (const model::NetworkInput& input : network.inputs())
    expected.push_back({.name = input.name, .type = input.type, .shape = input.shape});
  const bool is_only = expected.size() == 1;
  for (const data::TensorSpec& input : expected) {
    const data::TensorSpec* found = find(given, input.name, is_only);
    if (found != nullptr) data::check_fixed_sizes({found, 1}, dataset.description());
    const bool has_type =
        found != nullptr && (found->type == input.type ||
                             (found->type == ElementType::uint8 && found == &given.front() &&
                              input.type == ElementType::float32));
    const bool has_shape = found != nullptr && (found->shape == input.shape ||
                                                (input.shape.empty() && found->elements() == 1));
    if (has_type && has_shape) continue;
    if (has_type && is_only && given.size() == 1)
      refuse(dataset,
             fmt::format("expected samples of shape {}, the input of model {}{}",
                         model::to_string(input.shape), network.name(),
                         resizing_text(dataset, input.shape)),
             fmt::format("got {}", model::to_string(found->shape)));
    refuse(dataset,
           fmt::format("expected {} {} of model {}", is_only ? "the input" : "inputs",
                       list_of(expected), network.name()),
           fmt::format("got {}", list_of(given)));
  }
}

/// Advice for an output that is one row per position where the data has one answer per sample.
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
  const std::string of_model =
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
      const auto names =
          is_first ? dataset.source().info().class_names : std::vector<std::string>();
      refuse(dataset, "expected at least 2 classes to train on (of images, a folder for each)",
             names.empty() ? "all records have the same class"
                           : fmt::format("there is only {}", names.front()));
    }
    const bool may_lack_classes =
        use == DataUse::evaluation && classes < outputs && is_first &&
        (dataset.source().info().counts_classes || !dataset.source().info().class_names.empty());
    if (classes != outputs && !may_lack_classes)
      refuse(dataset, fmt::format("expected {} classes, {}", outputs, of_model),
             fmt::format("got {} classes", classes));
  } else if (std::holds_alternative<model::CustomLossPointer>(loss)) {
    return;  // it compares what it likes
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
                       of_model),
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

std::string output_of_classes(const model::Network& network, const model::TotalLoss& loss,
                              const DataNames& names) {
  if (loss.terms().size() == 1) return {};
  for (const model::LossTerm& term : loss.terms())
    if (term.target == names.target) return network.outputs()[term.output].name;
  return "/";  // not in a name
}

DataNames DataNames::of(const data::Dataset& dataset) {
  const std::vector<data::TensorSpec>& all_targets = dataset.spec().targets;
  return {.classes = dataset.source().info().class_names,
          .features = dataset.source().info().feature_names,
          .targets = dataset.source().info().target_names,
          .table = dataset.source().info().table,
          .target = all_targets.empty() ? "" : all_targets.front().name,
          .text = dataset.source().info().text};
}

DataNames DataNames::of(const checkpoint::Configuration& configuration) {
  // A program may have used the same keys for something else.
  const auto names = [&](const char* key) -> std::vector<std::string> {
    const nlohmann::json value = configuration->value(key, nlohmann::json());
    const bool is_list = value.is_array() && std::ranges::all_of(value, [](const auto& name) {
                           return name.is_string();
                         });
    return is_list ? value.get<std::vector<std::string>>() : std::vector<std::string>();
  };
  const nlohmann::json target = configuration->value(kTargetKey, nlohmann::json());
  std::shared_ptr<const data::TableSchema> table;
  if (const auto stored = configuration->find(kTableKey); stored != configuration->end())
    table = std::make_shared<const data::TableSchema>(
        data::TableSchema::from_checkpoint(*stored, kTableKey));
  std::shared_ptr<const data::TextSchema> text;
  if (const auto stored = configuration->find(kTextKey); stored != configuration->end())
    text = std::make_shared<const data::TextSchema>(
        data::TextSchema::from_checkpoint(*stored, kTextKey));
  return {.classes = names(kClassesKey),
          .features = names(kFeaturesKey),
          .targets = names(kTargetsKey),
          .table = std::move(table),
          .target = target.is_string() ? target.get<std::string>() : "",
          .text = std::move(text)};
}

DataNames DataNames::of(const checkpoint::TrainingState& state) {
  DataNames names = of(state.configuration);
  if (names.text && state.tokenizer) {
    data::TextSchema text = *names.text;
    text.adopt(state.tokenizer);
    names.text = std::make_shared<const data::TextSchema>(std::move(text));
  }
  return names;
}

void DataNames::add_to(checkpoint::Configuration& configuration) const {
  if (!classes.empty()) (*configuration)[kClassesKey] = classes;
  if (!features.empty()) (*configuration)[kFeaturesKey] = features;
  if (!targets.empty()) (*configuration)[kTargetsKey] = targets;
  if (table) (*configuration)[kTableKey] = table->to_json();
  if (!target.empty() && !(classes.empty() && targets.empty()))
    (*configuration)[kTargetKey] = target;
  if (text) (*configuration)[kTextKey] = text->to_json();
}

void note_tokenizer(const Strategy& strategy, const data::TextSchema& text) {
  if (!strategy.is_chief()) return;
  if (const std::string reason = text.why_content(); !reason.empty())
    strategy.session().logger()->info("using the tokenizer in the checkpoint: {}", reason);
}

void check_same_features(const data::Dataset& dataset, const DataNames& trained) {
  if (const auto text = dataset.source().info().text;
      trained.text && text && !trained.text->agrees_with(*text))
    throw Error(ErrorCategory::data, dataset.description(),
                fmt::format("expected the tokenizer of the training data, {} with the hash {}",
                            trained.text->name(), trained.text->hash),
                fmt::format("got {} with the hash {}", text->name(), text->hash));
  const auto names = dataset.source().info().feature_names;
  const auto other = data::different_feature(trained.features, names);
  if (!other) {
    const auto table = dataset.source().info().table;
    if (trained.table && table && !trained.table->agrees_with(*table))
      throw Error(ErrorCategory::data, dataset.description(),
                  "expected a table that is read with the schema of the training data "
                  "(CsvOptions::schema, or like= the training table)",
                  "got one that is scaled or cut into windows otherwise, or numbers its values "
                  "otherwise");
    if (!trained.table && !trained.features.empty() && table && !table->preparation().empty())
      throw Error(ErrorCategory::data, dataset.description(),
                  "expected numbers as stored, as in the training (scale=none)", "got scaled ones");
    return;
  }
  throw Error(ErrorCategory::data, dataset.description(),
              fmt::format("expected the features of the training data, number {} of which is {}; "
                          "select the columns of a table with columns=, in the order of the "
                          "training, and read words like= the training table",
                          *other + 1, trained.features[*other]),
              fmt::format("got {}", names[*other]));
}

data::Dataset matched(const data::Dataset& dataset, const DataNames& trained) {
  check_same_features(dataset, trained);
  const auto targets = dataset.source().info().target_names;
  if (const auto other = data::different_feature(trained.targets, targets))
    throw Error(
        ErrorCategory::data, dataset.description(),
        fmt::format("expected the targets of the training data, number {} of which is {}; select "
                    "the columns of a table with targets=, in the order of the training",
                    *other + 1, trained.targets[*other]),
        fmt::format("got {}", targets[*other]));
  const auto names = dataset.source().info().class_names;
  if (names.empty() || trained.classes.empty() || names == trained.classes) return dataset;
  return dataset.with_classes(trained.classes);
}

std::string other_names(const data::Dataset& dataset, const std::filesystem::path& file,
                        bool with_classes) {
  const std::filesystem::path state =
      (file.extension() == ".safetensors" ? file.parent_path() : file) / checkpoint::kStateFile;
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(state, unknown)) return {};
  DataNames names;
  try {
    names = DataNames::of(
        checkpoint::parse_training_state(checkpoint::read_small_file(state), state.string()));
  } catch (const Error&) {
    return {};
  }
  try {
    check_same_features(dataset, names);
  } catch (const Error& error) {
    return error.what();
  }
  const auto classes = dataset.source().info().class_names;
  const auto other = data::different_feature(names.classes, classes);
  if (!other || !with_classes) return {};
  return fmt::format("class {} was {} in their training, and is {}", *other, names.classes[*other],
                     classes[*other]);
}

std::string class_warning(const data::Dataset& dataset, std::int64_t outputs,
                          std::int32_t highest_label) {
  const data::SampleSpec& spec = dataset.spec();
  if (spec.classes() == 0 || !spec.targets.front().shape.empty() || highest_label + 1 >= outputs ||
      (spec.classes() == outputs && !dataset.source().info().counts_classes))
    return "";
  return fmt::format(
      "the labels of {} go up to {}, and the model has {} outputs: if these are not {} of its "
      "classes, the metrics have no meaning",
      dataset.description(), highest_label, outputs, highest_label + 1);
}

namespace {

/// Mean and deviation of one column.
struct ColumnScale {
  std::string name;
  double sum = 0;
  double squares = 0;
  std::int64_t records = 0;

  void add(double value) {
    sum += value;
    squares += value * value;
    ++records;
  }
  double mean() const { return sum / static_cast<double>(records); }
  double deviation() const {
    return std::sqrt(std::max(0.0, squares / static_cast<double>(records) - mean() * mean()));
  }
  bool is_far() const {
    constexpr double kFar = 10;
    constexpr double kNear = 1e-3;
    if (records == 0) return false;
    return std::abs(mean()) > kFar || deviation() > kFar ||
           (deviation() > 0 && deviation() < kNear);
  }
};

/// The scales of all features, those of the rows of a window as one, then of all targets.
std::vector<ColumnScale> scales_of(const data::RecordSource& source) {
  const data::SampleSpec& spec = source.spec();
  data::Batch one(spec);
  data::Sample sample = one.sample();
  const std::span<const float> features = sample.features();
  const std::span<const float> targets = sample.values();
  std::vector<ColumnScale> columns;
  for (const std::string& name : source.info().feature_names) columns.push_back({.name = name});
  const std::size_t width = columns.size();
  const auto target_names = source.info().target_names;
  for (std::size_t i = 0; i < targets.size(); ++i)
    columns.push_back(
        {.name = i < target_names.size() ? target_names[i] : fmt::format("target {}", i + 1)});
  constexpr std::int64_t kMaxRecords = 1000;
  const std::int64_t records = std::min(source.size(), kMaxRecords);
  for (std::int64_t i = 0; i < records; ++i) {
    try {
      source.read(i * source.size() / records, sample);
    } catch (const std::exception&) {
      continue;  // reported when it is needed
    }
    for (std::size_t j = 0; j < features.size(); ++j)
      columns[j % width].add(static_cast<double>(features[j]));
    for (std::size_t j = 0; j < targets.size(); ++j)
      columns[width + j].add(static_cast<double>(targets[j]));
  }
  return columns;
}

}  // namespace

std::string scale_warning(const data::Dataset& dataset) {
  const data::RecordSource& source = dataset.source();
  if (source.info().feature_names.empty() || source.info().has_images ||
      dataset.preparation() != source.info().preparation)
    return "";
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> named;
  std::size_t more = 0;
  for (const ColumnScale& column : scales_of(source)) {
    if (!column.is_far()) continue;
    if (named.size() == kNamed)
      ++more;
    else
      named.push_back(fmt::format("{} (mean {:.4g}, deviation {:.4g})", column.name, column.mean(),
                                  column.deviation()));
  }
  if (named.empty()) return "";
  return fmt::format(
      "{}: columns are far from unit scale, with which a training is slow or diverges: {}{}; "
      "standardize them: (x - mean) / deviation, in every table with the mean and the deviation of "
      "the training data",
      dataset.description(), fmt::join(named, ", "),
      more > 0 ? fmt::format(" and {} more", more) : "");
}

std::string length_warning(const data::Dataset& dataset) {
  constexpr std::int64_t kLong = 4096;
  constexpr std::int64_t kFew = 16;
  const auto text = dataset.source().info().text;
  if (!text || text->length < kLong || dataset.size() >= kFew) return "";
  return fmt::format(
      "{}: there {} only {} of {} tokens each; length= is the number of tokens of a sample, with "
      "whose square the time of attention grows",
      dataset.description(), dataset.size() == 1 ? "is" : "are", counted(dataset.size(), "sample"),
      text->length);
}

void warn_of_scales(const Strategy& strategy, const data::Dataset& dataset) {
  if (!strategy.is_chief()) return;
  const std::string warning = scale_warning(dataset);
  if (!warning.empty()) strategy.session().logger()->warn(warning);
  const std::string of_length = length_warning(dataset);
  if (!of_length.empty()) strategy.session().logger()->warn(of_length);
}

void report_table(const Strategy& strategy, const data::Dataset& dataset,
                  const data::TableSchema* trained) {
  const auto table = dataset.source().info().table;
  if (!strategy.is_chief() || !table) return;
  const auto logger = strategy.session().logger();
  logger->info("{}: {}", dataset.description(), table->summary(trained));
  if (const std::string statistics = table->statistics(); trained == nullptr && !statistics.empty())
    logger->info("standardized columns: {}", statistics);
  for (const std::string& warning : table->warnings(trained)) logger->warn(warning);
}

namespace {

/// "age" of a table, otherwise "number 3 of 4".
std::string column_text(std::size_t index, std::size_t count,
                        const std::vector<std::string>& names) {
  const bool has_names = !names.empty() && count % names.size() == 0;  // once a row of a window
  return has_names ? names[index % names.size()] : fmt::format("number {} of {}", index + 1, count);
}

/// "record 17", or its file and number there if they are known.
std::string record_text(const data::RecordSource& source, std::int64_t record_id) {
  std::int64_t first = 0;
  for (const data::StoredFile& file : source.info().files) {
    if (record_id < first + file.records)
      return fmt::format("{}: record {}", file.name, record_id - first);
    first += file.records;
  }
  return fmt::format("record {}", record_id);
}

}  // namespace

std::string not_finite_text(const data::RecordSource& source,
                            const std::vector<data::Batch>& parts) {
  for (const data::Batch& part : parts) {
    const auto text_of = [&](const data::TensorArray& array, const std::string& what,
                             const std::vector<std::string>& names) -> std::string {
      if (array.type != ElementType::float32) return "";
      const std::span<const float> values = array.as<float>();
      const auto wrong = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
      if (wrong == values.end()) return "";
      const std::size_t count = values.size() / part.record_ids.size();
      const auto at = static_cast<std::size_t>(wrong - values.begin());
      return fmt::format("{}{} has {} in the {} {}",
                         record_text(source, part.record_ids[at / count]),
                         part.partner_labels.empty() ? "" : ", or the record mixed into it,",
                         std::isnan(*wrong) ? std::abs(*wrong) : *wrong, what,
                         column_text(at % count, count, names));
    };
    const auto text_of_all = [&](const std::vector<data::TensorArray>& arrays,
                                 const std::string& what, const std::vector<std::string>& names) {
      std::string text;
      for (std::size_t i = 0; text.empty() && i < arrays.size(); ++i)
        text = i == 0 ? text_of(arrays[i], what, names) : text_of(arrays[i], arrays[i].name, {});
      return text;
    };
    std::string text = text_of_all(part.inputs, "feature", source.info().feature_names);
    if (text.empty()) text = text_of_all(part.targets, "target", source.info().target_names);
    if (!text.empty()) return text;
  }
  return "";
}

namespace {

/// The class numbers of each class among `records`.
std::vector<std::int64_t> count_labels(const data::Dataset& dataset, data::Range records,
                                       const std::function<void()>& tick) {
  const data::RecordSource& source = dataset.source();
  data::Batch batch(source.spec());
  data::Sample sample = batch.sample();
  data::StoredImage undecoded;  // only the label is needed
  sample.image = source.info().has_encoded_images ? &undecoded : nullptr;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(source.spec().classes()));
  for (std::int64_t record = records.begin; record < records.end; ++record) {
    tick();
    try {
      source.read(record, sample);
    } catch (const data::RecordError&) {
      if (!dataset.bad_records_allowed()) throw;
      continue;
    }
    for (const std::int32_t label : sample.targets.front().as<std::int32_t>())
      if (label != kMasked) ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

}  // namespace

std::vector<float> balanced_class_weights(const Strategy& strategy, const data::Dataset& dataset) {
  const auto classes = static_cast<std::size_t>(dataset.spec().classes());
  if (classes == 0)
    throw Error(ErrorCategory::input, "class-weights", "expected class labels to balance",
                fmt::format("{} has targets", dataset.description()));
  const allreduce::Communicator& ranks = strategy.ranks();
  const auto tick = [&] {
    if (ranks.activity() != nullptr) ranks.activity()->tick();
  };
  std::vector<std::int64_t> counts;
  const auto count = [&]() -> std::string {
    counts = count_labels(dataset, data::split(dataset.size(), ranks.size(), ranks.rank()), tick);
    return {};
  };
  job::Agreement(ranks).all_or_none(ErrorCategory::data, dataset.description(),
                                    "expected every rank to read its labels", count,
                                    job::Agreement::Own::rethrown);
  ranks.all_reduce(std::span<std::int64_t>(counts)).wait();
  const auto records = static_cast<double>(std::accumulate(counts.begin(), counts.end(), 0LL));
  std::vector<float> weights;
  for (const std::int64_t records_of_class : counts)
    weights.push_back(records_of_class == 0
                          ? 0
                          : static_cast<float>(records / (static_cast<double>(classes) *
                                                          static_cast<double>(records_of_class))));
  return weights;
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

}  // namespace lockstep::strategy
