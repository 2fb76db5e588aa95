#include "apps/lockstep/arguments.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/mapped_file.h"

namespace lockstep::apps {
namespace {

/// The innermost parsed command: `train`, or `convert` of `data convert`.
const CLI::App& innermost(const CLI::App& program) {
  const auto commands = program.get_subcommands();
  return commands.empty() ? program : innermost(*commands.back());
}

std::string path_of(const CLI::App& command) {
  return command.get_parent() == nullptr
             ? command.get_name()
             : path_of(*command.get_parent()) + " " + command.get_name();
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<std::string> known_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

/// Names that other programs have for options.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"--batch", "--global-batch"},
    {"--dataset", "--data"},
    {"--gpus", "--devices"},
    {"--num-epochs", "--epochs"},
    {"--num-workers", "--data-threads"},
    {"--output-dir", "--checkpoint-dir"},
    {"--save-dir", "--checkpoint-dir"},
    {"--workers", "--data-threads"}};

/// `got "--modle" (did you mean --model?)`, with a name that `command` has.
std::string got_word(const std::string& word, const CLI::App& command) {
  for (const auto& [other, name] : kOtherNames)
    if (word == other && command.get_option_no_throw(std::string(name)) != nullptr)
      return fmt::format("got \"{}\" (did you mean {}?)", word, name);
  const std::vector<std::string> names = known_names(command);
  return got_name(word, std::vector<std::string_view>(names.begin(), names.end()));
}

/// Whether `word`, which is no option, is one of the files that a pattern after --data matched.
bool is_of_unquoted_pattern(const std::string& word, const CLI::App& command) {
  const CLI::Option* data = command.get_option_no_throw("--data");
  std::error_code unreadable;
  return data != nullptr && data->count() > 0 && !word.starts_with("-") &&
         std::filesystem::exists(word, unreadable);
}

/// The help of `command`, for an error.
std::string help_of(const CLI::App& command) {
  return fmt::format("`{} --help` lists them", path_of(command));
}

}  // namespace

Error to_error(const CLI::ParseError& error, const CLI::App& program) {
  const CLI::App& command = innermost(program);
  const std::string help = help_of(command);
  const std::vector<std::string> left = program.remaining(true);
  const bool no_command =
      &command == &program && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if ((no_command || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) && !left.empty()) {
    const std::string word = left.front().substr(0, left.front().find('='));
    const char* hint =
        is_of_unquoted_pattern(left.front(), command)
            ? "; quote a pattern, such as --data 'train-*.tfrecord', so that the shell passes it on"
            : "";
    return {ErrorCategory::input, "command line",
            fmt::format("expected an option or command of {} ({})", path_of(command), help),
            got_word(word, command) + hint};
  }
  if (no_command)
    return {ErrorCategory::input, "command line", fmt::format("expected a command ({})", help),
            "got none"};
  return {ErrorCategory::input, "command line",
          fmt::format("expected valid options for {} ({})", path_of(command), help),
          one_line(error.what())};
}

std::vector<std::string> without_help_command(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

namespace {

const std::string kConfig = "--config";

std::optional<std::string> config_path(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(kConfig + "=")) return arguments[i].substr(kConfig.size() + 1);
    if (arguments[i] == kConfig && i + 1 < arguments.size()) return arguments[i + 1];
  }
  return std::nullopt;
}

bool is_given(const std::vector<std::string>& arguments, const std::string& name) {
  return std::ranges::any_of(arguments, [&](const std::string& argument) {
    return argument == "--" + name || argument == "--no-" + name ||
           argument.starts_with("--" + name + "=");
  });
}

bool belongs_to(const CLI::ConfigItem& item, const std::string& command) {
  const bool is_section_mark = item.name == "++" || item.name == "--";
  return !is_section_mark &&
         (item.parents.empty() || (item.parents.size() == 1 && item.parents.front() == command));
}

/// --print-config writes an empty value for an option that is not set.
bool is_empty(const CLI::ConfigItem& item) {
  return std::ranges::all_of(item.inputs, [](const std::string& input) { return input.empty(); });
}

std::string value_of(const CLI::ConfigItem& item) {
  return fmt::format("{}", fmt::join(item.inputs, ","));
}

/// Throws Error (input) with `where` unless `item` is an option of `command` with a valid value.
/// The parser of the command line, which sees the option again, does not know the file.
void check_item(const CLI::ConfigItem& item, CLI::App& command, const std::string& where) {
  const std::string expected =
      fmt::format("expected valid options for {} ({})", path_of(command), help_of(command));
  CLI::Option* option = command.get_option_no_throw("--" + item.name);
  if (option == nullptr)
    throw Error(ErrorCategory::input, where, expected, got_word("--" + item.name, command));
  try {
    option->add_result(value_of(item));
    option->run_callback();
    option->clear();
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCategory::input, where, expected, one_line(error.what()));
  } catch (const Error& error) {
    throw Error(error.category(), where, expected, error.what());
  }
}

}  // namespace

