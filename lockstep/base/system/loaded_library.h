// A shared library that is loaded on first use, so that the program starts without it.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

/// A library to load, and the parts of the error message if it is missing.
struct LibraryWanted {
  std::string name;    ///< "cuDNN"
  std::string file;    ///< file name for the dynamic loader: "libcudnn.so.9"
  std::string folder;  ///< directory to search after the loader's own, or empty
  std::string use;     ///< purpose: "layers on GPUs"
  std::string advice;  ///< what to do if it is missing: "install cuDNN 9"
  ErrorCategory category = ErrorCategory::device;  ///< category of all errors
};

/// A library loaded into this process. It is never unloaded, because its threads may run until the
/// process ends.
class LoadedLibrary {
 public:
  /// Throws Error (`category`) with the loader's message and the advice.
  explicit LoadedLibrary(LibraryWanted wanted);

  /// The library's function `name`, which has the type Function. Throws Error if it has none.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

  /// Throws Error if the major version `loaded` is older than `needed`, the version that
  /// this program was compiled for.
  void check_major_version(int loaded, int needed) const;

 private:
  void* find(const char* name) const;

  LibraryWanted wanted_;
  void* handle_;
};

}  // namespace lockstep::inline v0
