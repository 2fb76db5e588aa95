// Starts ranks for tests: with the launcher of the linked MPI, and options that allow more ranks
// than cores, and root in a container (LOCKSTEP_MPIRUN, mpi_test.cmake).
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace lockstep::inline v0 {

/// The arguments before those of the program.
inline std::vector<std::string> mpirun_on(int ranks) {
  std::istringstream text(LOCKSTEP_MPIRUN);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  words.emplace_back("-np");
  words.push_back(std::to_string(ranks));
  return words;
}

/// For a shell, without a trailing space.
inline std::string mpirun_line_on(int ranks) {
  std::string line = LOCKSTEP_MPIRUN " -np ";
  line += std::to_string(ranks);
  return line;
}

}  // namespace lockstep::inline v0
