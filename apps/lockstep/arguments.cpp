#include "apps/lockstep/arguments.h"

#include <fmt/format.h>
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
#include "lockstep/base/text.h"
#include "lockstep/data/image/recipe.h"
#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/source/tfrecord_source.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/strategy/strategies.h"

namespace lockstep::apps {

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

void require_at_least(const std::string& name, std::int64_t value, std::int64_t least) {
  if (value == std::numeric_limits<std::int64_t>::max())  // what the parser makes of larger ones
    throw Error(ErrorCategory::input, "command line",
                fmt::format("expected {} to be less than 2^63 - 1", name), "got more");
  if (value < least)
    throw Error(ErrorCategory::input, "command line",
                fmt::format("expected {} to be at least {}", name, least),
                fmt::format("got {}", value));
}

CLI::Option* add_one_of(CLI::App& command, const std::string& name, std::string& value,
                        std::vector<std::string_view> names, const std::string& help) {
  const auto parse = [name, names = std::move(names)](const std::string& text) {
    if (std::ranges::find(names, text) == names.end()) refuse_name(name, text, names);
    return text;
  };
  return add_parsed(command, name, value, parse, help)->default_str(value);
}

CLI::Option* add_seed(CLI::App& command, std::uint64_t& value, const std::string& help) {
  const auto parse = [](const std::string& text) {
    const auto seed = parse_number<std::uint64_t>(text);
    if (!seed)
      throw Error(ErrorCategory::input, "command line",
                  "expected --seed to be a whole number from 0 to 2^64 - 1",
                  fmt::format("got \"{}\"", text));
    return *seed;
  };
  return add_parsed(command, "--seed", value, parse, help)
      ->default_str(std::to_string(value))
      ->type_name("INT");
}

void require_given(const char* option, const std::string& value) {
  if (value.empty())
    throw Error(ErrorCategory::input, "command line", fmt::format("expected {}", option),
                "it was not given");
}

namespace {

/// The recipe of --images, which is not none, for the part "train" or "test". Throws Error (input).
data::ImageRecipe recipe_for(std::string_view images, const std::string& part) {
  const std::size_t colon = std::min(images.find(':'), images.size());
  const std::string_view name = images.substr(0, colon);
  if (name == "cifar10" || name == "imagenet") {
    const int size = parse_number<int>(images.substr(std::min(colon + 1, images.size())))
                         .value_or(colon == images.size() ? 0 : -1);
    const bool is_valid = size > 0 || colon == images.size();
    if (!is_valid)
      throw Error(ErrorCategory::input, "images", "expected imagenet:SIZE with a size in pixels",
                  fmt::format("got \"{}\"", images));
    auto recipe = data::ImageRecipe::parse(fmt::format("{}-{}", name, part), size, size);
    recipe.check();
    return recipe;
  }
  if (!data::ImageRecipe::begins_with_step(images) &&
      images.find_first_of(",=/") == std::string_view::npos)
    throw Error(
        ErrorCategory::input, "images",
        "expected none, cifar10, imagenet, imagenet:SIZE, or steps such as "
        "random-crop=160,flip,normalize=imagenet",
        got_name(images, std::array<std::string_view, 3>{kImagesAsStored, "cifar10", "imagenet"}));
  const auto recipe = data::ImageRecipe::parse(images);
  return part == "train" ? recipe : recipe.for_test();
}

/// Reads "28x28x1". Throws Error (input).
std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    const std::int64_t extent =
        parse_number<std::int64_t>(text.substr(begin, end - begin)).value_or(0);
    if (extent < 1)
      throw Error(ErrorCategory::input, "input-shape",
                  "expected positive numbers separated by x, such as 28x28x1",
                  fmt::format("got \"{}\"", text));
    shape.push_back(extent);
    begin = end + 1;
  }
  return shape;
}

}  // namespace

std::string parse_images(std::string_view images) {
  if (images != kImagesAsStored)
    for (const char* part : {"train", "test"}) recipe_for(images, part);
  return std::string(images);
}

