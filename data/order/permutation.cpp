#include "data/order/permutation.h"

#include <bit>

#include "device/error.h"
#include "device/random.h"

namespace lockstep::data {
namespace {

/// A bijection of 64-bit words in which every input bit moves every output bit: two rounds of multiply and fold.
std::uint64_t mix(std::uint64_t word) {
  word = (word ^ (word >> 32)) * 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 29)) * 0xd6e8feb86659fd93u;
  return word ^ (word >> 32);
}

}  // namespace

Permutation::Permutation(std::uint64_t key, std::int64_t size)
    : size_(static_cast<std::uint64_t>(size)), rounds_(size < kFew ? kRoundsOfFew : kRounds) {
  LOCKSTEP_CHECK_OP(size, >=, 1);
  const int bits = static_cast<int>(std::bit_width(size_ - 1));
  low_bits_ = (bits + 1) / 2;
  low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
  high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  const device::Philox generator(key);
  for (std::size_t round = 0; round < rounds_; round += 2) {
    const auto words = generator.block(size_, round);
    round_keys_[round] = (std::uint64_t{words[0]} << 32) | words[1];
    round_keys_[round + 1] = (std::uint64_t{words[2]} << 32) | words[3];
  }
}

std::uint64_t Permutation::permute(std::uint64_t value) const {
  std::uint64_t low = value & low_mask_;
  std::uint64_t high = value >> low_bits_;
  for (std::size_t round = 0; round < rounds_; round += 2) {
    high ^= mix(low ^ round_keys_[round]) & high_mask_;
    low ^= mix(high ^ round_keys_[round + 1]) & low_mask_;
  }
  return (high << low_bits_) | low;
}

std::int64_t Permutation::operator[](std::int64_t position) const {
  auto value = static_cast<std::uint64_t>(position);
  LOCKSTEP_CHECK_OP(value, <, size_);
  do value = permute(value);
  while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace lockstep::data
