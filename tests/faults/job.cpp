#include "tests/faults/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/paths.h"
#include "tests/support/mpirun.h"

namespace lockstep::inline v0::faults {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kPollInterval(5);
constexpr double kPatience = 60;       // seconds to wait for output
constexpr double kTidyingSeconds = 5;  // time to remove files and processes after the end of mpirun

std::string read_file(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<pid_t> process_of(const fs::path& folder) {
  const std::string name = folder.filename();
  if (name.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return static_cast<pid_t>(std::stol(name));
}

/// Calls visit(pid, folder in /proc) for all processes.
template <typename Visit>
void for_each_process(Visit visit) {
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone))
    if (const auto process = process_of(entry.path())) visit(*process, entry.path());
}

bool is_mapped_somewhere(const fs::path& file) {
  bool mapped = false;
  for_each_process([&](pid_t /*process*/, const fs::path& folder) {
    mapped = mapped || read_file(folder / "maps").find(file.string()) != std::string::npos;
  });
  return mapped;
}

[[noreturn]] void become(const std::vector<std::string>& command, const fs::path& log) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // if the test itself ends
  const int nothing = open("/dev/null", O_RDONLY);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  setpgid(0, 0);
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  _exit(127);
}

}  // namespace

std::vector<std::string> Outcome::lines_with(const std::string& text) const {
  std::vector<std::string> lines;
  std::istringstream stream(output);
  for (std::string line; std::getline(stream, line);)
    if (line.find(text) != std::string::npos) lines.push_back(line);
  return lines;
}

Job::Job(int ranks, const std::string& arguments) { start(mpirun_on(ranks), arguments); }

Job::Job(std::vector<std::string> launcher, const std::string& arguments) {
  start(std::move(launcher), arguments);
}

void Job::start(std::vector<std::string> command, const std::string& arguments) {
  static int number = 0;
  name_ = fmt::format("faults-{}-{}.", getpid(), number++);
  log_ = fs::temp_directory_path() / fmt::format("lockstep-{}log", name_);
  for (const std::string& word :
       {std::string(LOCKSTEP_FAULTY_TRAINING), std::string("--job"), name_})
    command.push_back(word);
  std::istringstream words(arguments);
  for (std::string word; words >> word;) command.push_back(word);
  launcher_ = fork();
  if (launcher_ < 0) throw std::runtime_error("no process");
  if (launcher_ == 0) become(command, log_);
}

Job::~Job() {
  if (!has_ended()) {
    kill(launcher_, SIGKILL);
    waitpid(launcher_, nullptr, 0);
  }
  end_all();
  fs::remove(log_);
}

std::string Job::output() const {
  std::string text = read_file(log_);
  std::erase(text, '\0');  // the mpirun of Open MPI 5 adds them to some output
  return text;
}

bool Job::wait_for(const std::string& text) {
  for (const auto begin = Clock::now();
       Clock::now() - begin < std::chrono::duration<double>(kPatience);) {
    const bool ended = has_ended();  // queried first, so that the last output is checked
    if (output().find(text) != std::string::npos) return true;
    if (ended) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return false;
}

pid_t Job::rank(int rank) {
  const std::string words = fmt::format("rank {} is process ", rank);
  if (!wait_for(words)) throw std::runtime_error("no " + words + ":\n" + output());
  const std::string text = output();
  return static_cast<pid_t>(std::stol(text.substr(text.find(words) + words.size())));
}

std::vector<pid_t> Job::processes() const {
  std::vector<pid_t> found;
  for_each_process([&](pid_t process, const fs::path& folder) {
    if (read_file(folder / "cmdline").find(name_) != std::string::npos) found.push_back(process);
  });
  return found;
}

void Job::end_all() const {
  for (const pid_t process : processes()) kill(process, SIGKILL);
}

bool Job::has_ended() {
  int status = 0;
  if (status_ < 0 && waitpid(launcher_, &status, WNOHANG) == launcher_)
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_ >= 0;
}

Outcome Job::finish(double seconds_at_most) {
  while (!has_ended() && seconds() < seconds_at_most) std::this_thread::sleep_for(kPollInterval);
  Outcome outcome;
  const auto deadline = Clock::now() + std::chrono::duration<double>(kTidyingSeconds);
  do {
    outcome.seconds = seconds();
    outcome.left_behind = left_behind();
    if (outcome.left_behind.empty() || status_ < 0) break;
    std::this_thread::sleep_for(kPollInterval);
  } while (Clock::now() < deadline);
  outcome.status = status_;
  outcome.output = output();
  end_all();
  return outcome;
}

std::string Job::left_behind() const {
  std::string found;
  for (const pid_t process : processes()) found += fmt::format("process {}; ", process);
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path(), gone)) {
    const fs::path session = entry.path() / fmt::format("pid.{}", launcher_);  // mpirun's
    if (entry.path().filename().string().starts_with("ompi.") && fs::exists(session, gone))
      found += fmt::format("{}; ", session.string());
  }
  // Files that are mapped belong to other jobs.
  for (const auto& entry : fs::directory_iterator("/dev/shm", gone)) {
    struct stat status {};
    if (stat(entry.path().c_str(), &status) != 0 || status.st_uid != getuid()) continue;
    if (entry.last_write_time(gone) >= begin_ && !is_mapped_somewhere(entry.path()))
      found += fmt::format("{}; ", entry.path().string());
  }
  return found;
}

}  // namespace lockstep::inline v0::faults
