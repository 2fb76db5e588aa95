#include "lockstep/allreduce/transport/mpi/mpi_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/loaded_library.h"

namespace lockstep::inline v0::allreduce {
namespace {

/// A kind of MPI, and how its libraries are recognized.
struct KnownMpi {
  MpiKind kind;
  const char* name;
  const char* adapter;                        ///< the file of its adapter
  std::array<const char*, 2> files;           ///< names of its library, of which one may be null
  std::array<std::string_view, 3> described;  ///< one is in the library's description
};

constexpr std::array<KnownMpi, 2> kKnownMpis = {
    {{.kind = MpiKind::open_mpi,
      .name = "Open MPI 4 or 5",
      .adapter = "liblockstep_mpi_openmpi.so",
      .files = {"libmpi.so.40"},
      .described = {"Open MPI v4", "Open MPI v5"}},
     {.kind = MpiKind::mpich,
      .name = "MPICH or Intel MPI",
      .adapter = "liblockstep_mpi_mpich.so",
      .files = {"libmpi.so.12", "libmpich.so.12"},  // Debian has the second name
      .described = {"MPICH", "Intel(R) MPI", "MVAPICH"}}}};

/// An MPI library in this process.
struct LoadedMpi {
  const KnownMpi* known;
  const char* file;
  void* handle;
};

// The adapter finds the functions of the library only if they are global, and so do plugins of MPI.
std::optional<LoadedMpi> open_mpi_library(const KnownMpi& known, int flags,
                                          std::vector<std::string>* words = nullptr) {
  for (const char* file : known.files) {
    if (file == nullptr) continue;
    if (void* handle = dlopen(file, RTLD_LAZY | flags)) return LoadedMpi{&known, file, handle};
    const char* reason = dlerror();
    if (words != nullptr && reason != nullptr) words->emplace_back(reason);
  }
  return std::nullopt;
}

std::optional<LoadedMpi> mpi_of_process(int flags) {
  for (const KnownMpi& known : kKnownMpis)
    if (auto loaded = open_mpi_library(known, RTLD_NOLOAD | flags)) return loaded;
  return std::nullopt;
}

LoadedMpi find_mpi(std::span<const MpiKind> kinds) {
  if (const auto loaded = mpi_of_process(RTLD_GLOBAL)) return *loaded;
  std::vector<std::string> words;
  std::vector<std::string_view> names;
  for (const MpiKind kind : kinds) {
    const KnownMpi& known = *std::ranges::find(kKnownMpis, kind, &KnownMpi::kind);
    if (const auto loaded = open_mpi_library(known, RTLD_GLOBAL, &words)) return *loaded;
    names.emplace_back(known.name);
  }
  throw Error(ErrorCategory::communication, "mpi",
              fmt::format("expected {} for ranks that its launcher started",
                          fmt::join(names, ", or else ")),
              fmt::format("the loader reported \"{}\": install it, add its directory to "
                          "LD_LIBRARY_PATH, or start the ranks with lockstep launch, which needs "
                          "no MPI",
                          fmt::join(words, "\" and \"")));
}

std::string description_of(const MpiFunctions& mpi) {
  std::array<char, 4096> text{};
  mpi.describe(text.data(), static_cast<int>(text.size()));
  return text.data();
}

/// The first line of a description up to a comma, with single spaces.
std::string short_description(const std::string& whole) {
  std::string text = whole.substr(0, whole.find_first_of(",\n"));
  std::ranges::replace(text, '\t', ' ');
  const auto are_spaces = [](char a, char b) { return a == ' ' && b == ' '; };
  text.erase(std::unique(text.begin(), text.end(), are_spaces), text.end());
  return text;
}

const MpiFunctions& adapter_for(const LoadedMpi& loaded) {
  const LoadedLibrary adapter(
      {.name = "mpi",
       .file = loaded.known->adapter,
       .folder = LOCKSTEP_LIBRARY_FOLDER,
       .use = fmt::format("messages over {}", loaded.file),
       .advice = fmt::format("install a Lockstep that was built with {}", loaded.known->name),
       .category = ErrorCategory::communication});
  const MpiFunctions& mpi = *adapter.function<MpiAdapter>(kMpiAdapterName)();
  if (mpi.layout != kMpiLayout)
    throw Error(ErrorCategory::communication, "mpi",
                fmt::format("expected {} of this version of Lockstep", loaded.known->adapter),
                fmt::format("got interface {} in place of {}: install both from one build",
                            mpi.layout, kMpiLayout));
  const std::string text = description_of(mpi);
  const bool is_known = std::ranges::any_of(loaded.known->described, [&](std::string_view word) {
    return !word.empty() && text.find(word) != std::string::npos;
  });
  if (!is_known)
    throw Error(ErrorCategory::communication, "mpi",
                fmt::format("expected {} to be {}", loaded.file, loaded.known->name),
                fmt::format("it says that it is \"{}\"", short_description(text)));
  return mpi;
}

}  // namespace

bool program_has_mpi() {
  const auto loaded = mpi_of_process(0);
  if (!loaded) return false;
  const auto initialized =
      reinterpret_cast<int (*)(int*)>(dlsym(loaded->handle, "MPI_Initialized"));
  int answer = 0;
  if (initialized != nullptr) initialized(&answer);
  return answer != 0;
}

const MpiFunctions& load_mpi(std::span<const MpiKind> kinds) {
  static const MpiFunctions& mpi = adapter_for(find_mpi(kinds));
  return mpi;
}

const MpiFunctions& loaded_mpi() { return load_mpi({}); }

std::string mpi_built_versions() { return LOCKSTEP_MPI_ADAPTERS; }

std::string mpi_loaded_version(std::span<const MpiKind> kinds) try {
  return short_description(description_of(load_mpi(kinds)));
} catch (const Error&) {
  return "absent";
}

}  // namespace lockstep::inline v0::allreduce