std::shared_ptr<bool> add_config_options(CLI::App& command) {
  command
      .add_option(kConfig,
                  "File with options of this command, as written by --print-config; the command "
                  "line takes precedence")
      ->configurable(false)
      ->group("Configuration");
  auto print = std::make_shared<bool>(false);
  command
      .add_flag("--print-config", *print, "Print the options in the format of --config, and exit")
      ->configurable(false)
      ->group("Configuration");
  return print;
}

std::string config_text(const CLI::App& command) { return command.config_to_str(true, false); }

std::vector<std::string> with_config_file(std::vector<std::string> arguments, CLI::App& program) {
  const auto path = config_path(arguments);
  if (!path) return arguments;
  const auto commands = program.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == arguments.front(); });
  // The parser refuses --config itself if the command does not have it.
  if (commands.empty() || commands.front()->get_option_no_throw(kConfig) == nullptr)
    return arguments;
  const std::string where = fmt::format("{} {}", kConfig, *path);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_file(*path);
  } catch (const CLI::Error& error) {
    throw Error(ErrorCategory::input, where, "expected a readable file of name=value lines",
                error.what());
  }
  std::vector<std::string> added;
  for (const CLI::ConfigItem& item : items) {
    if (!belongs_to(item, arguments.front()) || is_empty(item) || is_given(arguments, item.name))
      continue;
    check_item(item, *commands.front(), where);
    added.push_back(fmt::format("--{}={}", item.name, value_of(item)));
  }
  arguments.insert(arguments.begin() + 1, added.begin(), added.end());
  return arguments;
}

void require_at_least(const std::string& name, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw Error(ErrorCategory::input, "command line",
                fmt::format("expected {} to be at least {}", name, least),
                fmt::format("got {}", value));
}

void require_given(const char* option, const std::string& value) {
  if (value.empty())
    throw Error(ErrorCategory::input, "command line", fmt::format("expected {}", option),
                "it was not given");
}

namespace {

constexpr auto kImages = enum_names<ImagePreparation>({{ImagePreparation::none, "none"},
                                                       {ImagePreparation::cifar10, "cifar10"},
                                                       {ImagePreparation::imagenet, "imagenet"}});

/// Reads "28x28x1". Throws Error (input).
std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    std::int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, extent);
    if (error != std::errc{} || stop != text.data() + end || extent < 1)
      throw Error(ErrorCategory::input, "input-shape",
                  "expected positive numbers separated by x, such as 28x28x1",
                  fmt::format("got \"{}\"", text));
    shape.push_back(extent);
    begin = end + 1;
  }
  return shape;
}

}  // namespace

ImagePreparation parse_images(std::string_view name) {
  if (!name.empty() && name.front() >= '0' && name.front() <= '9')
    throw Error(
        ErrorCategory::input, "images",
        "expected none, cifar10 or imagenet (imagenet resizes images to 224x224, the others "
        "keep their size)",
        fmt::format("got \"{}\"", name));
  return kImages.parse("images", name);
}

std::string to_string(ImagePreparation images) { return std::string(kImages.name(images)); }

