// Functions of a library that is loaded on the first call to one of them.
//
// A source file that lists such functions defines them for the program under their own names, in
// place of the library. Callers use the library's header as usual. The linker decides which
// definition they get: this one, the library itself, or a fake in a test.
#pragma once

/// Defines `name`, which a C header declares, at global scope. The first call resolves the real
/// function in the LoadedLibrary that `library()` returns, and throws what that throws.
//
// A friend function defined in a class template takes its parameters from the template's, so no
// signature is repeated. The pointer forces its instantiation, because this file does not call it.
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
