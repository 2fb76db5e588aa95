// Options that several commands share.
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

#include "apps/lockstep/command_line/field_options.h"
#include "lockstep/base/error.h"
#include "lockstep/data/open_data.h"
#include "lockstep/job/launch/transport_choice.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/options/fit_options.h"

namespace lockstep::inline v0::apps {

/// --checkpoint of the commands that use a trained model.
inline constexpr FieldText kCheckpoint{
    "checkpoint", kCommonOptions,
    "A directory of checkpoints (the newest is used), DIR:best (the best one of a training with "
    "--keep-best), or a single checkpoint; required"};

/// How images are prepared when no option says it.
inline constexpr const char* kImagesAsStored = "none";
/// Checks the value of --images: none, cifar10, imagenet, imagenet:SIZE or steps
/// (data::ImageRecipe::parse). Throws Error (input).
std::string parse_images(std::string_view images);

/// Which records, and how they are read.
struct DataArguments {
  std::string data;                   ///< value of --data
  data::DataSpecOptions open;         ///< without the part and the seed, which open_dataset() sets
  std::optional<std::string> images;  ///< nullopt: as the model was trained, else none
  /// Number of unreadable training records to skip; nullopt: fail.
  std::optional<std::int64_t> bad_records;
  std::int64_t global_batch = 64;
  bool autoencodes = false;  ///< --autoencoder of the training
  train::ReadOptions read;
};

/// Throws Error (input) if `output`, the file of `option`, is one of the data `spec`, of which
/// `part` is opened with `data`: it would be lost.
void require_not_read(std::string_view option, const std::filesystem::path& output,
                      const std::string& spec, const DataArguments& data, const std::string& part);
/// Devices and strategy.
struct PlaceArguments {
  std::string devices = "auto";
  std::string strategy = "auto";
  strategy::StrategyOptions options;
  std::optional<double> start_timeout = {};                          ///< see job::SessionOptions
  job::TransportChoice transport = job::TransportChoice::automatic;  ///< see job::SessionOptions
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
    "(default: none; of evaluate: those of the training)";

/// Parses a list such as "ring,mpi". Throws Error (input).
std::vector<allreduce::Route> parse_routes(const std::string& list);
/// The routes between CPUs, with what each requires, for a help.
std::string describe_cpu_routes();

/// Parses --bad-records: nullopt for "fail", N for "skip:N". Throws Error (input).
std::optional<std::int64_t> parse_bad_records(const std::string& text);

/// Throws Error (input) if an option is empty: "expected `option`; it was not given".
void require_given(const char* option, const std::string& value);

/// `dataset` with images prepared for the part "train" or "test". Throws Error (input) if it has
/// none.
data::Dataset prepared(const data::Dataset& dataset, const std::string& images,
                       const std::string& part);

/// Opens the data set `spec`, not batched. `part` ("train" or "test") is used if `spec` names none,
/// except for a part of a split, which is of the training data; it selects the preparation of
/// images. `seed` generates synthetic data.
data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec,
                           const std::string& part, std::uint64_t seed);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

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
            {.min = 1},
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
           "Distribution strategy: auto, one-device, mirrored (replicas of one process), "
           "multi-worker-mirrored (ranks started by mpirun), or local-steps, which averages the "
           "parameters of replicas after every --local-steps; its result depends on their number"},
          parse_strategy,
          [](const Options& options) { return std::vector{options.strategy}; },
          {.value = "NAME"}},
      Part{&Options::options},
      Field{&Options::transport,
            {"transport", "Replicas",
             "What carries messages between ranks: mpi, tcp (processes that a controller started "
             "with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, TF_CONFIG or srun), or auto, "
             "which is mpi"}},
      Field{&Options::start_timeout,
            {"start_timeout", "Replicas",
             "Seconds that the start of the ranks may take, MPI_Init included; then the "
             "job ends with status 4 and names the call that has not returned. 0 disables "
             "the timeout (default: 60, or --stall-timeout if that is shorter)"},
            {{.min = 0}},
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

}  // namespace lockstep::inline v0
