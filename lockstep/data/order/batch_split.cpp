#include "lockstep/data/order/batch_split.h"

#include "lockstep/base/error.h"

namespace lockstep::data {

Range split(std::int64_t total, std::int64_t parts, std::int64_t part) {
  LOCKSTEP_CHECK_OP(total, >=, 0);
  LOCKSTEP_CHECK_OP(parts, >=, 1);
  LOCKSTEP_CHECK_OP(part, >=, 0);
  LOCKSTEP_CHECK_OP(part, <, parts);
  // part * total / parts without overflow: with total = q*parts + r, it is part*q + part*r/parts, where r < parts.
  const std::int64_t quotient = total / parts;
  const std::int64_t remainder = total % parts;
  const auto begin_of = [&](std::int64_t p) { return p * quotient + p * remainder / parts; };
  return {begin_of(part), begin_of(part + 1)};
}

// Part p has one more if (p + turn) * remainder / parts passes an integer. Summed over turns, these are the integers
// between two numbers at a distance of turns * remainder / parts, for every part.
Range split_in_turn(std::int64_t total, std::int64_t parts, std::int64_t part, std::int64_t turn) {
  LOCKSTEP_CHECK(part >= 0 && part < parts && turn >= 0);
  const std::int64_t quotient = total / parts;
  const std::int64_t remainder = total % parts;
  turn %= parts;
  const auto begin_of = [&](std::int64_t p) {
    return p * quotient + (p + turn) * remainder / parts - turn * remainder / parts;
  };
  return {begin_of(part), begin_of(part + 1)};
}

}  // namespace lockstep::data
