// Preloaded, it installs an empty SIGHUP handler before main runs, as UCX does, which Open MPI
// loads.
#include <csignal>

namespace {

[[gnu::constructor]] void take() {
  std::signal(SIGHUP, [](int) {});
}

}  // namespace
