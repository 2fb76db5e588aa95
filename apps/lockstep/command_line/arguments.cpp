#include "apps/lockstep/command_line/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/text.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/strategies.h"

namespace lockstep::inline v0::apps {

void require_not_read(std::string_view option, const std::filesystem::path& output,
                      const std::string& spec, const DataArguments& data, const std::string& part) {
  if (output.empty() || spec.empty()) return;
  data::DataSpecOptions opened = data.open;
  opened.part = part;
  std::vector<std::filesystem::path> files;
  try {
    files = data::data_files(spec, opened);
  } catch (const Error&) {  // what is wrong is said where they are opened
  }
  files.emplace_back(spec);  // that may be one file
  for (const std::filesystem::path& file : files)
    if (std::error_code none; std::filesystem::equivalent(file, output, none))
      throw Error(ErrorCategory::input, option, "expected another file than the data",
                  fmt::format("got {}, which is one of {}", output.string(), spec));
}

void require_given(const char* option, const std::string& value) {
  if (value.empty())
    throw Error(ErrorCategory::input, "command line", fmt::format("expected {}", option),
                "it was not given");
}

namespace {

bool parse_format(const std::string& text) {
  if (text != "text" && text != "json")
    refuse_name("--log-format", text, std::vector<std::string_view>{"text", "json"});
  return text == "json";
}

/// The recipe of --images, which is not none, for the part "train" or "test". Throws Error (input).
data::ImageRecipe recipe_for(std::string_view images, const std::string& part) {
  if (!data::ImageRecipe::begins_with_step(images)) {
    Spec spec = Spec::parse("images", images);
    const std::string& name = spec.head();
    if (name != "cifar10" && name != "imagenet" && images.find_first_of(",=") == images.npos)
      throw Error(ErrorCategory::input, "images",
                  "expected none, cifar10, imagenet, imagenet:SIZE, or steps such as "
                  "random-crop=160,flip,normalize=imagenet",
                  got_name(images, std::array<std::string_view, 3>{kImagesAsStored, "cifar10",
                                                                   "imagenet"}));
    if (name == "cifar10" || name == "imagenet") {
      const auto text = spec.next("SIZE");
      spec.finish();
      const int size = text ? parse_number<int>(*text).value_or(0) : 0;
      if (text && size < 1) spec.refuse("", "expected imagenet:SIZE with a size in pixels");
      auto recipe = data::ImageRecipe::parse(fmt::format("{}-{}", name, part), size, size);
      recipe.check();
      return recipe;
    }
  }
  const auto recipe = data::ImageRecipe::parse(images);
  return part == "train" ? recipe : recipe.for_test();
}

}  // namespace

std::string parse_images(std::string_view images) {
  if (images != kImagesAsStored)
    for (const char* part : {"train", "test"}) recipe_for(images, part);
  return std::string(images);
}

CLI::Option* add_json_option(CLI::App& command, bool& json, const std::string& help) {
  constexpr const char* kFormat = "--log-format";
  CLI::Option* format = command.get_option_no_throw(kFormat);
  if (format == nullptr)
    format = command
                 .add_option_function<std::string>(
                     kFormat, [&json](const std::string& text) { json = parse_format(text); },
                     "Another name of --json")
                 ->default_str("text")
                 ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
                 ->group("");
  // Where it is parsed, so that a later --log-format counts.
  const auto assign = [format](std::int64_t count) {
    format->add_result(count > 0 ? "json" : "text");
  };
  return command.add_flag_function("--json", assign, help)->trigger_on_parse();
}

void add_output_options(CLI::App& command, OutputArguments& arguments, const char* quiet) {
  add_fields(command, fields_of(arguments));
  command.get_option("--quiet")->description(quiet);
  add_json_option(command, arguments.json,
                  "Print one JSON object per line on standard output, for programs")
      ->group("Output");
}

std::optional<std::int64_t> parse_bad_records(const std::string& text) {
  constexpr std::string_view kSkip = "skip:";
  if (text == "fail") return std::nullopt;
  if (text.starts_with(kSkip)) {
    const auto limit = parse_number<std::int64_t>(text.substr(kSkip.size()));
    if (limit >= 0) return limit;
  }
  throw Error(ErrorCategory::input, "bad-records", "expected fail, or skip:N with N of at least 0",
              fmt::format("got \"{}\"", text));
}

std::string describe_cpu_routes() {
  return allreduce::describe_routes(&allreduce::RouteInfo::is_for_cpus);
}

std::vector<allreduce::Route> parse_routes(const std::string& list) {
  std::vector<allreduce::Route> routes;
  for (const std::string& name : split_specs("--allreduce", list))
    routes.push_back(allreduce::parse_route(name));
  return routes;
}

data::Dataset prepared(const data::Dataset& dataset, const std::string& images,
                       const std::string& part) {
  return images == kImagesAsStored ? dataset : dataset.images(recipe_for(images, part));
}

namespace {

/// Throws Error (input) for names of features if the data are not TFRecord files.
void require_features_used(const std::string& spec, const data::TFRecordOptions& options,
                           const data::Dataset& dataset) {
  if (options.input_feature.empty() && options.label_feature.empty()) return;
  if (dynamic_cast<const data::TFRecordSource*>(&dataset.source()) != nullptr) return;
  throw Error(ErrorCategory::input, spec,
              "expected TFRecord files with --input-feature or --label-feature (the columns of a "
              "table are selected in its name: csv:FILE:label=NAME,columns=NAME+NAME)",
              "got " + dataset.description());
}

/// Throws Error (input) for a features file if the data are not a table.
void require_table(const std::string& spec, const data::DataSpecOptions& options,
                   const data::Dataset& dataset) {
  if (options.features.empty() || dataset.source().info().table) return;
  throw Error(ErrorCategory::input, spec, "expected a table, csv:FILE, with --features",
              "got " + dataset.description());
}

}  // namespace

data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec,
                           const std::string& part, std::uint64_t seed) {
  data::DataSpecOptions options = arguments.open;
  options.part = options.split ? "train" : part;
  options.seed = seed;
  options.may_lack_labels = options.may_lack_labels || arguments.autoencodes;
  options.tfrecord.skip_damage = arguments.bad_records.has_value();
  data::enable_mapped_files();  // not earlier: Open MPI warns about signal handlers that it finds
  const std::string images = arguments.images.value_or(kImagesAsStored);
  const data::Dataset opened = data::open_data(spec, options);
  require_features_used(spec, options.tfrecord, opened);
  require_table(spec, options, opened);
  data::Dataset dataset = prepared(opened, images, part);
  if (arguments.autoencodes) dataset = dataset.autoencode();
  return arguments.bad_records ? dataset.skip_bad_records(*arguments.bad_records) : dataset;
}

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

