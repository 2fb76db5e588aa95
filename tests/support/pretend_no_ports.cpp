// Preloaded, it simulates a host on which no program can listen for connections.
#include <cerrno>

extern "C" int listen(int /*socket*/, int /*backlog*/) {
  errno = EADDRINUSE;
  return -1;
}
