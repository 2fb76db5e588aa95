#include "tests/apps/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/paths.h"
#include "tests/support/mpirun.h"

namespace lockstep::inline v0::apps {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

/// The children of all threads of the process.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::error_code gone;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", process), gone);
  for (; thread != std::filesystem::directory_iterator(); thread.increment(gone)) {
    std::ifstream list(thread->path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

[[noreturn]] void become(const std::vector<std::string>& command, int output,
                         const std::filesystem::path& errors) {
  dup2(output, STDOUT_FILENO);
  const int file = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(file, STDERR_FILENO);
  setpgid(0, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

}  // namespace

std::vector<nlohmann::json> Result::events() const {
  std::vector<nlohmann::json> events;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    events.push_back(nlohmann::json::parse(line, nullptr, false));
    if (events.back().is_discarded()) ADD_FAILURE() << "no JSON: " << line;
  }
  return events;
}

nlohmann::json Result::event(const std::string& kind) const {
  const auto all = events();
  const auto last = std::find_if(all.rbegin(), all.rend(),
                                 [&](const auto& event) { return event["event"] == kind; });
  if (last != all.rend()) return *last;
  ADD_FAILURE() << "no event " << kind << " in\n" << output << errors;
  return nlohmann::json::object();
}

std::vector<double> Result::losses() const {
  std::vector<double> losses;
  for (const auto& event : events())
    if (event["event"] == "step") losses.push_back(event["loss"]);
  return losses;
}

Process::Process(const std::vector<std::string>& command) {
  static int number = 0;
  errors_ = std::filesystem::temp_directory_path() /
            fmt::format("lockstep-errors-{}-{}", getpid(), number++);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  id_ = fork();
  if (id_ == 0) become(command, ends[1], errors_);
  close(ends[1]);
  output_ = ends[0];
}

Process::~Process() {
  if (id_ > 0) {
    ::kill(-id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  close(output_);
  std::filesystem::remove(errors_);
}

std::vector<pid_t> Process::children() const { return children_of(id_); }

std::vector<pid_t> Process::descendants() const {
  std::vector<pid_t> found = children();
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<pid_t> more = children_of(found[i]);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

bool Process::wait_for(const std::string& text) {
  std::array<char, 4096> buffer{};
  while (read_.find(text) == std::string::npos) {
    const ssize_t got = read(output_, buffer.data(), buffer.size());
    if (got <= 0) return false;
    read_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

void Process::kill(int signal) const {
  if (id_ > 0) ::kill(id_, signal);  // -1 would be all processes
}

Result Process::finish() {
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(output_, buffer.data(), buffer.size())) > 0;)
    read_.append(buffer.data(), static_cast<std::size_t>(got));
  int status = 0;
  waitpid(id_, &status, 0);
  id_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_,
          read_file(errors_)};
}

Watched::Watched(pid_t id) : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, id, 0))) {}

Watched::~Watched() { close(descriptor_); }

bool Watched::ends_within(int seconds) const {
  pollfd ended{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return poll(&ended, 1, seconds * 1000) == 1;
}

std::vector<std::vector<double>> numbers_of(const std::string& table) {
  std::vector<std::vector<double>> rows;
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    rows.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');)
      rows.back().push_back(std::stod(field));
  }
  return rows;
}

std::vector<std::string> lockstep(const std::string& arguments) {
  std::vector<std::string> command = words(arguments);
  const auto has = [&](const char* option) {
    return std::ranges::find(command, option) != command.end();
  };
  if (!command.empty() && command.front() == "train" && has("--data") && !has("--checkpoint-dir") &&
      !has("--config"))
    command.insert(command.begin() + 1, {"--checkpoint-dir", "none"});
  command.insert(command.begin(), LOCKSTEP_PROGRAM);
  return command;
}

std::vector<std::string> mpirun(int ranks, const std::string& arguments) {
  return mpirun(ranks, lockstep(arguments));
}

std::vector<std::string> mpirun(int ranks, const std::vector<std::string>& started) {
  std::vector<std::string> command = mpirun_on(ranks);
  command.insert(command.end(), started.begin(), started.end());
  return command;
}

Result run(const std::vector<std::string>& command) { return Process(command).finish(); }

}  // namespace lockstep::inline v0::apps
