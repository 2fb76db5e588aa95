#include "apps/lockstep/data_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "apps/lockstep/data_inspect_source.h"
#include "apps/lockstep/data_progress.h"
#include "apps/lockstep/data_verify.h"
#include "apps/lockstep/value_extent.h"
#include "lockstep/base/error.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/source/dataset_json.h"
#include "lockstep/data/source/example_decoder.h"

namespace lockstep::apps {
namespace {

constexpr std::int64_t kProgressEvery = 1000;
constexpr const char* kUsualClassName = "image/class/text";
constexpr std::array<const char*, 2> kUsualLabels = {"image/class/label", "label"};

/// What has been seen of one feature under one kind.
struct FeatureSummary {
  std::int64_t records = 0;
  ValueExtent<std::size_t> values;   // in a record
  ValueExtent<std::size_t> lengths;  // of bytes values
  ValueExtent<std::int64_t> integers;
  ValueExtent<float> floats;
  std::string_view image_kind;  // of the first value that is an encoded image

  void add(const data::Feature& feature) {
    ++records;
    std::visit([this](const auto& list) { add_list(list); }, feature);
  }

  std::string range_text(data::FeatureKind kind) const {
    switch (kind) {
      case data::FeatureKind::bytes:
        return fmt::format("{} bytes{}{}", lengths.text(), image_kind.empty() ? "" : ", ", image_kind);
      case data::FeatureKind::int64s:
        return integers.text();
      case data::FeatureKind::floats:
        return floats.text();
      case data::FeatureKind::missing:
        break;
    }
    return "-";
  }

 private:
  void add_list(const std::monostate&) { values.add(0); }
  void add_list(const data::BytesList& list) {
    values.add(list.size());
    for (const std::string& value : list) {
      lengths.add(value.size());
      if (image_kind.empty()) image_kind = data::encoded_image_kind(value).value_or("");
    }
  }
  void add_list(const data::Int64List& list) {
    values.add(list.size());
    for (const std::int64_t value : list) integers.add(value);
  }
  void add_list(const data::FloatList& list) {
    values.add(list.size());
    for (const float value : list) floats.add(value);
  }
};

class Inspection {
 public:
  explicit Inspection(const InspectOptions& options) : options_(options) {}

  void read_file(const std::filesystem::path& path) {
    take_described_names(path.parent_path());
    data::TFRecordReader reader(path);
    DataProgress progress(path.filename().string(), 0);
    ValueExtent<std::size_t> lengths;
    std::string_view record;
    std::int64_t records = 0;
    while ((options_.records == 0 || records < options_.records) && reader.next(record)) {
      lengths.add(record.size());
      add_record(record, reader);
      if (++records % kProgressEvery == 0) progress.show(records);
    }
    records_ += records;
    fmt::print("{}: {} records of {} bytes, compression {}\n", path.string(), records, lengths.text(),
               data::compression_name(reader.compression()));
  }

  void print_features() const {
    fmt::print("\nfeatures of {} records\n", records_);
    fmt::print("  {:<24}{:<9}{:>10}  {:<16}{}\n", "name", "kind", "records", "values in each", "range");
    for (const auto& [key, summary] : features_) {
      fmt::print("  {:<24}{:<9}{:>10}  {:<16}{}\n", key.first, data::feature_kind_name(key.second), summary.records,
                 summary.values.text(), summary.range_text(key.second));
    }
  }

  void print_labels() const {
    for (const auto& [name, counts] : labels_) {
      const auto names = class_names_.find(name);
      print_label_counts(name, counts, names == class_names_.end() ? ClassNames() : names->second);
    }
  }

 private:
  using ClassNames = std::map<std::int64_t, std::string>;

  void take_described_names(const std::filesystem::path& directory) {
    const auto parts = data::read_dataset_json(directory);
    if (!parts) return;
    for (const auto& [part, description] : *parts)
      for (const std::string& name : description.class_names) {
        ClassNames& names = class_names_[description.label_feature];
        if (names.size() < description.class_names.size()) names.emplace(names.size(), name);
      }
  }

  /// The name that images have beside their class.
  void take_name(const data::Example& example, const std::string& label_feature, std::int64_t label) {
    const auto text = example.find(kUsualClassName);
    if (label_feature != kUsualLabels[0] || text == example.end()) return;
    const auto* names = std::get_if<data::BytesList>(&text->second);
    if (names != nullptr && names->size() == 1) class_names_[label_feature].try_emplace(label, names->front());
  }

  void add_record(std::string_view record, const data::TFRecordReader& reader) {
    const data::Example example = parse(record, reader);
    for (const auto& [name, feature] : example) {
      features_[{name, static_cast<data::FeatureKind>(feature.index())}].add(feature);
      const auto* integers = std::get_if<data::Int64List>(&feature);
      if (integers == nullptr || integers->size() != 1 || !is_label(name)) continue;
      ++labels_[name][integers->front()];
      take_name(example, name, integers->front());
    }
  }

  static data::Example parse(std::string_view record, const data::TFRecordReader& reader) {
    try {
      return data::parse_example(record);
    } catch (const data::MalformedExample& error) {
      throw Error(ErrorCategory::data, reader.location().text(), "needed a tf.train.Example", error.what());
    }
  }

  bool is_label(const std::string& name) const {
    if (!options_.label_feature.empty()) return name == options_.label_feature;
    return std::find(kUsualLabels.begin(), kUsualLabels.end(), name) != kUsualLabels.end();
  }

  const InspectOptions& options_;
  std::int64_t records_ = 0;
  std::map<std::pair<std::string, data::FeatureKind>, FeatureSummary> features_;
  std::map<std::string, std::map<std::int64_t, std::int64_t>> labels_;
  std::map<std::string, ClassNames> class_names_;  // of each label feature
};

}  // namespace

void inspect_data(const InspectOptions& options) {
  std::vector<std::string> files = options.files;
  const auto sources = std::stable_partition(
      files.begin(), files.end(), [](const std::string& argument) { return !is_inspected_by_source(argument); });
  for (auto source = sources; source != files.end(); ++source) inspect_source(*source, options.records);
  files.erase(sources, files.end());
  if (files.empty()) return;
  Inspection inspection(options);
  for (const auto& file : files_of(files)) inspection.read_file(file);
  inspection.print_features();
  inspection.print_labels();
}

}  // namespace lockstep::apps