using DataFields = Fields<apps::DataArguments>;
using PlaceFields = Fields<apps::PlaceArguments>;
using OutputFields = Fields<apps::OutputArguments>;

void DataFields::parse_images(Options& options, std::string_view /*name*/,
                              std::span<const std::string> values) {
  options.images.reset();
  if (!values.back().empty()) options.images = apps::parse_images(values.back());
}

std::vector<std::string> DataFields::print_images(const Options& options) {
  return fields_detail::print(options.images);
}

void DataFields::parse_image_size(Options& options, std::string_view name,
                                  std::span<const std::string> values) {
  if (values.back().empty()) return;
  const auto size = fields_detail::parse_within<std::int64_t>(
      name, values.back(), 1, std::numeric_limits<std::int32_t>::max());
  // A configuration file sets it twice: where it is checked, and with the command line.
  if (options.images && !options.images->starts_with("imagenet"))
    throw Error(ErrorCategory::input, "command line",
                "expected --images imagenet, or no --images, with --image-size",
                "got " + *options.images);
  options.images = apps::parse_images(fmt::format("imagenet:{}", size));
}

void PlaceFields::parse_strategy(Options& options, std::string_view name,
                                 std::span<const std::string> values) {
  options.strategy = strategy::parse_strategy(name, values.back());
}

void OutputFields::parse_format(Options& options, std::string_view /*name*/,
                                std::span<const std::string> values) {
  options.json = apps::parse_format(values.back());
}

}  // namespace lockstep::inline v0
