// Contains only the precompiled headers of test programs, which CMake includes.
