// CharText: code points, windows, splits, the counting models, and texts that are refused.
#include "softtape/train/char_text.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "golden/char_text_golden.hpp"
#include "ops/support.hpp"
#include "softtape/io/file.hpp"
#include "softtape/ops/shape.hpp"
#include "support/folder.hpp"
#include "support/leak_guard.hpp"

using namespace softtape;

namespace {

std::string sample_text() {
  std::string text;
  for (int i = 0; i < 7; ++i) text += "αβγ abc, caba; αγ 😀 cab bca!\n";
  return text;
}

}  // namespace

TEST_CASE("text: NumPy's windows over Python's code points") {
  const test_support::LeakGuard guard;
  const auto text = CharText::from_string(sample_text(), {.context = 6});
  CHECK(text.size() == golden::char_text::size);
  CHECK(text.train_size() == golden::char_text::train_size);
  CHECK(text.context() == 6);
  CHECK(text.counts() == golden::char_text::counts);
  Rng rng(8);
  auto [x, y] = text.batch(4, rng);
  CHECK(x.shape() == Shape{4, 6});
  CHECK(ops_test::integers(x) == golden::char_text::batch_x);
  CHECK(ops_test::integers(y) == golden::char_text::batch_y);
  const TokenBatch held_out = text.validation(4);
  CHECK(ops_test::integers(held_out.x) == golden::char_text::validation_x);
  CHECK(ops_test::integers(held_out.y) == golden::char_text::validation_y);
  CHECK(text.unigram_loss(held_out) == doctest::Approx(golden::char_text::unigram).epsilon(1e-12));
  CHECK(text.bigram_loss(held_out) == doctest::Approx(golden::char_text::bigram).epsilon(1e-12));
}

TEST_CASE("text: encode and decode are inverse, for characters of one to four bytes") {
  const std::string all = "a\x7f\u0080\u07ff\u0800\uffff\U00010000\U0010ffff\n";
  const auto text = CharText::from_string(all, {.context = 1});
  CHECK(text.vocab() == 9);
  CHECK(text.encode("\n") == std::vector<std::int64_t>{0});
  CHECK(text.decode(text.encode(all)) == all);
  CHECK(text.encode("").empty());
  CHECK_REFUSED(ValueError, "[CharText] the data set has no such character: U+03B1 at place 1",
                text.encode("aα"));
  CHECK_REFUSED(ValueError, "[CharText] the text is not UTF-8: offset 1", text.encode("a\xff"));
  const std::vector<std::int64_t> beyond = {0, 9};
  CHECK_REFUSED(ValueError, "[CharText] an id must lie in [0, 9): 9", text.decode(beyond));
}

TEST_CASE("text: a text that just fits") {
  const auto text = CharText::from_string("abcd", {.context = 3, .validation = 0});
  Rng rng(0);
  const auto [x, y] = text.batch(2, rng);
  CHECK(ops_test::integers(x) == std::vector<std::int64_t>{0, 1, 2, 0, 1, 2});
  CHECK(ops_test::integers(y) == std::vector<std::int64_t>{1, 2, 3, 1, 2, 3});
  CHECK_REFUSED(ValueError, "[CharText] the held-out part must have as many windows: n = 1",
                text.validation(1));
}

TEST_CASE("text: validation windows are different, fixed and of the held-out part") {
  std::string alphabet;
  for (char c = ' '; c <= '~'; ++c) alphabet += c;  // 95 characters, none of them twice
  const auto text = CharText::from_string(alphabet, {.context = 4, .validation = 0.2});
  REQUIRE(text.train_size() == 76);
  const Tensor x = text.validation(15).x;  // as many as there are
  CHECK(ops_test::integers(select(x, 1, 0)) ==
        ops_test::integers(arange(text.train_size(), text.train_size() + 15)));
  CHECK(ops_test::integers(text.validation(1).x) == ops_test::integers(text.validation(15).x[0]));
  CHECK(ops_test::integers(text.validation(2).y[1]).back() == 94);
  CHECK_REFUSED(ValueError, "[CharText] the held-out part must have as many windows: n = 16",
                text.validation(16));
  CHECK_REFUSED(ValueError, "[CharText] a size must be at least 1: n = 0", text.validation(0));
}

