// Preloaded, it takes SIGHUP before main runs, and does nothing with it: what UCX does, which Open
// MPI loads.
#include <csignal>

namespace {

[[gnu::constructor]] void take() {
  std::signal(SIGHUP, [](int) {});
}

}  // namespace
