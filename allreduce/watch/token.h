#pragma once

#include <string>

namespace lockstep::allreduce {

/// A text that nobody guesses, by which those who were told of it know each other: 32 hexadecimal digits.
std::string random_token();

}  // namespace lockstep::allreduce
