#include "lockstep/base/system/loaded_library.h"

#include <fmt/format.h>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/forwarded_function.h"

// zlib, which this program is not linked with, and a library that does not exist.
extern "C" {
const char* zlibVersion();
unsigned long adler32(unsigned long sum, const unsigned char* data, unsigned bytes);
int zlib_has_no_such_function(int value);
int made_up_add(int a, int b);
}

namespace {

using lockstep::LibraryWanted;
using lockstep::LoadedLibrary;

const LibraryWanted kZlib = {.name = "zlib",
                             .file = "libz.so.1",
                             .folder = "",
                             .use = "gzip files",
                             .advice = "install zlib1g"};
const LibraryWanted kMadeUp = {.name = "made-up",
                               .file = "liblockstep_made_up.so.7",
                               .folder = "",
                               .use = "this test",
                               .advice = "install it"};

const LoadedLibrary& zlib() {
  static const LoadedLibrary library(kZlib);
  return library;
}

const LoadedLibrary& made_up() {
  static const LoadedLibrary library(kMadeUp);
  return library;
}

}  // namespace

LOCKSTEP_FORWARD(zlib, zlibVersion)
LOCKSTEP_FORWARD(zlib, adler32)
LOCKSTEP_FORWARD(zlib, zlib_has_no_such_function)
LOCKSTEP_FORWARD(made_up, made_up_add)

namespace lockstep::inline v0 {
namespace {

using ::testing::StartsWith;

std::string device_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::device);
    return error.what();
  }
  return "no error";
}

constexpr std::string_view kMissing =
    "[made-up] expected liblockstep_made_up.so.7 for this test; the loader reported "
    "\"liblockstep_made_up.so.7: cannot open shared object file: No such file or directory\"";
constexpr std::string_view kWhatToDo = ": install it, or add its directory to LD_LIBRARY_PATH";

TEST(LoadedLibrary, FailsIfMissing) {
  EXPECT_EQ(device_error([] { LoadedLibrary library(kMadeUp); }),
            fmt::format("{}{}", kMissing, kWhatToDo));
}

TEST(LoadedLibrary, NamesTheFoldersSearched) {
  LibraryWanted wanted = kMadeUp;
  wanted.folder = "/nowhere";
  EXPECT_EQ(device_error([&] { LoadedLibrary library(wanted); }),
            fmt::format("{} and \"/nowhere/liblockstep_made_up.so.7: cannot open shared object "
                        "file: No such file or directory\"{}",
                        kMissing, kWhatToDo));
}

TEST(LoadedLibrary, IsFoundInItsFolder) {
  Dl_info zlib_file{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(zlib().function<decltype(zlibVersion)>("zlibVersion")),
                   &zlib_file),
            0);
  LibraryWanted wanted = kMadeUp;
  wanted.folder = ::testing::TempDir() + fmt::format("loaded_library_{}", getpid());
  std::filesystem::create_directories(wanted.folder);
  std::filesystem::create_symlink(zlib_file.dli_fname, wanted.folder + "/" + wanted.file);
  const LoadedLibrary library(wanted);
  EXPECT_STREQ(library.function<decltype(zlibVersion)>("zlibVersion")(), zlibVersion());
  std::filesystem::remove_all(wanted.folder);
}

TEST(LoadedLibrary, FailsIfTooOld) {
  EXPECT_EQ(device_error([] { zlib().check_major_version(1, 2); }),
            "[zlib] expected version 2 for gzip files; libz.so.1 is version 1: install zlib1g");
  EXPECT_EQ(device_error([] { zlib().check_major_version(2, 2); }), "no error");
  EXPECT_EQ(device_error([] { zlib().check_major_version(3, 2); }), "no error");
}

// Forwarding functions, with the names of the library's functions.
TEST(ForwardedFunction, CallsTheLibrary) {
  EXPECT_THAT(zlibVersion(), StartsWith("1."));
  const unsigned char text[] = {'a', 'b', 'c'};
  EXPECT_EQ(adler32(1, text, 3), 0x024d0127UL);
}

TEST(ForwardedFunction, FailsIfTheLibraryIsMissing) {
  for (int call = 0; call < 2; ++call)
    EXPECT_EQ(device_error([] { made_up_add(1, 2); }), fmt::format("{}{}", kMissing, kWhatToDo));
}

TEST(ForwardedFunction, FailsIfTheLibraryHasNoSuchFunction) {
  const std::string message = device_error([] { zlib_has_no_such_function(1); });
  EXPECT_THAT(
      message,
      StartsWith("[zlib] expected zlib_has_no_such_function in libz.so.1; the loader reported \""));
  EXPECT_THAT(message, ::testing::EndsWith("\": install zlib1g"));
}

}  // namespace
}  // namespace lockstep::inline v0
