// What the program was started to do at SIGHUP.
#pragma once

namespace lockstep::apps {

/// Gives SIGHUP the action back that this process was started with: under nohup, none. Libraries take the signal before
/// main runs (UCX, which the Open MPI of Debian 13 loads, for its debugger). First thing in main.
void restore_inherited_hangup();

}  // namespace lockstep::apps
