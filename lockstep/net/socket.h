// TCP sockets: an owning file descriptor, a listener, and connecting with a timeout.
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

/// A listening TCP socket, non-blocking.
class Listener {
 public:
  /// Listens on all interfaces, IPv6 and IPv4, on `port`; 0: a port that the system chooses. Throws Error
  /// (communication).
  explicit Listener(std::uint16_t port = 0);
  /// Listens on this numeric address only.
  Listener(const std::string& address, std::uint16_t port);

  int descriptor() const { return socket_.get(); }
  std::uint16_t port() const { return port_; }
  /// Accepts a connection; its socket is non-blocking. Not open, with errno set, if there is none.
  FileDescriptor accept() const;

 private:
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

/// Numeric addresses at which this host or others may reach it: loopback first, then IPv4, then IPv6. At most eight.
std::vector<std::string> host_addresses();
bool is_loopback(const std::string& address);
/// The name of this host; "?" if unknown.
std::string host_name();

/// Connects within `limit`; the socket is non-blocking. On failure, the result is not open and `why` is a
/// human-readable reason.
FileDescriptor connect_to(const std::string& address, std::uint16_t port, std::chrono::milliseconds limit,
                          std::string& why);

}  // namespace lockstep::net
