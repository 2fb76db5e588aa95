// lockstep plan: the speed and the cost of a training on many replicas, from a minute on one.
#include <fmt/format.h>
#include <spdlog/logger.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/command_line/command_line.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/doctor/routes.h"
#include "apps/lockstep/model_source.h"
#include "apps/lockstep/plan/calibrate.h"
#include "apps/lockstep/plan/calibration_file.h"
#include "apps/lockstep/plan/plan_output.h"
#include "apps/lockstep/process_setup.h"
#include "apps/lockstep/train/train_arguments.h"
#include "apps/lockstep/train/train_defaults.h"
#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/job/placement/device_share.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::apps {

struct PlanArguments {
  TrainArguments train;
  std::string link;                       ///< as given
  std::optional<double> bits_per_second;  ///< parsed from `link`
  std::string latency;                    ///< as given
  std::optional<double> latency_seconds;  ///< parsed from `latency`
  std::string replicas = "1-4,6,8,12,16,24,32,48,64";
  std::optional<int> replicas_per_host;
  enum class Scaling { strong, weak } scaling = Scaling::strong;
  std::optional<double> price;
  std::string hardware;
  std::string calibration;
  std::string save_calibration;
  double seconds = 60;
  bool has_batch = false;  ///< --global-batch was given
};

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
inline constexpr auto kNamesOf<apps::PlanArguments::Scaling> =
    enum_names<apps::PlanArguments::Scaling>({{apps::PlanArguments::Scaling::strong, "strong"},
                                              {apps::PlanArguments::Scaling::weak, "weak"}});