TEST_CASE("text: counting models at the edges") {
  const auto text = CharText::from_string("aaaaaaaaab", {.context = 1, .validation = 0.1});
  const TokenBatch ab{tensor({{0}}), tensor({{1}})};
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(text.unigram_loss(ab, 0) == infinity);
  CHECK(text.bigram_loss(ab, 0) == infinity);
  CHECK(text.bigram_loss({tensor({{1}}), tensor({{0}})}, 0) == doctest::Approx(std::log(2.0)));
  CHECK(text.unigram_loss({ab.x, ab.x}, 0) == 0);
  CHECK_REFUSED(ValueError, "[unigram_loss] a count must be finite and not negative: add = -1",
                text.unigram_loss(ab, -1));
  CHECK_REFUSED(ValueError, "[bigram_loss] a count must be finite and not negative: add = nan",
                text.bigram_loss(ab, std::numeric_limits<double>::quiet_NaN()));
  CHECK_REFUSED(ValueError, "[bigram_loss] an id must lie in [0, 2): -1",
                text.bigram_loss({ab.x, tensor({{-1}})}));
  CHECK_REFUSED(ShapeError, "[unigram_loss] x and y must be windows of one shape",
                text.unigram_loss({ab.x, tensor({1})}));
}

TEST_CASE("text: a file gives what its bytes give; bad files are refused with their name") {
  const test_support::Folder folder;
  const std::string file = folder / "text";
  write_file(file, sample_text());
  const auto text = CharText::from_file(file, {.context = 6});
  Rng rng(8);
  CHECK(ops_test::integers(text.batch(4, rng).x) == golden::char_text::batch_x);

  const std::string start = "[CharText] '" + file + "': ";
  write_file(file, "");
  CHECK_REFUSED(IoError, start + "there is no text: 0 bytes", CharText::from_file(file));
  write_file(file, "abc\xe9 latin 1");
  CHECK_REFUSED(IoError, start + "the text is not UTF-8: byte 0xe9 at offset 3",
                CharText::from_file(file));
  CHECK_REFUSED(IoError,
                "[read_file] '" + file + ".missing': ", CharText::from_file(file + ".missing"));
  CHECK_REFUSED(IoError, "[read_file] '/': ", CharText::from_file("/"));
}

TEST_CASE("text: what is not UTF-8, and where") {
  const auto refused_at = [](const std::string& bytes, int offset) {
    CAPTURE(bytes);
    const auto message =
        ops_test::refusal<IoError>([&] { CharText::from_string(bytes, {.context = 1}); });
    CHECK_MESSAGE(message.find("at offset " + std::to_string(offset) + ";") != std::string::npos,
                  message);
  };
  refused_at("ab\x80", 2);              // begins with a byte that only follows
  refused_at("a\xc3", 1);               // cut short
  refused_at("a\xc3 b", 1);             // not followed
  refused_at("\xe2\x82", 0);            // cut short
  refused_at("\xf0\x9f\x98 ", 0);       // not followed
  refused_at("\xc0\x80", 0);            // overlong
  refused_at("\xe0\x9f\xbf", 0);        // overlong
  refused_at("\xf0\x8f\xbf\xbf", 0);    // overlong
  refused_at("\xed\xa0\x80", 0);        // surrogate
  refused_at("ok\xf4\x90\x80\x80", 2);  // beyond U+10FFFF
  refused_at("\xff", 0);
}

TEST_CASE("text: options that do not fit are refused") {
  const std::string text(20, 'a');
  CHECK_REFUSED(ValueError, "[CharText] a size must be at least 1: context = 0",
                CharText::from_string(text, {.context = 0}));
  CHECK_REFUSED(ValueError,
                "[CharText] the training part must hold a window and one character more: context = "
                "18, 18 of 20 characters are for training",
                CharText::from_string(text, {.context = 18}));
  for (const double share : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_REFUSED(ValueError, "[CharText] a share lies in [0, 1): validation = ",
                  CharText::from_string(text, {.context = 2, .validation = share}));
  }
  Rng rng(0);
  CHECK_REFUSED(ValueError, "[CharText] a size must be at least 1: batch = 0",
                CharText::from_string(text, {.context = 2}).batch(0, rng));
  CHECK_REFUSED(IoError, "[CharText] there is no text: 0 bytes", CharText::from_string(""));
}
