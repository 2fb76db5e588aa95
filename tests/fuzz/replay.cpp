// Runs a fuzzer without libFuzzer, with any compiler:
//
//     replay_NAME [--mutants N] [--seconds S] [--seed K] FOLDER...
//
// Reads every file of the folders unchanged, truncated at every byte, and with each bit flipped (at
// some 4,096 bytes of a larger file); then N mutants of them, or mutants for S seconds. A mutant is
// a function of the folders, the seed and its number, so failures are reproducible.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;
using lockstep::fuzz::try_untrusted;
using Input = std::vector<std::uint8_t>;

/// Positions at which a file is truncated and bits are flipped.
constexpr std::size_t kMaxPlaces = 4096;
constexpr std::size_t kMaxMutant = std::size_t{64} << 10U;

Input read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void replay(Input bytes) {
  try_untrusted(bytes);
  const std::size_t stride = 1 + bytes.size() / kMaxPlaces;
  for (std::size_t size = 0; size < bytes.size(); size += stride) {
    // A copy of exactly this size, so that the address sanitizer detects reads past its end.
    try_untrusted(Input(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)));
  }
  for (std::size_t at = 0; at < bytes.size(); at += stride) {
    std::uint8_t& byte = bytes[at];
    const std::uint8_t intact = byte;
    for (int bit = 0; bit < 8; ++bit) {
      byte = static_cast<std::uint8_t>(intact ^ (1 << bit));
      try_untrusted(bytes);
    }
    byte = intact;
  }
}

/// Makes mutant `number` of `inputs`, which are not empty.
class Mutation {
 public:
  Mutation(const std::vector<Input>& inputs, std::uint64_t seed, std::uint64_t number)
      : inputs_(inputs), random_(seed * 1'000'000'007 + number) {}

  Input make() {
    bytes_ = any_input();
    for (std::size_t changes = 1 + below(8); changes > 0; --changes) change();
    bytes_.resize(std::min(bytes_.size(), kMaxMutant));
    return std::move(bytes_);
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const Input& any_input() { return inputs_[below(inputs_.size())]; }

  /// A part of `of`, most often short.
  Input part(const Input& of) {
    const std::size_t begin = below(of.size());
    const std::size_t size = below(std::min(of.size() - begin, std::size_t{1} << below(14)) + 1);
    const auto from = of.begin() + static_cast<std::ptrdiff_t>(begin);
    return {from, from + static_cast<std::ptrdiff_t>(size)};
  }

  void insert(const Input& what) {
    bytes_.insert(bytes_.begin() + static_cast<std::ptrdiff_t>(below(bytes_.size() + 1)),
                  what.begin(), what.end());
  }

  void overwrite(const Input& what) {
    const std::size_t begin = below(bytes_.size());
    std::copy_n(what.begin(), std::min(what.size(), bytes_.size() - begin),
                bytes_.begin() + static_cast<std::ptrdiff_t>(begin));
  }

  /// An integer of 1 to 8 bytes near a limit, in either order.
  Input number() {
    std::uint64_t value = (std::uint64_t{1} << below(64)) - below(3);
    Input written(std::size_t{1} << below(4));
    for (std::uint8_t& byte : written) {
      byte = static_cast<std::uint8_t>(value);
      value >>= 8U;
    }
    if (below(2) == 0) std::ranges::reverse(written);
    return written;
  }

  void change() {
    switch (below(8)) {
      case 0:
        if (!bytes_.empty())
          bytes_[below(bytes_.size())] ^= static_cast<std::uint8_t>(1U << below(8));
        return;
      case 1:
        return overwrite({static_cast<std::uint8_t>(random_())});
      case 2:
        return overwrite(number());
      case 3:
        return insert(part(any_input()));
      case 4:
        return overwrite(part(any_input()));
      case 5: {  // repeats a part
        const Input piece = part(bytes_);
        for (std::size_t times = std::size_t{1} << below(10);
             times > 0 && bytes_.size() < kMaxMutant; --times)
          insert(piece);
        return;
      }
      case 6: {
        const std::size_t begin = below(bytes_.size());
        const std::size_t size = part(bytes_).size();
        bytes_.erase(
            bytes_.begin() + static_cast<std::ptrdiff_t>(begin),
            bytes_.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, bytes_.size())));
        return;
      }
      default: {  // another decimal number
        const auto digit =
            std::ranges::find_if(bytes_.begin() + static_cast<std::ptrdiff_t>(below(bytes_.size())),
                                 bytes_.end(), [](int byte) { return byte >= '0' && byte <= '9'; });
        if (digit == bytes_.end()) return;
        const std::string text = std::to_string((std::uint64_t{1} << below(64)) - below(3));
        bytes_.insert(bytes_.erase(digit), text.begin(), text.end());
      }
    }
  }

