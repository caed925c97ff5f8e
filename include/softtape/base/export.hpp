// SOFTTAPE_API marks what the shared library exports; everything else in it stays hidden.
// Put it on free functions that are defined in a .cpp file and on classes with such members or
// with a vtable (exceptions above all: without it a `catch` across the library border can miss).
// Templates, inline functions and plain option structs need no mark.
#pragma once

#if defined(__GNUC__)
#define SOFTTAPE_API __attribute__((visibility("default")))
#else
#define SOFTTAPE_API
#endif
