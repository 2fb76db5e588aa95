#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "apps/lockstep/data/data_tools.h"
#include "apps/lockstep/process_setup.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/open_data.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/source/tfrecord/dataset_json.h"
#include "lockstep/data/source/tfrecord/example_decoder.h"
#include "lockstep/data/table/schema.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr std::int64_t kProgressEvery = 1000;

/// Minimum and maximum of the added values.
template <typename T>
struct ValueExtent {
  T lowest = std::numeric_limits<T>::max();
  T highest = std::numeric_limits<T>::lowest();
  std::int64_t not_finite = 0;  // number of values that are NaN or infinite

  void add(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) {
        ++not_finite;
        return;
      }
    }
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  bool varies() const { return lowest < highest; }
  /// "-2 to 1.5", "7", or "-" if no value was added.
  std::string text() const {
    const std::string range = lowest > highest    ? "-"
                              : lowest == highest ? fmt::format("{}", lowest)
                                                  : fmt::format("{} to {}", lowest, highest);
    return not_finite == 0 ? range : fmt::format("{}; {} not finite", range, not_finite);
  }
};

/// Collects the formats and sizes of encoded images from their headers.
class ImageHeaders {
 public:
  void add(std::span<const std::uint8_t> file) {
    const data::ImageHeader header = decoder_.open(file);
    ++(data::image_format_of(file) == data::ImageFormat::jpeg ? jpegs_ : pngs_);
    heights_.add(header.height);
    widths_.add(header.width);
    channels_.add(header.channels);
  }

  /// Whether the images have different sizes or channels.
  bool vary() const { return heights_.varies() || widths_.varies() || channels_.varies(); }

  void print() const {
    fmt::print("  JPEG {}, PNG {}; height {}, width {}, channels {}\n", jpegs_, pngs_,
               heights_.text(), widths_.text(), channels_.text());
  }

 private:
  data::ImageDecoder decoder_;
  std::int64_t jpegs_ = 0;
  std::int64_t pngs_ = 0;
  ValueExtent<int> heights_;
  ValueExtent<int> widths_;
  ValueExtent<int> channels_;
};

/// The values of a data set; for a table, by column.
class ValueSummary {
 public:
  explicit ValueSummary(const data::RecordSource& source)
      : is_image_(source.info().has_images),
        names_(source.info().feature_names),
        target_names_(source.info().target_names),
        targets_(static_cast<std::size_t>(source.spec().target_count())) {
    for (std::size_t i = 0; i < source.spec().inputs.size(); ++i) {
      const data::TensorSpec& input = source.spec().inputs[i];
      if (input.type == lockstep::ElementType::int32)
        indices_.push_back({.input = i, .name = input.name, .extent = {}});
      else if (i == 0)
        extents_.resize(std::max<std::size_t>(names_.size(), 1));
    }
    for (std::size_t i = target_names_.size(); i < targets_.size(); ++i)
      target_names_.push_back(fmt::format("target {}", i + 1));
  }

  void add(const data::Sample& sample) {
    for (std::size_t i = 0; i < sample.features().size(); ++i)
      extents_[names_.empty() ? 0 : i % names_.size()].add(sample.features()[i]);
    for (Indices& indices : indices_)
      for (const std::int32_t value : sample.inputs[indices.input].as<std::int32_t>())
        indices.extent.add(value);
    for (std::size_t i = 0; i < targets_.size(); ++i) targets_[i].add(sample.values()[i]);
  }

  void print() const {
    fmt::print("  {:<23} {:<9}{}\n", "name", "kind", "range");
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const std::string name = names_.empty() ? "input" : printable(names_[i]);
      fmt::print("  {:<23} {:<9}{}\n", name, is_image_ ? "pixels" : "float", text_of(extents_[i]));
    }
    for (const Indices& indices : indices_)
      fmt::print("  {:<23} {:<9}{}\n", printable(indices.name), "index", indices.extent.text());
    for (std::size_t i = 0; i < targets_.size(); ++i)
      fmt::print("  {:<23} {:<9}{}, target\n", printable(target_names_[i]), "float",
                 targets_[i].text());
  }

 private:
  /// An int32 input.
  struct Indices {
    std::size_t input;
    std::string name;
    ValueExtent<std::int32_t> extent;
  };

  /// Pixels are divided by 255 when they are read.
  std::string text_of(const ValueExtent<float>& extent) const {
    if (!is_image_) return extent.text();
    return fmt::format("{:.0f} to {:.0f}", extent.lowest * 255, extent.highest * 255);
  }

  bool is_image_;
  std::vector<std::string> names_;
  std::vector<std::string> target_names_;
  std::vector<ValueExtent<float>> extents_;
  std::vector<Indices> indices_;
  std::vector<ValueExtent<float>> targets_;
};

