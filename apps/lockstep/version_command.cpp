#include <dnnl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/transport/mpi/mpi_loader.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/version.h"
#include "lockstep/device/gpu.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/model/cuda/library/cudnn_version.h"

namespace lockstep::inline v0::apps {

using Json = nlohmann::ordered_json;

namespace {

Json library(const std::string& built, const std::string& loaded) {
  return {{"built", built}, {"loaded", loaded}};
}

std::string onednn_loaded() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

void print_text(const Json& versions) {
  fmt::print("{}\n", version_line());
  for (const auto& [name, value] : versions.items()) {
    if (name == "version") continue;
    if (value.is_object())
      fmt::print("{:<10} built with {}, loaded {}\n", name, value["built"].get<std::string>(),
                 value["loaded"].get<std::string>());
    else
      fmt::print("{:<10} {}\n", name,
                 value.is_string() ? value.get<std::string>() : dump_json(value));
  }
}

}  // namespace

std::string version_line() { return "lockstep " LOCKSTEP_VERSION; }

Json program_versions() {
  return {{"version", LOCKSTEP_VERSION},
          {"compiler", LOCKSTEP_COMPILER},
          {"build", LOCKSTEP_BUILD},
          {"processor", cpu_name()},
          {"cores", available_cores()},
          {"mpi", library(allreduce::mpi_built_versions(),
                          allreduce::mpi_loaded_version(job::detect_launch().mpi))},
          {"onednn", library(fmt::format("{}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR,
                                         DNNL_VERSION_PATCH),
                             onednn_loaded())},
          {"cuda", library(device::cuda_built_version(), device::cuda_loaded_version())},
          {"cudnn", library(model::cudnn_built_version(), model::cudnn_loaded_version())},
          {"nccl", library(allreduce::nccl_built_version(), allreduce::nccl_loaded_version())}};
}

void add_version_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "version", "Print the versions that this program was built with and has loaded");
  const auto json = std::make_shared<bool>(false);
  add_json_option(*command, *json, "Print one JSON object");
  command->callback([json] {
    if (*json)
      fmt::print("{}\n", dump_json(program_versions()));
    else
      print_text(program_versions());
  });
}

}  // namespace lockstep::inline v0::apps
