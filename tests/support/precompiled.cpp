// Nothing but what CMake puts in front of it: the headers that the programs of tests share.
