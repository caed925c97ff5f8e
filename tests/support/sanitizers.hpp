// Whether this program is built under a sanitizer, where everything takes ten times as long.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOFTTAPE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SOFTTAPE_SANITIZED 1
#endif
#endif

namespace test_support {
#ifdef SOFTTAPE_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
}  // namespace test_support
