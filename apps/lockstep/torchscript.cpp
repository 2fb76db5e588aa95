#include "apps/lockstep/torchscript.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/system/loaded_library.h"
#include "lockstep/base/version.h"
#include "lockstep/interop/torch/module/torchscript_plugin.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kZipBegin = "PK\x03\x04";
/// A file that archives of torch.jit.save have, and those of torch.save do not.
constexpr std::string_view kScriptMember = "/constants.pkl";

[[noreturn]] void refuse_script(std::string_view expected, const std::string& actual) {
  throw Error(ErrorCategory::input, "model", expected, actual);
}

/// The directory of an archive is searched in this many bytes at its end.
constexpr std::size_t kDirectoryBytes = std::size_t{1} << 20;

std::string read_contents(const fs::path& file) try {
  const InputFile input(file, ErrorCategory::input);
  std::string content(static_cast<std::size_t>(input.stamp().size), '\0');
  content.resize(input.read_at(0, content.data(), content.size()));
  return content;
} catch (const Error& error) {
  refuse_script("expected a TorchScript file that can be read",
                fmt::format("{}: {}", file.string(), error.message().actual));
}

LoadedLibrary load_plugin(const fs::path& file) {
  LoadedLibrary loaded({.name = "model",
                        .file = file.string(),
                        .folder = "",
                        .use = "TorchScript files",
                        .advice = "install the LibTorch that it was built with",
                        .category = ErrorCategory::input});
  const std::string version = loaded.function<torch::PluginVersion>(torch::kPluginVersionName)();
  if (version != LOCKSTEP_VERSION)
    refuse_script(
        fmt::format("expected {} of Lockstep {}", file.string(), LOCKSTEP_VERSION),
        fmt::format("got version {}: install lockstep and lockstep-torch of one version", version));
  return loaded;
}

const LoadedLibrary& plugin() {
  static const LoadedLibrary loaded = [] {
    std::error_code unknown;
    // "/" if /proc cannot be read: never the working directory
    const fs::path here = "/" / fs::read_symlink("/proc/self/exe", unknown).parent_path();
    const std::array folders = {here, (here / "../lib/lockstep").lexically_normal()};
    for (const fs::path& folder : folders)
      if (const fs::path file = folder / torch::kTorchScriptPlugin; fs::exists(file, unknown))
        return load_plugin(file);
    refuse_script(
        "expected the package lockstep-torch to be installed, or a build with LibTorch "
        "(LOCKSTEP_TORCH=ON), for a TorchScript file",
        fmt::format("there is no {} in {} or {}", torch::kTorchScriptPlugin, folders[0].string(),
                    folders[1].string()));
  }();
  return loaded;
}

}  // namespace

bool is_torchscript(const std::string& name) {
  for (const char* extension : {".pt", ".pth", ".ts"})
    if (name.ends_with(extension)) return true;
  // A file with the name of a network does not count.
  std::error_code unknown;
  if (name.find_first_of("./") == std::string::npos || !fs::is_regular_file(name, unknown))
    return false;
  std::array<char, kZipBegin.size()> begin{};
  std::ifstream(name, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) == kZipBegin;
}

std::shared_ptr<const std::string> read_torchscript(const fs::path& file) {
  auto content = std::make_shared<const std::string>(read_contents(file));
  constexpr const char* kExpected =
      "expected a TorchScript file, which torch.jit.script(module).save(FILE) writes, or "
      "torch.jit.trace";
  if (!content->starts_with(kZipBegin))
    refuse_script(kExpected, fmt::format("got {}, which is another format", file.string()));
  const std::size_t end = content->size() - std::min(content->size(), kDirectoryBytes);
  if (content->find(kScriptMember, end) == std::string::npos)
    refuse_script(kExpected,
                  fmt::format("got {}, which has no code: torch.save writes tensors, and a "
                              "state_dict does not say what to compute",
                              file.string()));
  return content;
}

model::Network torchscript_network(const fs::path& file,
                                   const std::shared_ptr<const std::string>& content,
                                   std::span<const zoo::DataInput> inputs) {
  std::vector<model::NetworkInput> read;
  std::vector<model::NodeId> ids;
  for (const zoo::DataInput& input : inputs) {
    ids.push_back(model::kInput - static_cast<model::NodeId>(read.size()));
    read.push_back(input.input);
    // Pixels are converted when they are read.
    if (read.back().type == ElementType::uint8) read.back().type = ElementType::float32;
  }
  const std::string name = file.stem().string();
  const bool reads_numbers = read.front().type == ElementType::float32;
  // Like a network of --model NAME, the only input is that of the data, whatever its name.
  model::Network network = read.size() == 1 && reads_numbers
                               ? model::Network(read.front().shape, name)
                               : model::Network(std::span<const model::NetworkInput>(read), name);
  std::shared_ptr<const model::Layer> layer;
  plugin().function<torch::MakeScriptLayer>(torch::kMakeScriptLayerName)(
      content, file.string(), reads_numbers ? 0 : inputs.front().categories, layer);
  network.add_node(std::move(layer), std::move(ids), "");
  return network;
}

}  // namespace lockstep::inline v0::apps
