#include "apps/lockstep/arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/data/open_data.h"
#include "lockstep/device/device_list.h"
#include "lockstep/job/device_share.h"
#include "lockstep/strategy/strategies.h"

namespace lockstep::apps {

void add_data_options(CLI::App& command, DataArguments& arguments) {
  const char* group = "Data";
  command
      .add_option("--data", arguments.data,
                  "A glob of TFRecord files, a directory with a dataset.json or with a folder of JPEG and PNG files "
                  "for each class (also "
                  "images:DIRECTORY), fashion-mnist[:train|:test], "
                  "idx:DIRECTORY[:train|:test], csv:FILE[?OPTIONS] (such as label=species&categorical=color,shape), "
                  "synthetic:HxWxC:CLASSES:COUNT (floats), or "
                  "synthetic-images:HxWxC:CLASSES:COUNT (bytes, as images have)")
      ->group(group);
  command
      .add_option("--data-dir", arguments.data_dir, "Where to look for named data sets before the places of the system")
      ->group(group);
  command
      .add_option("--index-dir", arguments.index_dir, "Where indexes of TFRecord files are kept; else beside each file")
      ->group(group);
  command
      .add_option("--input-feature", arguments.input_feature,
                  "Feature of tf.train.Example with the input; else from dataset.json or the first record")
      ->group(group);
  command
      .add_option("--label-feature", arguments.label_feature,
                  "Feature with the label; else from dataset.json or the first record")
      ->group(group);
  command
      .add_option("--input-shape", arguments.input_shape,
                  "HxWxC, or a number of values; else from dataset.json or the first record")
      ->group(group);
  command
      .add_option("--classes", arguments.classes, "Number of classes; else from dataset.json or a scan of the labels")
      ->group(group);
  command
      .add_option(
          "--images", arguments.images,
          "How images are prepared: none (as stored, divided by 255); cifar10 (normalized; training with crops of "
          "a border of 4 pixels and flips); imagenet (224x224, normalized; training with random resized crops and "
          "flips). Else as the model of a checkpoint was trained, or none")
      ->group(group);
  command.add_option("--global-batch", arguments.global_batch, "Samples of a step over all replicas")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--data-threads", arguments.threads,
                  "Threads of each process that read and decode, at most: as many of them work as the training needs")
      ->capture_default_str()
      ->group(group);
  command.add_option("--prefetch", arguments.prefetch, "Batches read ahead")->capture_default_str()->group(group);
}

void add_place_options(CLI::App& command, PlaceArguments& arguments) {
  const char* group = "Replicas";
  command
      .add_option(
          "--devices", arguments.devices,
          "Replicas of each process: gpu:0,gpu:1 or cpu:0; gpu:0,gpu:0 and cpu:0,cpu:0 are logical replicas that "
          "share one. auto is every GPU, or one for each rank of a node under mpirun, or cpu:0 without one; "
          "gpu:all divides a node's GPUs between its ranks")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--strategy", arguments.strategy,
                  "auto, one-device, mirrored (replicas of one process) or multi-worker-mirrored (ranks of mpirun)")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--allreduce", arguments.allreduce,
          "How gradients travel: auto, in-process (one process), shared-memory (ranks of one node), ring, hierarchical "
          "(several nodes), or mpi (the library's own); between GPUs nccl, hierarchical (NCCL within a node, a ring "
          "between nodes) or staged (by way of the host)")
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--share-gpus", arguments.share_gpus,
                "Let ranks have the same GPU, for tests: they reduce by way of the host. Without it that is an error")
      ->group(group);
  command
      .add_option("--stall-timeout", arguments.stall_timeout,
                  "Seconds without progress after which the job ends with status 4 and the name of who is missing; 0 "
                  "for never")
      ->capture_default_str()
      ->group(group);
}

void add_output_options(CLI::App& command, OutputArguments& arguments) {
  command.add_option("--log-format", arguments.format, "text, or json: one object a line on standard output")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str()
      ->group("Output");
  command.add_flag("--quiet", arguments.quiet, "Warnings and errors only; evaluate prints its metrics all the same")
      ->group("Output");
}

std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('x', begin), text.size());
    std::int64_t extent = 0;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, extent);
    if (error != std::errc{} || stop != text.data() + end || extent < 1)
      throw Error(ErrorCategory::input, "input-shape", "needed positive numbers with x between them, such as 28x28x1",
                  fmt::format("got \"{}\"", text));
    shape.push_back(extent);
    begin = end + 1;
  }
  return shape;
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
  throw Error(ErrorCategory::input, "bad-records", "needed fail or skip:N with a number from 0",
              fmt::format("got \"{}\"", text));
}

data::Dataset prepared(const data::Dataset& dataset, const std::string& images, const std::string& part) {
  if (images.empty() || images == "none") return dataset;
  if (images != "cifar10" && images != "imagenet")
    throw Error(ErrorCategory::input, "images", "needed none, cifar10 or imagenet", fmt::format("got \"{}\"", images));
  return dataset.images(data::ImageRecipe::parse(fmt::format("{}-{}", images, part)));
}

data::Dataset open_dataset(const DataArguments& arguments, const std::string& spec, const std::string& part,
                           std::uint64_t seed) {
  data::DataSpecOptions options;
  options.data_dir = arguments.data_dir;
  options.part = part;
  options.seed = seed;
  options.tfrecord.input_feature = arguments.input_feature;
  options.tfrecord.label_feature = arguments.label_feature;
  if (!arguments.input_shape.empty()) options.tfrecord.input_shape = parse_shape(arguments.input_shape);
  options.tfrecord.classes = arguments.classes;
  options.tfrecord.index_dir = arguments.index_dir;
  const auto bad_records = parse_bad_records(arguments.bad_records);
  options.tfrecord.skip_damage = bad_records.has_value();
  data::Dataset dataset = prepared(data::open_data(spec, options), arguments.images, part);
  return bad_records ? dataset.skip_bad_records(*bad_records) : dataset;
}

std::unique_ptr<strategy::Strategy> choose_strategy(job::Session& session, const PlaceArguments& arguments,
                                                    std::optional<allreduce::Route> remembered) {
  return strategy::make_strategy(session, arguments.strategy,
                                 job::choose_devices(session, arguments.devices, arguments.share_gpus),
                                 {.route = allreduce::parse_route(arguments.allreduce),
                                  .remembered_route = remembered,
                                  .stall_timeout = arguments.stall_timeout,
                                  .share_gpus = arguments.share_gpus});
}

void check_places(const PlaceArguments& arguments) {
  static_cast<void>(device::parse_devices(arguments.devices));
  allreduce::parse_route(arguments.allreduce);
}

void require_at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw Error(ErrorCategory::input, "command line", fmt::format("{} needs at least {}", option, least),
                fmt::format("got {}", value));
}

}  // namespace lockstep::apps