std::map<std::int64_t, std::string> numbered(const std::vector<std::string>& names) {
  std::map<std::int64_t, std::string> result;
  for (const std::string& name : names)
    result.emplace(static_cast<std::int64_t>(result.size()), name);
  return result;
}

/// Zero for every class, so that classes without records are printed too. Not for a number that is
/// probably no class number.
std::map<std::int64_t, std::int64_t> no_counts(std::int64_t classes) {
  constexpr std::int64_t kMaxClasses = 100'000;
  std::map<std::int64_t, std::int64_t> counts;
  for (std::int64_t label = 0; classes <= kMaxClasses && label < classes; ++label)
    counts[label] = 0;
  return counts;
}

/// Prints the number of records per label, with class names if they are known.
void print_label_counts(const std::string& label,
                        const std::map<std::int64_t, std::int64_t>& counts,
                        const std::map<std::int64_t, std::string>& names) {
  fmt::print("\nrecords of each {}\n", printable(label));
  for (const auto& [value, count] : counts) {
    const auto name = names.find(value);
    fmt::print("  {:<6}{:>10}{}{}\n", value, count, name == names.end() ? "" : "  ",
               name == names.end() ? "" : printable(name->second));
  }
}

/// Reads at most `records` records (0: all) of the data set, and prints its features or the formats
/// and sizes of its images, and the number of records per class.
void inspect_dataset(const data::Dataset& dataset, std::int64_t records) {
  const data::RecordSource& source = dataset.source();
  const data::SampleSpec& spec = source.spec();
  data::SampleSpec read = spec;
  const std::int64_t count = records == 0 ? source.size() : std::min(records, source.size());
  const bool encoded = source.info().has_encoded_images;
  if (encoded) read.inputs.front().shape = {0};
  data::Batch one(read);
  data::Sample sample = one.sample();
  ImageHeaders headers;
  data::StoredImage stored;
  ValueSummary values(source);
  const bool has_labels = spec.classes() > 0 && spec.targets.front().shape.empty();
  auto counts = no_counts(spec.classes());
  {
    DataProgress progress("inspect", count);
    for (std::int64_t record = 0; record < count; ++record) {
      if (encoded)
        data::read_with_image(source, record, sample, stored,
                              [&](const data::StoredImage& image) { headers.add(image.bytes); });
      else
        source.read(record, sample);
      values.add(sample);
      if (has_labels) ++counts[sample.label()];
      if ((record + 1) % kProgressEvery == 0) progress.show(record + 1);
    }
  }
  fmt::print("{}: {} of {}[{}]", printable(source.info().description),
             counted(source.size(), "record"), headers.vary() ? "different sizes, the first " : "",
             fmt::join(spec.shape(), ", "));
  fmt::print("{}\n\n", spec.classes() > 0 ? fmt::format(", {} class{}", spec.classes(),
                                                        spec.classes() == 1 ? "" : "es")
                                          : "");
  const auto table = source.info().table;
  if (table) {
    std::vector<std::string> lines;
    for (const std::string& line : table->summary()) lines.push_back(printable(line));
    fmt::print("{}\n\n", fmt::join(lines, "\n  "));
  }
  fmt::print("{} of {}\n", source.info().has_images ? "images" : "features",
             counted(count, "record"));
  if (encoded)
    headers.print();
  else
    values.print();
  if (has_labels) print_label_counts("label", counts, numbered(source.info().class_names));
  if (table)
    for (const std::string& warning : table->warnings())
      fmt::print("\nwarning: {}\n", printable(warning));
}

void inspect_source(const std::string& argument, std::int64_t records) {
  constexpr std::string_view kTable = "csv:";
  if (argument.starts_with(kTable))
    return inspect_table(
        data::CsvSpec::parse(std::string_view(argument).substr(kTable.size()), argument),
        [&](const data::Dataset& table) { inspect_dataset(table, records); });
  inspect_dataset(data::open_data(argument), records);
}

constexpr const char* kUsualClassName = "image/class/text";
constexpr std::array<const char*, 2> kUsualLabels = {"image/class/label", "label"};

/// Statistics of one feature with one kind of values.
struct FeatureSummary {
  std::int64_t records = 0;
  ValueExtent<std::size_t> values;   // number of values per record
  ValueExtent<std::size_t> lengths;  // lengths of bytes values
  ValueExtent<std::int64_t> integers;
  ValueExtent<float> floats;
  std::map<std::string_view, std::int64_t> image_kinds;  // number of encoded images per format