void add_feature_options(CLI::App& command, data::TFRecordOptions& options) {
  const char* group = "Data";
  command
      .add_option("--input-feature", options.input_feature,
                  "Name of the tf.train.Example feature that is the input (default: from "
                  "dataset.json or the first record)")
      ->group(group);
  command
      .add_option(
          "--label-feature", options.label_feature,
          "Name of the feature that is the label (default: from dataset.json or the first record)")
      ->group(group);
  add_parsed(command, "--input-shape", options.input_shape, parse_shape,
             "Shape of a sample: HxWxC, or a number of values (default: from dataset.json or the "
             "first record)")
      ->group(group);
  add_at_least(command, "--classes", options.classes, 0,
               "Number of classes (default: from dataset.json or a scan of the labels)")
      ->group(group);
}

void add_data_options(CLI::App& command, DataArguments& arguments) {
  // CLI11 lists the group of the first option first, and --help is the first.
  command.get_help_ptr()->group(kCommonOptions);
  const char* group = "Data";
  data::TFRecordOptions& tfrecord = arguments.open.tfrecord;
  command
      .add_option(
          "--data", arguments.data,
          "Data set (required): " + data::data_usage() +
              ". The part defaults to train, and for --validation-data, evaluate, predict and "
              "quantize to test")
      ->group(kCommonOptions);
  command
      .add_option("--data-dir", arguments.open.data_dir,
                  "Directory to search for fashion-mnist before the system's directories")
      ->type_name("DIR")
      ->group(group);
  command
      .add_option("--index-dir", tfrecord.index_dir,
                  "Directory for the indexes of TFRecord files (default: next to each file)")
      ->type_name("DIR")
      ->group(group);
  add_feature_options(command, tfrecord);
  add_parsed(command, "--images", arguments.images, parse_images,
             "Image preprocessing: none (as stored, divided by 255); cifar10 (normalized; in "
             "training, random crops after padding by 4 pixels, and flips); imagenet (224x224, or "
             "imagenet:SIZE; normalized; in training, random resized crops and flips); or steps, "
             "such as random-crop=160,flip,normalize=imagenet (docs/data.md). "
             "Default: none, or for a checkpoint as in its training")
      ->group(group);
  const auto set_size = [&images = arguments.images](const int& size) {
    require_at_least("--image-size", size, 1);
    // A configuration file sets it twice: where it is checked, and with the command line.
    if (images && !images->starts_with("imagenet"))
      throw Error(ErrorCategory::input, "command line",
                  "expected --images imagenet, or no --images, with --image-size",
                  "got " + *images);
    images = parse_images(fmt::format("imagenet:{}", size));
  };
  add_assigned<int>(command, "--image-size", set_size,
                    "Height and width of images in pixels; implies --images imagenet")
      ->group(group);
  add_at_least(command, "--global-batch,--batch-size", arguments.global_batch, 1,
               "Number of samples per step over all replicas")
      ->default_str(std::to_string(arguments.global_batch))
      ->group(kCommonOptions);
  add_at_least(command, "--data-threads", arguments.threads, 1,
               "Maximum number of threads per process that read and decode; only as many as needed "
               "are active (default: 1, and for replicas on GPUs the cores of the process, up to "
               "16 for each)")
      ->group(group);
  add_at_least(command, "--prefetch", arguments.prefetch, 1, "Number of batches to read ahead")
      ->default_str(std::to_string(arguments.prefetch))
      ->group(group);
}

void add_place_options(CLI::App& command, PlaceArguments& arguments) {
  const char* group = "Replicas";
  command
      .add_option("--devices", arguments.devices,
                  "Devices of the replicas of each process, such as gpu:0,gpu:1 or cpu:0. A "
                  "repeated device (gpu:0,gpu:0 or cpu:0,cpu:0) has several logical replicas. "
                  "auto: every GPU; under mpirun, one GPU per rank of a node; cpu:0 if there is no "
                  "GPU. gpu:all: the GPUs of a node, divided among its ranks")
      ->capture_default_str()
      ->group(kCommonOptions);
  const auto parse = [](const std::string& name) {
    return strategy::parse_strategy("--strategy", name);
  };
  add_parsed(command, "--strategy", arguments.strategy, parse, "auto",
             "Distribution strategy: auto, one-device, mirrored (replicas of one process) or "
             "multi-worker-mirrored (ranks started by mpirun)")
      ->group(group);
  add_parsed(command, "--allreduce", arguments.options.route, allreduce::parse_route, "auto",
             "Route of the gradient all-reduce: " +
                 allreduce::describe_routes([](const allreduce::RouteInfo&) { return true; }))
      ->group(group);
  command
      .add_flag("--share-gpus", arguments.options.share_gpus,
                "Allow several ranks to use the same GPU, for tests; they reduce through host "
                "memory. Without this flag, a shared GPU is an error")
      ->group(group);
  command
      .add_option("--stall-timeout", arguments.options.stall_timeout,
                  "Seconds without progress after which the job ends with status 4 and reports the "
                  "missing rank; 0 disables the timeout. LOCKSTEP_STALL_TIMEOUT in the environment "
                  "overrides it")
      ->capture_default_str()
      ->group(group);
  add_between(command, "--start-timeout", arguments.start_timeout, 0.0, std::nullopt,
              "Seconds that the start of the ranks may take, MPI_Init included; then the job ends "
              "with status 4 and names the call that has not returned. 0 disables the timeout "
              "(default: 60, or --stall-timeout if that is shorter)")
      ->group(group);
}

