// The main function of every test suite.
// doctest's own signal handlers are left out: they would hide what a sanitizer or a core file says
// about a crash, and tests/run.sh counts a suite that dies as failed.
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
