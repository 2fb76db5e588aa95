#include "lockstep/train/input/data_names.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/data/sample/record_source.h"

namespace lockstep::inline v0::train {
namespace {

// Keys in a configuration.
constexpr const char* kTargetKey = "named_target";
constexpr const char* kTableKey = "table_schema";
constexpr const char* kTextKey = "text_schema";
constexpr struct {
  const char* key;
  std::vector<std::string> DataNames::*names;
} kLists[] = {{"class_names", &DataNames::classes},
              {"feature_names", &DataNames::features},
              {"target_names", &DataNames::targets}};

/// The schema that is stored as `key`; null if there is none.
template <typename Schema>
std::shared_ptr<const Schema> stored_schema(const checkpoint::Configuration& configuration,
                                            const char* key) {
  const auto stored = configuration->find(key);
  if (stored == configuration->end()) return nullptr;
  return std::make_shared<const Schema>(Schema::from_checkpoint(*stored, key));
}

}  // namespace

DataNames DataNames::of(const data::Dataset& dataset) {
  const data::SourceInfo& info = dataset.source().info();
  const std::vector<data::TensorSpec>& all_targets = dataset.spec().targets;
  return {.classes = info.class_names,
          .features = info.feature_names,
          .targets = info.target_names,
          .table = info.table,
          .target = all_targets.empty() ? "" : all_targets.front().name,
          .text = info.text};
}

DataNames DataNames::of(const checkpoint::Configuration& configuration) {
  DataNames stored;
  // A program may have used the same keys for something else.
  for (const auto& [key, names] : kLists) {
    const nlohmann::json value = configuration->value(key, nlohmann::json());
    if (value.is_array() &&
        std::ranges::all_of(value, [](const auto& name) { return name.is_string(); }))
      stored.*names = value.get<std::vector<std::string>>();
  }
  const nlohmann::json target = configuration->value(kTargetKey, nlohmann::json());
  if (target.is_string()) stored.target = target.get<std::string>();
  stored.table = stored_schema<data::TableSchema>(configuration, kTableKey);
  stored.text = stored_schema<data::TextSchema>(configuration, kTextKey);
  return stored;
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
  for (const auto& [key, names] : kLists)
    if (!(this->*names).empty()) (*configuration)[key] = this->*names;
  if (table) (*configuration)[kTableKey] = table->to_json();
  if (!target.empty() && !(classes.empty() && targets.empty()))
    (*configuration)[kTargetKey] = target;
  if (text) (*configuration)[kTextKey] = text->to_json();
}

std::optional<std::string> output_of_classes(const model::Network& network,
                                             const model::TotalLoss& loss, const DataNames& names) {
  if (loss.terms().size() == 1) return "";
  for (const model::LossTerm& term : loss.terms())
    if (term.target == names.target) return network.outputs()[term.output].name;
  return std::nullopt;
}

void check_same_features(const data::Dataset& dataset, const DataNames& trained) {
  const data::SourceInfo& info = dataset.source().info();
  if (trained.text && info.text && !trained.text->agrees_with(*info.text))
    throw Error(ErrorCategory::data, dataset.description(),
                fmt::format("expected the tokenizer of the training data, {} with the hash {}",
                            trained.text->name(), trained.text->hash),
                fmt::format("got {} with the hash {}", info.text->name(), info.text->hash));
  const auto other = data::different_feature(trained.features, info.feature_names);
  if (!other) {
    if (trained.table && info.table && !trained.table->agrees_with(*info.table))
      throw Error(ErrorCategory::data, dataset.description(),
                  "expected a table that is read with the schema of the training data "
                  "(CsvOptions::schema, or like= the training table)",
                  "got one that is scaled or cut into windows otherwise, or numbers its values "
                  "otherwise");
    if (!trained.table && !trained.features.empty() && info.table &&
        !info.table->preparation().empty())
      throw Error(ErrorCategory::data, dataset.description(),
                  "expected numbers as stored, as in the training (scale=none)", "got scaled ones");
    return;
  }
  throw Error(ErrorCategory::data, dataset.description(),
              fmt::format("expected the features of the training data, number {} of which is {}; "
                          "select the columns of a table with columns=, in the order of the "
                          "training, and read words like= the training table",
                          *other + 1, trained.features[*other]),
              fmt::format("got {}", info.feature_names[*other]));
}

data::Dataset matched(const data::Dataset& dataset, const DataNames& trained) {
  check_same_features(dataset, trained);
  const std::vector<std::string>& targets = dataset.source().info().target_names;
  if (const auto other = data::different_feature(trained.targets, targets))
    throw Error(
        ErrorCategory::data, dataset.description(),
        fmt::format("expected the targets of the training data, number {} of which is {}; select "
                    "the columns of a table with targets=, in the order of the training",
                    *other + 1, trained.targets[*other]),
        fmt::format("got {}", targets[*other]));
  const std::vector<std::string>& names = dataset.source().info().class_names;
  if (names.empty() || trained.classes.empty() || names == trained.classes) return dataset;
  return dataset.with_classes(trained.classes);
}

std::string describe_name_mismatch(const data::Dataset& dataset, const std::filesystem::path& file,
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
  const std::vector<std::string>& classes = dataset.source().info().class_names;
  const auto other = data::different_feature(names.classes, classes);
  if (!other || !with_classes) return {};
  return fmt::format("class {} was {} in their training, and is {}", *other, names.classes[*other],
                     classes[*other]);
}

}  // namespace lockstep::inline v0::train
