// Random choices about one sample.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "data/sample.h"
#include "device/random.h"

namespace lockstep::data {

/// The sequence of random numbers for one `purpose` ("flip") of one sample: a pure function of purpose, seed, epoch and
/// record id, so the same on every rank and thread, and untouched by what else is chosen for the sample.
class SampleRandom {
 public:
  SampleRandom(std::string_view purpose, const SampleKey& key);

  std::uint32_t word();
  /// In [0, 1), 32 bits of it.
  double unit() { return word() * 0x1p-32; }
  /// In [low, high).
  double between(double low, double high);
  /// 0 .. count-1, each as likely to within count / 2^32.
  int below(int count) { return static_cast<int>((std::uint64_t{word()} * static_cast<std::uint32_t>(count)) >> 32); }

 private:
  device::Philox generator_;
  std::uint64_t record_id_;
  std::uint64_t blocks_ = 0;
  std::array<std::uint32_t, 4> words_{};
  std::size_t used_ = 4;
};

}  // namespace lockstep::data
