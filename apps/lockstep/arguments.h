// Options of commands: declaring them, and those that several commands share.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "apps/lockstep/field_options.h"
#include "lockstep/base/error.h"
#include "lockstep/data/open_data.h"
#include "lockstep/strategy/fit_options.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::apps {

// Declaring options. A value is converted once, while the command line is parsed, to the type that
// the library takes.

/// Declares an option whose value, a T, is passed to `assign`, which throws Error (input) to refuse
/// it.
template <typename T, typename Assign>
CLI::Option* add_assigned(CLI::App& command, const std::string& name, Assign assign,
                          const std::string& help) {
  // --print-config lists an option without a default as `name=""` only if this is set.
  return command.add_option_function<T>(name, assign, help)->run_callback_for_default();
}

/// Declares an option whose text `parse` converts to `value`. `parse` throws Error (input).
template <typename T, typename Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, T& value, Parse parse,
                        const std::string& help) {
  const auto assign = [&value, parse](const std::string& text) { value = parse(text); };
  return add_assigned<std::string>(command, name, assign, help);
}

/// The same with the default `text`, which is also shown in the help.
template <typename T, typename Parse>
CLI::Option* add_parsed(CLI::App& command, const std::string& name, T& value, Parse parse,
                        const std::string& text, const std::string& help) {
  value = parse(text);
  return add_parsed(command, name, value, parse, help)->default_str(text);
}

/// Throws Error (input) unless the value of option `name` is at least `least`.
void require_at_least(const std::string& name, std::int64_t value, std::int64_t least);

/// Declares an option with an integer of at least `least`. Its default is `value`, which the help
/// shows only with CLI::Option::default_str(). `name` may have aliases: "--name,--alias".
template <typename T>
CLI::Option* add_at_least(CLI::App& command, const std::string& name, T& value,
                          std::type_identity_t<T> least, const std::string& help) {
  const auto assign = [&value, first = name.substr(0, name.find(',')), least](const T& given) {
    require_at_least(first, given, least);
    value = given;
  };
  return add_assigned<T>(command, name, assign, help);
}

/// Declares an option with a number from `least` to `most`, like add_at_least(); without `most`,
/// any finite one from `least`. `value` is a T or an optional T.
template <typename T, typename Value>
CLI::Option* add_between(CLI::App& command, const std::string& name, Value& value, T least,
                         std::type_identity_t<std::optional<T>> most, const std::string& help) {
  const auto assign = [&value, first = name.substr(0, name.find(',')), least,
                       most](const T& given) {
    if (!(given >= least && given <= most.value_or(std::numeric_limits<T>::max())))
      throw Error(ErrorCategory::input, "command line",
                  fmt::format("expected {} to be {} {}{}", first, most ? "from" : "at least", least,
                              most ? fmt::format(" to {}", *most) : ""),
                  fmt::format("got {}", given));
    value = given;
  };
  return add_assigned<T>(command, name, assign, help);
}

/// Declares an option whose value is one of `names`, with the default `value`. The error of another
/// value suggests the nearest name.
CLI::Option* add_one_of(CLI::App& command, const std::string& name, std::string& value,
                        std::vector<std::string_view> names, const std::string& help);

/// Declares --seed, with the default `value`.
CLI::Option* add_seed(CLI::App& command, std::uint64_t& value, const std::string& help);

// Options that several commands share.

/// How images are prepared when no option says it.
inline constexpr const char* kImagesAsStored = "none";
/// Checks the value of --images: none, cifar10, imagenet, imagenet:SIZE or steps
/// (data::ImageRecipe::parse). Throws Error (input).
std::string parse_images(std::string_view images);

/// Which records, and how they are read.
struct DataArguments {
  std::string data;                   ///< of --data
  data::DataSpecOptions open;         ///< without the part and the seed, which open_dataset() sets
  std::optional<std::string> images;  ///< nullopt: as the model was trained, else none
  /// Number of unreadable training records to skip; nullopt: fail.
  std::optional<std::int64_t> bad_records;
  std::int64_t global_batch = 64;
  strategy::ReadOptions read;
};

/// Throws Error (input) if `output`, the file of `option`, is one of the data `spec`, of which
/// `part` is opened with `data`: it would be lost.
void require_not_read(std::string_view option, const std::filesystem::path& output,
                      const std::string& spec, const DataArguments& data, const std::string& part);
/// Declares the options of the data, below the common ones, which the help then begins with.
void add_data_options(CLI::App& command, DataArguments& arguments);

/// Devices and strategy.
struct PlaceArguments {
  std::string devices = "auto";
  std::string strategy = "auto";
  strategy::StrategyOptions options;
  std::optional<double> start_timeout = {};  ///< see job::SessionOptions
};

/// Declares --json and, unless the command has it, its other name, --log-format text|json; the last
/// one given counts. `help`: what is printed.
CLI::Option* add_json_option(CLI::App& command, bool& json, const std::string& help);

struct OutputArguments {
  bool json = false;
  bool quiet = false;
};

/// Declares them. `quiet`: what --quiet does.
void add_output_options(CLI::App& command, OutputArguments& arguments,
                        const char* quiet = "Print only warnings and errors");

