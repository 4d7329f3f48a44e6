// The runner of every test binary: compiled once, since Catch's main is slow to compile.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
