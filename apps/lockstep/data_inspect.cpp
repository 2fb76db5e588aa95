#include "apps/lockstep/data_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "apps/lockstep/data_progress.h"
#include "apps/lockstep/data_verify.h"
#include "data/record/example.h"
#include "data/record/tfrecord_reader.h"
#include "data/source/example_decoder.h"
#include "device/error.h"

namespace lockstep::apps {
namespace {

constexpr std::int64_t kProgressEvery = 1000;
constexpr std::array<const char*, 2> kUsualLabels = {"image/class/label", "label"};

/// The lowest and highest of some values.
template <typename T>
struct Extent {
  T lowest = std::numeric_limits<T>::max();
  T highest = std::numeric_limits<T>::lowest();

  void add(T value) {
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  std::string text() const {
    if (lowest > highest) return "-";
    return lowest == highest ? fmt::format("{}", lowest) : fmt::format("{} to {}", lowest, highest);
  }
};

/// What has been seen of one feature under one kind.
struct FeatureSummary {
  std::int64_t records = 0;
  Extent<std::size_t> values;   // in a record
  Extent<std::size_t> lengths;  // of bytes values
  Extent<std::int64_t> integers;
  Extent<float> floats;
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
    data::TFRecordReader reader(path);
    DataProgress progress(path.filename().string(), 0);
    Extent<std::size_t> lengths;
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
      fmt::print("\nrecords of each {}\n", name);
      for (const auto& [label, count] : counts) fmt::print("  {:<6}{:>10}\n", label, count);
    }
  }

 private:
  void add_record(std::string_view record, const data::TFRecordReader& reader) {
    const data::Example example = parse(record, reader);
    for (const auto& [name, feature] : example) {
      features_[{name, static_cast<data::FeatureKind>(feature.index())}].add(feature);
      const auto* integers = std::get_if<data::Int64List>(&feature);
      if (integers != nullptr && integers->size() == 1 && is_label(name)) ++labels_[name][integers->front()];
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
};

}  // namespace

void inspect_data(const InspectOptions& options) {
  Inspection inspection(options);
  for (const auto& file : files_of(options.files)) inspection.read_file(file);
  inspection.print_features();
  inspection.print_labels();
}

}  // namespace lockstep::apps
