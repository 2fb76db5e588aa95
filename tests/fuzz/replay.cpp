// Runs a fuzzer without libFuzzer, with any compiler: every file of the folders named on the
// command line as it is, cut short at every byte, and with each bit flipped. What it finds is found
// every time.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using lockstep::fuzz::try_untrusted;

std::vector<std::uint8_t> read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void replay(std::vector<std::uint8_t> bytes) {
  try_untrusted(bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of just this size, so that the address sanitizer sees who reads behind it.
    try_untrusted(std::vector<std::uint8_t>(bytes.begin(),
                                            bytes.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  for (std::uint8_t& byte : bytes) {
    const std::uint8_t intact = byte;
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<std::uint8_t>(intact ^ (1 << bit));
      try_untrusted(bytes);
    }
    byte = intact;
  }
}

int replay_folders(int count, char** folders) {
  int files = 0;
  for (int i = 0; i < count; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(folders[i])) {
      try {
        replay(read_all(entry.path()));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", entry.path().c_str(), error.what());
        return 1;
      }
      ++files;
    }
  }
  std::printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return replay_folders(argc - 1, argv + 1); }
