// Preloaded, it raises the signal of the variable LOCKSTEP_TEST_SIGNAL before main runs.
#include <csignal>
#include <cstdlib>

namespace {

[[gnu::constructor]] void raise_it() {
  if (const char* const number = std::getenv("LOCKSTEP_TEST_SIGNAL")) std::raise(std::atoi(number));
}

}  // namespace