void add_data_options(CLI::App& command, DataArguments& arguments) {
  // CLI11 lists the group of the first option first, and --help is the first.
  command.get_help_ptr()->group(kCommonOptions);
  const char* group = "Data";
  data::TFRecordOptions& tfrecord = arguments.open.tfrecord;
  command
      .add_option(
          "--data", arguments.data,
          "Data set: a glob of TFRecord files; a directory with a dataset.json, or with one folder "
          "of JPEG and PNG files per class (also images:DIRECTORY); fashion-mnist[:train|:test]; "
          "idx:DIRECTORY[:train|:test]; csv:FILE[?OPTIONS] (such as "
          "label=species&categorical=color,shape); synthetic:HxWxC:CLASSES:COUNT (generated "
          "floats); synthetic-images:HxWxC:CLASSES:COUNT (generated bytes, like pixels)")
      ->group(kCommonOptions);
  command
      .add_option("--data-dir", arguments.open.data_dir,
                  "Directory to search for named data sets before the system's directories")
      ->group(group);
  command
      .add_option("--index-dir", tfrecord.index_dir,
                  "Directory for the indexes of TFRecord files (default: next to each file)")
      ->group(group);
  command
      .add_option("--input-feature", tfrecord.input_feature,
                  "Name of the tf.train.Example feature that is the input (default: from "
                  "dataset.json or the first record)")
      ->group(group);
  command
      .add_option(
          "--label-feature", tfrecord.label_feature,
          "Name of the feature that is the label (default: from dataset.json or the first record)")
      ->group(group);
  add_parsed(command, "--input-shape", tfrecord.input_shape, parse_shape,
             "Shape of a sample: HxWxC, or a number of values (default: from dataset.json or the "
             "first record)")
      ->group(group);
  add_at_least(command, "--classes", tfrecord.classes, 0,
               "Number of classes (default: from dataset.json or a scan of the labels)")
      ->group(group);
  add_parsed(command, "--images", arguments.images, parse_images,
             "Image preprocessing: none (as stored, divided by 255); cifar10 (normalized; in "
             "training, random crops after padding by 4 pixels, and flips); imagenet (224x224, "
             "normalized; in training, random resized crops and flips). Default: as the model of "
             "the checkpoint was trained, or none")
      ->group(group);
  add_at_least(command, "--global-batch,--batch-size", arguments.global_batch, 1,
               "Number of samples per step over all replicas")
      ->default_str(std::to_string(arguments.global_batch))
      ->group(kCommonOptions);
  add_at_least(command, "--data-threads", arguments.threads, 1,
               "Maximum number of threads per process that read and decode; only as many as needed "
               "are active")
      ->default_str(std::to_string(arguments.threads))
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
  command
      .add_option("--strategy", arguments.strategy,
                  "Distribution strategy: auto, one-device, mirrored (replicas of one process) or "
                  "multi-worker-mirrored (ranks started by mpirun)")
      ->capture_default_str()
      ->group(group);
  add_parsed(
      command, "--allreduce", arguments.options.route, allreduce::parse_route, "auto",
      "Route of the gradient all-reduce: auto; in-process (one process), shared-memory (ranks of "
      "one node), ring, hierarchical (several nodes), or mpi (MPI_Allreduce); between GPUs nccl, "
      "hierarchical (NCCL within a node, a ring between nodes), or staged (through host memory)")
      ->group(group);
  command
      .add_flag("--share-gpus", arguments.options.share_gpus,
                "Allow several ranks to use the same GPU, for tests; they reduce through host "
                "memory. Without this flag, a shared GPU is an error")
      ->group(group);
  command
      .add_option("--stall-timeout", arguments.options.stall_timeout,
                  "Seconds without progress after which the job ends with status 4 and reports the "
                  "missing rank; 0 disables the timeout")
      ->capture_default_str()
      ->group(group);
}

void add_precision_option(CLI::App& command, model::Precision& precision) {
  add_parsed(
      command, "--precision", precision, model::parse_precision, "float32",
      "Data type of the computation: float32, bfloat16 (requires a GPU, or a CPU with AVX-512) or "
      "float16 (requires a GPU). Parameters, gradients and statistics are float32")
      ->group("Model");
}

void add_output_options(CLI::App& command, OutputArguments& arguments) {
  command
      .add_option("--log-format", arguments.format,
                  "text, or json: one JSON object per line on standard output")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->group("Output");
  command
      .add_flag("--quiet", arguments.quiet,
                "Print only warnings and errors; evaluate still prints its metrics")
      ->group("Output");
}

std::optional<std::int64_t> parse_bad_records(const std::string& text) {
  constexpr std::string_view kSkip = "skip:";
  if (text == "fail") return std::nullopt;
  std::int64_t limit = -1;
  const char* const end = text.data() + text.size();
  if (text.starts_with(kSkip)) {
    const auto [stop, error] = std::from_chars(text.data() + kSkip.size(), end, limit);
    if (error == std::errc{} && stop == end && limit >= 0) return limit;
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

data::Dataset prepared(const data::Dataset& dataset, ImagePreparation images,
                       const std::string& part) {
  if (images == ImagePreparation::none) return dataset;
  return dataset.images(data::ImageRecipe::parse(fmt::format("{}-{}", kImages.name(images), part)));
}

data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec,
                           const std::string& part, std::uint64_t seed) {
  data::DataSpecOptions options = arguments.open;
  options.part = part;
  options.seed = seed;
  options.tfrecord.skip_damage = arguments.bad_records.has_value();
  data::enable_mapped_files();  // not earlier: Open MPI warns about signal handlers that it finds
  const ImagePreparation images = arguments.images.value_or(ImagePreparation::none);
  data::Dataset dataset = prepared(data::open_data(spec, options), images, part);
  return arguments.bad_records ? dataset.skip_bad_records(*arguments.bad_records) : dataset;
}

}  // namespace lockstep::apps
