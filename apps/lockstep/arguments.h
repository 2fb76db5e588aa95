// --config FILE, which reads the options of a command from a file, and --print-config, which writes such a file.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/device/device.h"
#include "lockstep/job/session.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::apps {

/// Converts an error of CLI11 to a one-line Error (input). For an unknown option or command it suggests the nearest
/// known one.
Error to_error(const CLI::ParseError& error, const CLI::App& program);

// --config FILE, which reads the options of a command from a file, and --print-config, which writes such a file.

/// Declares --config and --print-config. The result is set to whether --print-config was given.
std::shared_ptr<bool> add_config_options(CLI::App& command);

/// The options of a parsed command in the format of --config: `name=value` lines, including defaults.
std::string config_text(const CLI::App& command);

/// Returns `arguments` (without the program's name) extended by the options of the --config file, if one is given.
/// Options on the command line take precedence. The file has `name=value` lines, at the top or in a section
/// `[COMMAND]`; sections of other commands are ignored. Throws Error (input) if the file cannot be read.
std::vector<std::string> with_config_file(std::vector<std::string> arguments);

// Options that several commands share.

class StandardStreams;

/// The arguments of main(), and the standard streams.
struct Invocation {
  int argc = 0;
  char** argv = nullptr;  ///< for MPI
  StandardStreams* streams = nullptr;
};

/// Which records, and how they are read.
struct DataArguments {
  std::string data;
  std::string data_dir;
  std::string index_dir;
  std::string input_feature;
  std::string label_feature;
  std::string input_shape;           ///< "28x28x1"
  std::int64_t classes = 0;          ///< 0: as the data set states
  std::string images;                ///< preprocessing recipe; empty: as the model was trained, else as stored
  std::string bad_records = "fail";  ///< of training data
  std::int64_t global_batch = 64;
  int threads = 1;
  int prefetch = 2;
};
void add_data_options(CLI::App& command, DataArguments& arguments);

/// Devices, strategy and all-reduce route.
struct PlaceArguments {
  std::string devices = "auto";
  std::string strategy = "auto";
  std::string allreduce = "auto";
  double stall_timeout = 120;  ///< seconds
  bool share_gpus = false;
};
void add_place_options(CLI::App& command, PlaceArguments& arguments);

struct OutputArguments {
  std::string format = "text";
  bool quiet = false;

  bool json() const { return format == "json"; }
};
void add_output_options(CLI::App& command, OutputArguments& arguments);

/// Help text of --precision.
inline constexpr const char* kPrecisionHelp =
    "Data type of the computation: float32, bfloat16 (requires a GPU, or a CPU with AVX-512) or float16 (requires a "
    "GPU). Parameters, gradients and statistics are float32";

/// Reads "28x28x1". Throws Error (input).
std::vector<std::int64_t> parse_shape(const std::string& text);

/// Parses --bad-records: nullopt for "fail", N for "skip:N". Throws Error (input).
std::optional<std::int64_t> parse_bad_records(const std::string& text);

/// Adds the image preprocessing of --images (empty: none) for the part "train" or "test". Throws Error (input).
data::Dataset prepared(const data::Dataset& dataset, const std::string& images, const std::string& part);

/// Opens the data set `spec`, not batched. `part` ("train" or "test") is used if `spec` names none, and selects the
/// recipe for images. `seed` generates synthetic data.
data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec, const std::string& part,
                           std::uint64_t seed);

/// Validates the arguments of choose_strategy() without communication. Throws Error (input).
void check_places(const PlaceArguments& arguments);

/// Creates the strategy that `arguments` request. Collective.
/// `remembered`: the route of the run that this one resumes.
std::unique_ptr<strategy::Strategy> choose_strategy(job::Session& session, const PlaceArguments& arguments,
                                                    std::optional<allreduce::Route> remembered = {});

/// Throws Error (input) unless `value` is at least `least`.
void require_at_least(const char* option, std::int64_t value, std::int64_t least);

}  // namespace lockstep::apps
