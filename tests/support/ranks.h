// Groups for tests: members as threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/groups/groups.h"

namespace lockstep::inline v0::allreduce {

/// The work of one member.
using MemberBody = std::function<void(const Communicator&)>;

/// 0 + 1 + … + (members - 1).
inline int sum_of_ranks(int members) { return members * (members - 1) / 2; }

/// Runs `body` as one member. An exception fails the test with the member's rank; either that or a
/// fatal assertion aborts the other members, so that they do not wait for this one.
inline void run_member(const Communicator& member, const MemberBody& body) {
  try {
    body(member);
    if (::testing::Test::HasFatalFailure()) member.abort("an assertion failed");
  } catch (const std::exception& error) {
    ADD_FAILURE() << "member " << member.rank() << " threw " << error.what();
    member.abort(error.what());
  }
}

/// Runs `body` for each member at once, one thread a member; a single one on the calling thread.
inline void run_members(const std::vector<Communicator>& members, const MemberBody& body) {
  if (members.size() == 1) return run_member(members.front(), body);
  std::vector<std::thread> threads;
  for (const Communicator& member : members)
    threads.emplace_back([&] { run_member(member, body); });
  for (std::thread& thread : threads) thread.join();
}

/// Runs `body` on a group of `ranks` threads.
inline void run_ranks(int ranks, const MemberBody& body) {
  run_members(make_in_process_group(ranks), body);
}

/// The message of the exception that `call` throws; empty if it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

template <Reducible T>
void reduce_and_wait(const Communicator& group, std::vector<T>& values, ReduceOp op) {
  group.all_reduce(std::span<T>(values), op).wait();
}

template <Reducible T>
void sum_and_wait(const Communicator& group, std::vector<T>& values) {
  reduce_and_wait(group, values, ReduceOp::sum);
}

}  // namespace lockstep::inline v0::allreduce
