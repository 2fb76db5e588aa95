#include "lockstep/base/system/loaded_library.h"

#include <fmt/format.h>

#include <dlfcn.h>

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {
namespace {

// RTLD_LOCAL: the symbols of the library are found through its handle only and never override other
// definitions.
void* open(const std::string& file) { return dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL); }

std::string loader_words() {
  const char* words = dlerror();
  return fmt::format("\"{}\"", words == nullptr ? "nothing" : words);
}

}  // namespace

LoadedLibrary::LoadedLibrary(LibraryWanted wanted)
    : wanted_(std::move(wanted)), handle_(open(wanted_.file)) {
  if (handle_ != nullptr) return;
  std::string words = loader_words();
  if (!wanted_.folder.empty()) {
    handle_ = open(wanted_.folder + "/" + wanted_.file);
    if (handle_ != nullptr) return;
    words += " and " + loader_words();
  }
  throw Error(wanted_.category, wanted_.name,
              fmt::format("expected {} for {}", wanted_.file, wanted_.use),
              fmt::format("the loader reported {}: {}, or add its directory to LD_LIBRARY_PATH",
                          words, wanted_.advice));
}

void* LoadedLibrary::find(const char* name) const {
  if (void* found = dlsym(handle_, name)) return found;
  throw Error(wanted_.category, wanted_.name, fmt::format("expected {} in {}", name, wanted_.file),
              fmt::format("the loader reported {}: {}", loader_words(), wanted_.advice));
}

void LoadedLibrary::check_major_version(int loaded, int needed) const {
  if (loaded >= needed) return;
  throw Error(wanted_.category, wanted_.name,
              fmt::format("expected version {} for {}", needed, wanted_.use),
              fmt::format("{} is version {}: {}", wanted_.file, loaded, wanted_.advice));
}

}  // namespace lockstep::inline v0
