// The options that several commands share, and what they mean.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/device/device.h"
#include "lockstep/job/session.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::apps {

class StandardStreams;

/// What main has.
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
  std::string input_shape;   ///< "28x28x1"
  std::int64_t classes = 0;  ///< 0: what the data say
  std::string images;        ///< whose recipes images are prepared by; empty: as the model was trained, else as stored
  std::string bad_records = "fail";  ///< of training data
  std::int64_t global_batch = 64;
  int threads = 1;
  int prefetch = 2;
};
void add_data_options(CLI::App& command, DataArguments& arguments);

/// Which replicas there are.
struct PlaceArguments {
  std::string devices = "auto";
  std::string strategy = "auto";
  std::string allreduce = "auto";
  double stall_timeout = 120;  ///< seconds
  bool share_gpus = false;
};
void add_place_options(CLI::App& command, PlaceArguments& arguments);

/// How a command speaks.
struct OutputArguments {
  std::string format = "text";
  bool quiet = false;

  bool json() const { return format == "json"; }
};
void add_output_options(CLI::App& command, OutputArguments& arguments);

/// Of the option --precision.
inline constexpr const char* kPrecisionHelp =
    "Type of the computation: float32, bfloat16 (a CPU with AVX-512, or a GPU) or float16 (a GPU); parameters, "
    "gradients "
    "and statistics are float32";

/// Reads "28x28x1". Throws Error (input).
std::vector<std::int64_t> parse_shape(const std::string& text);

/// How many bad records "fail" (none) or "skip:N" puts up with. Throws Error (input).
std::optional<std::int64_t> parse_bad_records(const std::string& text);

/// `dataset` with its images prepared as --images says (empty: none), for the part "train" or "test". Throws Error
/// (input).
data::Dataset prepared(const data::Dataset& dataset, const std::string& images, const std::string& part);

/// The data set called `spec`, not batched; `part`, "train" or "test", is meant where it names none, and its recipe is
/// what images are prepared by. `seed` makes synthetic data up.
data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec, const std::string& part,
                           std::uint64_t seed);

/// Throws what choose_strategy would for values that no job could use; needs no other rank.
void check_places(const PlaceArguments& arguments);

/// The strategy that `arguments` ask for. Collective.
/// `remembered`: the route of the run that this one goes on from.
std::unique_ptr<strategy::Strategy> choose_strategy(job::Session& session, const PlaceArguments& arguments,
                                                    std::optional<allreduce::Route> remembered = {});

/// Throws Error (input) unless `value` is at least `least`.
void require_at_least(const char* option, std::int64_t value, std::int64_t least);

}  // namespace lockstep::apps