  void add(const data::Feature& feature) {
    ++records;
    std::visit([this](const auto& list) { add_list(list); }, feature);
  }

  std::string range_text(data::FeatureKind kind) const {
    switch (kind) {
      case data::FeatureKind::bytes:
        return fmt::format("{} bytes{}", lengths.text(), kinds_text());
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
  /// ", JPEG 120, PNG 80"
  std::string kinds_text() const {
    std::string text;
    for (const auto& [kind, count] : image_kinds) text += fmt::format(", {} {}", kind, count);
    return text;
  }
  void add_list(const std::monostate&) { values.add(0); }
  void add_list(const data::BytesList& list) {
    values.add(list.size());
    for (const std::string& value : list) {
      lengths.add(value.size());
      if (const auto kind = data::encoded_image_kind(value)) ++image_kinds[*kind];
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
    fmt::print("{}: {} of {} bytes, compression {}\n", printable(path.native()),
               counted(records, "record"), lengths.text(),
               kNamesOf<data::Compression>.name(reader.compression()));
  }

  void print_features() const {
    for (const auto& [part, tensors] : tensors_)
      fmt::print("samples of {}: {}\n", printable(part), printable(tensors));
    fmt::print("\nfeatures of {}\n", counted(records_, "record"));
    fmt::print("  {:<23} {:<9}{:>10}  {:<15} {}\n", "name", "kind", "records", "values in each",
               "range");
    for (const auto& [key, summary] : features_) {
      const auto& [name, kind] = key;
      fmt::print("  {:<23} {:<9}{:>10}  {:<15} {}{}\n", printable(name),
                 data::feature_kind_name(kind), summary.records, summary.values.text(),
                 summary.range_text(kind),
                 kind == data::FeatureKind::floats && is_label(name) ? ", target" : "");
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
    for (const auto& [part, description] : *parts) {
      for (const std::string& name : description.class_names) {
        ClassNames& names = class_names_[description.label_feature];
        if (names.size() < description.class_names.size()) names.emplace(names.size(), name);
      }
      if (!description.tensors.inputs.empty())
        tensors_[(directory / part).string()] = to_string(description.tensors);
    }
  }

  /// Reads the class name that image records store with their label.
  void add_class_name(const data::Example& example, const std::string& label_feature,
                      std::int64_t label) {
    const auto text = example.find(kUsualClassName);
    if (label_feature != kUsualLabels[0] || text == example.end()) return;
    const auto* names = std::get_if<data::BytesList>(&text->second);
    if (names != nullptr && names->size() == 1)
      class_names_[label_feature].try_emplace(label, names->front());
  }

  void add_record(std::string_view record, const data::TFRecordReader& reader) {
    const data::Example example = parse(record, reader);
    for (const auto& [name, feature] : example) {
      features_[{name, static_cast<data::FeatureKind>(feature.index())}].add(feature);
      const auto* integers = std::get_if<data::Int64List>(&feature);
      if (integers == nullptr || integers->size() != 1 || !is_label(name)) continue;
      ++labels_[name][integers->front()];
      add_class_name(example, name, integers->front());
    }
  }

  static data::Example parse(std::string_view record, const data::TFRecordReader& reader) {
    try {
      return data::parse_example(record);
    } catch (const data::MalformedExample& error) {
      throw Error(ErrorCategory::data, reader.location().text(), "expected a tf.train.Example",
                  error.what());
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
  std::map<std::string, ClassNames> class_names_;  // by label feature
  std::map<std::string, std::string> tensors_;     // by part whose description lists them
};

}  // namespace

bool is_data_source(const std::string& argument) {
  if (data::names_format(argument)) return true;
  // A directory without dataset.json contains folders of images; otherwise open_data() reports the
  // error.
  std::error_code ignored;
  return std::filesystem::is_directory(argument, ignored) && !data::read_dataset_json(argument);
}

void inspect_data(const InspectOptions& options) {
  std::vector<std::string> files = options.files;
  const auto sources =
      std::stable_partition(files.begin(), files.end(),
                            [](const std::string& argument) { return !is_data_source(argument); });
  for (auto source = sources; source != files.end(); ++source)
    inspect_source(*source, options.records);
  files.erase(sources, files.end());
  if (files.empty()) return;
  Inspection inspection(options);
  for (const auto& file : files_of(files)) inspection.read_file(file);
  inspection.print_features();
  inspection.print_labels();
}

}  // namespace lockstep::inline v0::apps
