// The few things of TCP that the watch needs: an owner of a descriptor, a listener, a connection attempt with a limit.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::net {

/// Owns a file descriptor, or none (-1).
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();

  int get() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

class Listener {
 public:
  /// On all interfaces, IPv6 and IPv4; on `port`, or on one that the system picks. Throws Error (communication).
  explicit Listener(std::uint16_t port = 0);
  /// On this numeric address alone.
  Listener(const std::string& address, std::uint16_t port);

  int descriptor() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }
  /// A connection that has come in, non-blocking; none, and errno says why, where there is none.
  FileDescriptor accept() const;

 private:
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

/// Numeric addresses of this host under which others, or itself, may reach it: loopback first, then IPv4, then IPv6.
/// At most eight.
std::vector<std::string> host_addresses();
bool is_loopback(const std::string& address);
/// What the system calls this host; "?" where it does not say.
std::string host_name();

/// Connects within `limit`, non-blocking from then on. On failure there is no descriptor, and `why` is for people.
FileDescriptor connect_to(const std::string& address, std::uint16_t port, std::chrono::milliseconds limit,
                          std::string& why);

}  // namespace lockstep::net
