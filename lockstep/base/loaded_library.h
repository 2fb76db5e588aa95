// A shared library that is loaded when it is first needed, so that a program starts without it.
#pragma once

#include <string>

namespace lockstep {

/// Which library, and what to tell where it is missing.
struct LibraryWanted {
  std::string name;    ///< "cuDNN"
  std::string file;    ///< what the loader looks for: "libcudnn.so.9"
  std::string folder;  ///< where to look after the loader's own places, or empty
  std::string use;     ///< what it is for: "layers on GPUs"
  std::string advice;  ///< what to do where it is missing: "install cuDNN 9"
};

/// A library in this process. It stays there: what it started may run until the process ends.
class LoadedLibrary {
 public:
  /// Loads it. Throws Error (device) with the loader's words and the advice.
  explicit LoadedLibrary(LibraryWanted wanted);

  /// The library's function `name`, which has the type Function. Throws Error (device) if it has none.
  template <typename Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(find(name));
  }

  /// Throws Error (device) if the library's major version is older than `needed`, the one that this program was
  /// compiled for.
  void check_major_version(int loaded, int needed) const;

 private:
  void* find(const char* name) const;

  LibraryWanted wanted_;
  void* handle_;
};

}  // namespace lockstep