/// The help of --metrics; {} are their names.
inline constexpr std::string_view kMetricsHelp =
    "Further metrics, such as auc,confusion: {}. top5 may have any number; precision, recall and "
    "f1 take :average=binary, macro or none (each class), auc and auc_pr take :exact=true. With "
    "several outputs, OUTPUT:NAME is of one, NAME of each that it fits. May be given several times "
    "(default: none)";
/// Declares --metrics, a list for model::make_metrics().
void add_metrics_option(CLI::App& command, std::string& metrics);

/// Parses a list such as "ring,mpi". Throws Error (input).
std::vector<allreduce::Route> parse_routes(const std::string& list);

/// Parses --bad-records: nullopt for "fail", N for "skip:N". Throws Error (input).
std::optional<std::int64_t> parse_bad_records(const std::string& text);

/// Throws Error (input) if an option is empty: "expected `option`; it was not given".
void require_given(const char* option, const std::string& value);

/// `dataset` with images prepared for the part "train" or "test". Throws Error (input) if it has
/// none.
data::Dataset prepared(const data::Dataset& dataset, const std::string& images,
                       const std::string& part);

/// Opens the data set `spec`, not batched. `part` ("train" or "test") is used if `spec` names none,
/// and selects the preparation of images. `seed` generates synthetic data.
data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec,
                           const std::string& part, std::uint64_t seed);

}  // namespace lockstep::apps

namespace lockstep {

/// --data and how the records are read.
template <>
struct Fields<apps::DataArguments> {
  using Options = apps::DataArguments;
  static void parse_images(Options& options, std::string_view name,
                           std::span<const std::string> values);
  static void parse_image_size(Options& options, std::string_view name,
                               std::span<const std::string> values);
  static std::vector<std::string> print_images(const Options& options);
  static constexpr std::tuple list{
      Field{&Options::data,
            {"data", kCommonOptions,
             "Data set (required): {}. The part defaults to train, and for "
             "--validation-data, evaluate, predict and quantize to test"},
            {},
            {.value = "SPEC", .names = data::data_usage}},
      Part{&Options::open},
      TextField<Options>{
          {"images", "Data",
           "Image preprocessing: none (as stored, divided by 255); cifar10 (normalized; in "
           "training, random crops after padding by 4 pixels, and flips); imagenet "
           "(224x224, or imagenet:SIZE; normalized; in training, random resized crops and "
           "flips); or steps, such as random-crop=160,flip,normalize=imagenet "
           "(docs/data.md). Default: none, or for a checkpoint as in its training"},
          parse_images,
          print_images,
          {.value = "NAME|STEPS"}},
      TextField<Options>{
          {"image_size", "Data", "Height and width of images in pixels; implies --images imagenet"},
          parse_image_size,
          [](const Options&) { return std::vector<std::string>(); },
          {.value = "N"}},
      Field{&Options::global_batch,
            {"global_batch", kCommonOptions, "Number of samples per step over all replicas"},
            {.least = 1},
            {.alias = "batch-size"}},
      Part{&Options::read}};
};

/// Devices and strategy.
template <>
struct Fields<apps::PlaceArguments> {
  using Options = apps::PlaceArguments;
  static void parse_strategy(Options& options, std::string_view name,
                             std::span<const std::string> values);
  static constexpr std::tuple list{
      Field{&Options::devices,
            {"devices", kCommonOptions,
             "Devices of the replicas of each process, such as gpu:0,gpu:1 or cpu:0. A "
             "repeated device (gpu:0,gpu:0 or cpu:0,cpu:0) has several logical replicas. "
             "auto: every GPU; under mpirun, one GPU per rank of a node; cpu:0 if there is "
             "no GPU. gpu:all: the GPUs of a node, divided among its ranks"},
            {},
            {.value = "DEVICE[,DEVICE...]"}},
      TextField<Options>{
          {"strategy", "Replicas",
           "Distribution strategy: auto, one-device, mirrored (replicas of one process) or "
           "multi-worker-mirrored (ranks started by mpirun)"},
          parse_strategy,
          [](const Options& options) { return std::vector{options.strategy}; },
          {.value = "NAME"}},
      Part{&Options::options},
      Field{&Options::start_timeout,
            {"start_timeout", "Replicas",
             "Seconds that the start of the ranks may take, MPI_Init included; then the "
             "job ends with status 4 and names the call that has not returned. 0 disables "
             "the timeout (default: 60, or --stall-timeout if that is shorter)"},
            {{.least = 0}},
            {.value = "SECONDS"}}};
};

/// What is printed.
template <>
struct Fields<apps::OutputArguments> {
  using Options = apps::OutputArguments;
  static void parse_format(Options& options, std::string_view name,
                           std::span<const std::string> values);
  static constexpr std::tuple list{
      TextField<Options>{{"log_format", "Output", "Another name of --json: json, or text"},
                         parse_format,
                         [](const Options& options) {
                           return std::vector<std::string>{options.json ? "json" : "text"};
                         },
                         {.value = "text|json"}},
      Field{&Options::quiet, {"quiet", "Output", "Print only warnings and errors"}}};
};

}  // namespace lockstep
