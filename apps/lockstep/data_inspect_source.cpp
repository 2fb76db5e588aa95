#include "apps/lockstep/data_inspect_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "apps/lockstep/data_progress.h"
#include "apps/lockstep/value_extent.h"
#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/source/csv_source.h"
#include "lockstep/data/source/dataset_json.h"
#include "lockstep/data/source/image_folder_source.h"

namespace lockstep::apps {
namespace {

constexpr std::int64_t kProgressEvery = 1000;

/// Sees the headers of encoded images.
class HeaderStep final : public data::ImageStep {
 public:
  void take_stored(std::span<const std::uint8_t> /*pixels*/, data::Sample& /*sample*/) override {}
  void take_encoded(std::span<const std::uint8_t> file, data::Sample& /*sample*/) override {
    const data::ImageHeader header = decoder_.open(file);
    ++(data::image_format_of(file) == data::ImageFormat::jpeg ? jpegs_ : pngs_);
    heights_.add(header.height);
    widths_.add(header.width);
    channels_.add(header.channels);
  }

  void print() const {
    fmt::print("  JPEG {}, PNG {}; height {}, width {}, channels {}\n", jpegs_, pngs_, heights_.text(), widths_.text(),
               channels_.text());
  }

 private:
  data::ImageDecoder decoder_;
  std::int64_t jpegs_ = 0;
  std::int64_t pngs_ = 0;
  ValueExtent<int> heights_;
  ValueExtent<int> widths_;
  ValueExtent<int> channels_;
};

/// The values of a data set, by column where it is a table.
class ValueSummary {
 public:
  explicit ValueSummary(const data::RecordSource& source) : is_image_(source.has_images()) {
    const auto* table = dynamic_cast<const data::CsvSource*>(&source);
    if (table != nullptr) names_ = table->feature_names();
    extents_.resize(std::max<std::size_t>(names_.size(), 1));
    targets_.resize(static_cast<std::size_t>(source.spec().targets));
  }

  void add(const data::Sample& sample) {
    for (std::size_t i = 0; i < sample.features.size(); ++i) extents_[names_.empty() ? 0 : i].add(sample.features[i]);
    for (std::size_t i = 0; i < targets_.size(); ++i) targets_[i].add(sample.targets[i]);
  }

  void print() const {
    fmt::print("  {:<24}{:<9}{}\n", "name", "kind", "range");
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const std::string name = names_.empty() ? "input" : names_[i];
      fmt::print("  {:<24}{:<9}{}\n", name, is_image_ ? "pixels" : "float", text_of(extents_[i]));
    }
    for (std::size_t i = 0; i < targets_.size(); ++i)
      fmt::print("  {:<24}{:<9}{}\n", fmt::format("target {}", i + 1), "float", targets_[i].text());
  }

 private:
  /// Bytes arrive as value / 255.
  std::string text_of(const ValueExtent<float>& extent) const {
    if (!is_image_) return extent.text();
    return fmt::format("{:.0f} to {:.0f}", extent.lowest * 255, extent.highest * 255);
  }

  bool is_image_;
  std::vector<std::string> names_;
  std::vector<ValueExtent<float>> extents_;
  std::vector<ValueExtent<float>> targets_;
};

std::map<std::int64_t, std::string> numbered(const std::vector<std::string>& names) {
  std::map<std::int64_t, std::string> result;
  for (const std::string& name : names) result.emplace(static_cast<std::int64_t>(result.size()), name);
  return result;
}

/// Labels of no record are told too: a class without records is worth knowing.
std::map<std::int64_t, std::int64_t> no_counts(std::int64_t classes) {
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t label = 0; label < classes; ++label) counts[label] = 0;
  return counts;
}

}  // namespace

bool is_inspected_by_source(const std::string& argument) {
  constexpr std::array<std::string_view, 6> kSources = {
      "csv:", "images:", "idx:", "fashion-mnist:", "synthetic:", "synthetic-images:"};
  if (std::ranges::any_of(kSources, [&](std::string_view source) { return argument.starts_with(source); })) return true;
  if (argument == "fashion-mnist") return true;
  std::error_code ignored;
  return std::filesystem::is_directory(argument, ignored) && !data::read_dataset_json(argument) &&
         data::is_image_folder(argument);
}

void inspect_source(const std::string& argument, std::int64_t records) {
  const data::Dataset dataset = data::open_data(argument);
  const data::RecordSource& source = dataset.source();
  const data::SampleSpec& spec = source.spec();
  const std::int64_t count = records == 0 ? source.size() : std::min(records, source.size());
  const bool encoded = source.has_encoded_images();
  std::vector<float> features(encoded ? 0 : static_cast<std::size_t>(spec.feature_count()));
  std::vector<float> targets(static_cast<std::size_t>(spec.targets));
  HeaderStep headers;
  ValueSummary values(source);
  auto counts = no_counts(spec.classes);
  {
    DataProgress progress("inspect", count);
    for (std::int64_t record = 0; record < count; ++record) {
      data::Sample sample{.features = features, .targets = targets};
      if (encoded) sample.images = &headers;
      source.read(record, sample);
      values.add(sample);
      if (spec.classes > 0) ++counts[sample.label];
      if ((record + 1) % kProgressEvery == 0) progress.show(record + 1);
    }
  }
  fmt::print("{}: {} records of [{}]", source.description(), source.size(), fmt::join(spec.shape, ", "));
  fmt::print("{}\n\n", spec.classes > 0 ? fmt::format(", {} classes", spec.classes) : "");
  fmt::print("{} of {} records\n", source.has_images() ? "images" : "features", count);
  if (encoded)
    headers.print();
  else
    values.print();
  if (spec.classes > 0) print_label_counts("label", counts, numbered(source.class_names()));
}

void print_label_counts(const std::string& label, const std::map<std::int64_t, std::int64_t>& counts,
                        const std::map<std::int64_t, std::string>& names) {
  fmt::print("\nrecords of each {}\n", label);
  for (const auto& [value, count] : counts) {
    const auto name = names.find(value);
    fmt::print("  {:<6}{:>10}{}{}\n", value, count, name == names.end() ? "" : "  ",
               name == names.end() ? "" : name->second);
  }
}

}  // namespace lockstep::apps