  const std::vector<Input>& inputs_;
  std::mt19937_64 random_;
  Input bytes_;
};

volatile sig_atomic_t current_number = 0;
std::array<struct sigaction, NSIG> actions_before;

/// Writes the number of the mutant that crashed, and returns, so that the signal ends the process
/// or a sanitizer reports it.
extern "C" void report_mutant(int signal) {
  std::array<char, 32> text{};
  std::size_t at = text.size();
  text[--at] = '\n';
  for (auto left = static_cast<unsigned>(current_number); at > 0; left /= 10) {
    text[--at] = static_cast<char>('0' + left % 10);
    if (left < 10) break;
  }
  constexpr std::string_view kTold = "ended by mutant ";
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, kTold.data(), kTold.size());
  written = ::write(STDERR_FILENO, text.data() + at, text.size() - at);
  ::sigaction(signal, &actions_before[static_cast<std::size_t>(signal)], nullptr);
}

void report_mutants() {
  struct sigaction action = {};
  action.sa_handler = report_mutant;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    ::sigaction(signal, &action, &actions_before[static_cast<std::size_t>(signal)]);
}

struct Arguments {
  std::vector<fs::path> folders;
  std::uint64_t mutants = 0;
  double seconds = 0;
  std::uint64_t seed = 1;
  std::int64_t only = -1;  ///< the mutant to write to standard output
};

void try_mutants(const std::vector<Input>& inputs, const Arguments& arguments) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.seconds);
  std::uint64_t number = 0;
  for (; number < arguments.mutants || std::chrono::steady_clock::now() < end; ++number) {
    current_number = static_cast<sig_atomic_t>(number);
    try {
      try_untrusted(Mutation(inputs, arguments.seed, number).make());
    } catch (const std::exception& error) {
      throw std::runtime_error(
          fmt::format("mutant {} of seed {}: {}", number, arguments.seed, error.what()));
    }
  }
  fmt::print("{} mutants\n", number);
}

int run(const Arguments& arguments) {
  std::vector<fs::path> files;
  for (const fs::path& folder : arguments.folders)
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);  // a mutant must not depend on the order of a directory
  std::vector<Input> inputs;
  for (const fs::path& file : files) inputs.push_back(read_all(file));
  if (inputs.empty()) return 1;
  if (arguments.only >= 0) {
    const Input mutant =
        Mutation(inputs, arguments.seed, static_cast<std::uint64_t>(arguments.only)).make();
    std::fwrite(mutant.data(), 1, mutant.size(), stdout);
    return 0;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    try {
      replay(inputs[i]);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", files[i].string(), error.what());
      return 1;
    }
  }
  fmt::print("{} files\n", files.size());
  report_mutants();
  try {
    try_mutants(inputs, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App program("Replays the corpus of a fuzzer, and mutants of it");
  program.add_option("FOLDER", arguments.folders, "Folders of inputs")->required();
  program.add_option("--mutants", arguments.mutants, "At least so many mutants");
  program.add_option("--seconds", arguments.seconds, "Mutants for at least so long");
  program.add_option("--seed", arguments.seed, "Of the mutants");
  program.add_option("--print", arguments.only, "Print mutant N and exit");
  CLI11_PARSE(program, argc, argv);
  return run(arguments);
}