/// The options that `lockstep train` does not have.
template <>
struct Fields<apps::PlanArguments> {
  using Options = apps::PlanArguments;
  using Values = std::span<const std::string>;
  static void parse_link(Options& options, std::string_view /*name*/, Values values) {
    options.bits_per_second.reset();
    options.link = values.back();
    if (!options.link.empty()) options.bits_per_second = apps::parse_bit_rate("link", options.link);
  }
  static void parse_latency(Options& options, std::string_view /*name*/, Values values) {
    options.latency_seconds.reset();
    options.latency = values.back();
    if (!options.latency.empty())
      options.latency_seconds = apps::parse_seconds("latency", options.latency);
  }
  static void parse_replicas(Options& options, std::string_view /*name*/, Values values) {
    apps::parse_replica_counts(values.back());
    options.replicas = values.back();
  }
  static constexpr const char* kGroup = "Plan";
  static constexpr std::tuple list{
      TextField<Options>{
          {"link", kGroup,
           "Speed of each host's link in each direction, such as 100Mbit or 25Gbit, or "
           "its payload as `lockstep doctor` prints it, such as 0.119GB/s. Default: that "
           "of --hardware; under mpirun on several hosts, with --calibration, it is "
           "measured; else 1Gbit"},
          parse_link,
          [](const Options& options) { return fields_detail::print(options.link); },
          {.value = "RATE"}},
      TextField<Options>{
          {"latency", kGroup,
           "Time of a message between hosts (default: that of --hardware, else 50us)"},
          parse_latency,
          [](const Options& options) { return fields_detail::print(options.latency); },
          {.value = "TIME"}},
      TextField<Options>{
          {"replicas", kGroup,
           "Numbers of replicas to predict for; the largest is the maximum considered"},
          parse_replicas,
          [](const Options& options) { return fields_detail::print(options.replicas); },
          {.value = "LIST"}},
      Field{&Options::replicas_per_host,
            {"replicas_per_host", kGroup,
             "Replicas that share a host's link (default: that of --hardware, else 1)"},
            {{.min = 1, .max = 4096}}},
      Field{&Options::scaling,
            {"scaling", kGroup,
             "strong: the global batch stays the same, as in `lockstep train`; weak: it "
             "grows with the replicas, and --global-batch is per replica"}},
      Field{&Options::price,
            {"price", kGroup,
             "Price of a host for an hour, in any currency (default: that of --hardware)"},
            {{.min = 0}}},
      Field{&Options::hardware,
            {"hardware", kGroup,
             "JSON file that describes other machines: speed (relative to this one), link, "
             "latency, memory, price, replicas_per_host, ... (docs/observe.md)"},
            {},
            {.value = "FILE"}},
      Field{&Options::calibration,
            {"calibration", kGroup,
             "Use the measurements of an earlier run instead of measuring; the network and "
             "the data are then those of that run, not of --model and --data"},
            {},
            {.value = "FILE"}},
      Field{&Options::save_calibration,
            {"save_calibration", kGroup, "Write the measurements to a file for --calibration"},
            {},
            {.value = "FILE"}},
      Field{&Options::seconds,
            {"seconds", kGroup,
             "Duration of the measurements; longer for steps of more than half a second"},
            {.min = 1, .max = 86400}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

/// The options of `train` that the help of `plan` lists.
constexpr std::array<std::string_view, 9> kListed{"--help",    "--model",        "--data",
                                                  "--steps",   "--global-batch", "--epochs",
                                                  "--devices", "--json",         "--quiet"};

void hide_unlisted(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const auto& names = option->get_lnames();
    const bool is_listed = std::ranges::any_of(names, [](const std::string& name) {
      return std::ranges::find(kListed, "--" + name) != kListed.end();
    });
    if (!is_listed) option->group("");
  }
}

Calibration measure(job::Session& session, const PlanArguments& arguments) {
  const TrainArguments& train = arguments.train;
  if (train.place.strategy == "local-steps")
    throw Error(ErrorCategory::input, "--strategy",
                "expected a synchronous strategy, whose steps plan predicts", "got local-steps");
  std::vector<device::Device> devices = job::choose_devices(session, train.place.devices);
  const auto strategy = strategy::make_strategy(session, "one-device", {devices.front()});
  const data::Dataset dataset =
      open_dataset(train.data, train.data.data, "train", train.trainer.seed);
  ModelSource source =
      choose_model(train.model, dataset.spec(), train.loss.of_classes(),
                   train.data.images.value_or(kImagesAsStored), train.pretrained.reset_head);
  model::Network network = source.make();
  check_losses(train.loss, network);
  strategy::TrainerOptions options = train.trainer;
  add_metrics(train.metrics, network, options);
  train::Trainer trainer(*strategy, std::move(network), options);
  const std::vector<std::int64_t> batches = batches_to_measure(
      train.data.global_batch, apps::parse_replica_counts(arguments.replicas).back(),
      arguments.scaling == PlanArguments::Scaling::weak);
  return calibrate(trainer, train.shuffle ? dataset.shuffle() : dataset,
                   {.batches = batches,
                    .seconds = arguments.seconds,
                    .read = train.data.read,
                    .progress = [&](std::size_t number, std::int64_t samples) {
                      session.logger()->info(fmt::format("measuring steps of {} samples ({} of {})",
                                                         samples, number + 1, batches.size()));
                    }});
}

/// The speed of the slowest link between the hosts of the job. Collective.
std::optional<double> measured_link(job::Session& session) {
  constexpr double kSeconds = 6;
  doctor::Ranks ranks(session);
  const double gigabytes = doctor::slowest_link(doctor::measure_links(ranks, kSeconds));
  if (!(gigabytes > 0)) return std::nullopt;
  return 8e9 * gigabytes / kPayload;
}

Hardware hardware_of(const PlanArguments& arguments, const Calibration& calibration,
                     std::optional<double> measured) {
  Hardware hardware;
  if (measured) hardware.bits_per_second = *measured;
  if (!arguments.hardware.empty())
    hardware = read_hardware(arguments.hardware, calibration, hardware);
  hardware.bits_per_second = arguments.bits_per_second.value_or(hardware.bits_per_second);
  hardware.latency_seconds = arguments.latency_seconds.value_or(hardware.latency_seconds);
  hardware.replicas_per_host = arguments.replicas_per_host.value_or(hardware.replicas_per_host);
  hardware.price = arguments.price.value_or(hardware.price);
  return hardware;
}

/// Samples of the whole training.
double samples_of(const train::FitOptions& fit, const Calibration& calibration,
                  std::int64_t global_batch) {
  const std::int64_t epochs =
      fit.epochs.value_or(fit.steps > 0 ? 0 : default_epochs(calibration.records));
  const double by_epochs = static_cast<double>(epochs) * static_cast<double>(calibration.records);
  const double by_steps = static_cast<double>(fit.steps) * static_cast<double>(global_batch);
  if (fit.steps == 0) return by_epochs;
  return epochs == 0 ? by_steps : std::min(by_epochs, by_steps);
}

int make_plan(job::Session& session, const PlanArguments& arguments) {
  const bool is_job = session.size() > 1;
  if (is_job && arguments.calibration.empty())
    throw Error(ErrorCategory::input, "plan",
                "expected one process to measure with; ranks measure the link between hosts, with "
                "--calibration FILE of such a process",
                fmt::format("got {} ranks", session.size()));
  std::optional<double> measured;
  if (is_job && session.nodes() > 1 && !arguments.bits_per_second)
    measured = measured_link(session);
  if (!session.is_chief()) return 0;
  std::optional<AtomicFile> saved;  // opened before the measurements, which last a minute
  if (const std::filesystem::path file = arguments.save_calibration; !file.empty()) {
    remove_abandoned_temporaries(file.parent_path(), file.filename().native());
    saved.emplace(file);
  }
  PlanReport report;
  report.calibration = arguments.calibration.empty() ? measure(session, arguments)
                                                     : read_calibration(arguments.calibration);
  if (saved) {
    saved->write(dump_json(to_json(report.calibration), 1) + "\n");
    saved->commit();
  }
  report.hardware = hardware_of(arguments, report.calibration, measured);
  report.options = {.global_batch = arguments.train.data.global_batch,
                    .weak = arguments.scaling == PlanArguments::Scaling::weak,
                    .buckets = arguments.train.trainer.buckets};
  if (!arguments.calibration.empty() && !arguments.has_batch)
    report.options.global_batch = report.calibration.timings.back().samples;
  report.options.samples =
      samples_of(arguments.train.fit, report.calibration, report.options.global_batch);
  report.plan = plan_scaling(report.calibration, report.hardware, report.options,
                             apps::parse_replica_counts(arguments.replicas));
  fmt::print("{}", arguments.train.output.json ? dump_json(plan_json(report)) + "\n"
                                               : printable(plan_text(report), "\n"));
  return 0;
}

}  // namespace

void add_plan_command(CLI::App& program, const Invocation& invocation, int& status) {
  CLI::App* command = program.add_subcommand(
      "plan",
      "Predict the speed and cost of a training on many replicas, from a minute on this machine\n\n"
      "All options of `lockstep train` are accepted, so that plan can replace train in a command; "
      "those of output, checkpoints and validation have no effect.\n\n"
      "Example:\n"
      "  lockstep plan --model cnn --data fashion-mnist --epochs 5 --link 1Gbit\n");
  const auto arguments = std::make_shared<PlanArguments>();
  add_train_options(*command, arguments->train, "Print only warnings, errors and the plan");
  hide_unlisted(*command);
  add_fields(*command, fields_of(*arguments));
  const auto print_config = add_config_options(*command);
  command->callback([=, &status] {
    if (*print_config) {
      std::vector<BoundField> fields = fields_of(arguments->train);
      std::ranges::move(fields_of(*arguments), std::back_inserter(fields));
      print_exactly(config_text(fields));
      return;
    }
    TrainArguments& train = arguments->train;
    arguments->has_batch = command->get_option("--global-batch")->count() > 0;
    if (!arguments->calibration.empty()) {  // the file contains the measurements
      if (train.model.empty()) train.model = "calibrated";
      if (train.data.data.empty()) train.data.data = "calibrated";
    }
    complete(train);
    status = run_session(invocation,
                         {.quiet = train.output.quiet,
                          .stall_timeout = train.place.options.stall_timeout,
                          .start_timeout = train.place.start_timeout,
                          .transport = train.place.transport},
                         [&](job::Session& session) { return make_plan(session, *arguments); });
  });
}

}  // namespace lockstep::inline v0::apps