void add_metrics_option(CLI::App& command, std::string& metrics) {
  command
      .add_option(
          "--metrics", metrics,
          fmt::format("Further metrics, such as auc,confusion: {}. top5 may have any number; "
                      "precision, recall and f1 take :average=binary, macro or none (each "
                      "class), auc and auc_pr take :exact=true. With several outputs, "
                      "OUTPUT:NAME is of one, NAME of each that it fits (default: none)",
                      model::metric_names()))
      ->type_name("LIST")
      ->group("Model");
}

void add_precision_option(CLI::App& command, model::Precision& precision) {
  add_parsed(
      command, "--precision", precision, model::parse_precision, "float32",
      "Data type of the computation: float32, bfloat16 (requires a GPU, or a CPU with AVX-512) or "
      "float16 (requires a GPU). Parameters, gradients and statistics are float32")
      ->group("Model");
}

CLI::Option* add_json_option(CLI::App& command, bool& json, const std::string& help) {
  const auto parse = [](const std::string& text) {
    if (text != "text" && text != "json")
      refuse_name("--log-format", text, std::vector<std::string_view>{"text", "json"});
    return text == "json";
  };
  CLI::Option* format = add_parsed(command, "--log-format", json, parse, "text",
                                   "Same as --json, or its default: text")
                            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
                            ->group("");
  // Where it is parsed, so that a later --log-format counts, and --print-config has one of them.
  const auto assign = [format](std::int64_t given) {
    format->add_result(given > 0 ? "json" : "text");
  };
  return command.add_flag_function("--json", assign, help)->trigger_on_parse()->configurable(false);
}

void add_output_options(CLI::App& command, OutputArguments& arguments, const char* quiet) {
  add_json_option(command, arguments.json,
                  "Print one JSON object per line on standard output, for programs")
      ->group("Output");
  command.add_flag("--quiet", arguments.quiet, quiet)->group("Output");
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

std::vector<allreduce::Route> parse_routes(const std::string& list) {
  std::vector<allreduce::Route> routes;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    routes.push_back(allreduce::parse_route(std::string_view(list).substr(begin, end - begin)));
    begin = end + 1;
  }
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
              "table are selected in its name: csv:FILE?label=NAME&columns=NAMES)",
              "got " + dataset.description());
}

/// Throws Error (input) for a features file if the data are not a table.
void require_table(const std::string& spec, const data::DataSpecOptions& options,
                   const data::Dataset& dataset) {
  if (options.features.empty() || dataset.source().table()) return;
  throw Error(ErrorCategory::input, spec, "expected a table, csv:FILE, with --features",
              "got " + dataset.description());
}

}  // namespace

data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec,
                           const std::string& part, std::uint64_t seed) {
  data::DataSpecOptions options = arguments.open;
  options.part = part;
  options.seed = seed;
  options.tfrecord.skip_damage = arguments.bad_records.has_value();
  data::enable_mapped_files();  // not earlier: Open MPI warns about signal handlers that it finds
  const std::string images = arguments.images.value_or(kImagesAsStored);
  const data::Dataset opened = data::open_data(spec, options);
  require_features_used(spec, options.tfrecord, opened);
  require_table(spec, options, opened);
  data::Dataset dataset = prepared(opened, images, part);
  return arguments.bad_records ? dataset.skip_bad_records(*arguments.bad_records) : dataset;
}

}  // namespace lockstep::apps
