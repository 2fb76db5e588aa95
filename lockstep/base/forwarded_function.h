// Functions of a library that is loaded when one of them is first called.
//
// A source file that lists them defines them for the program, under their own names, in the place of the library: code
// calls them as its header says, and what is linked decides whether it is this, the library itself, or what a test
// pretends.
#pragma once

/// Defines `name`, which a C header declares, at global scope: the first call asks `library`, a function that returns a
/// LoadedLibrary, for the real one, and throws what that throws.
//
// A friend that a class template defines takes its parameters from the template's, so that no signature is written
// twice; the pointer has it compiled although this file does not call it.
#define LOCKSTEP_FORWARD(library, name)                                                  \
  template <typename Function>                                                           \
  struct Forwarded_##name;                                                               \
  template <typename Result, typename... Arguments>                                      \
  struct Forwarded_##name<Result(Arguments...)> {                                        \
    friend Result name(Arguments... arguments) {                                         \
      static const auto real = library().template function<Result(Arguments...)>(#name); \
      return real(arguments...);                                                         \
    }                                                                                    \
  };                                                                                     \
  template struct Forwarded_##name<decltype(name)>;                                      \
  [[gnu::used]] static constexpr auto* forwarded_##name = &name;
