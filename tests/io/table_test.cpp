// Tables: what leaves softtape must be readable by the strictest reader, in every locale.
#include "softtape/io/table.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <clocale>
#include <limits>
#include <locale>
#include <nlohmann/json.hpp>
#include <sstream>

#include "softtape/base/error.hpp"
#include "support/compare.hpp"

using namespace softtape;
using test_support::kInf;
using test_support::kNaN;
using Json = nlohmann::json;

namespace {

std::vector<Json> parse_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Thousands in dots, a comma for the point.
struct German : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

class GermanLocale {
 public:
  GermanLocale() : cpp_(std::locale::global(std::locale(std::locale(), new German))) {
    for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"}) {
      if (std::setlocale(LC_ALL, name)) break;
    }
  }
  ~GermanLocale() {
    std::locale::global(cpp_);
    std::setlocale(LC_ALL, c_.c_str());
  }
  GermanLocale(const GermanLocale&) = delete;
  GermanLocale& operator=(const GermanLocale&) = delete;

 private:
  std::string c_ = std::setlocale(LC_ALL, nullptr);
  std::locale cpp_;
};

}  // namespace

TEST_CASE("Table: LOG-001, a run that diverged leaves lines that strict readers take") {
  Table log({"step", "loss"});
  for (const double loss : {kNaN, kInf, -kInf, 1.5}) log.add({std::int64_t{7}, loss});
  const std::vector<Json> lines = parse_lines(log.jsonl());
  REQUIRE(lines.size() == 4);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(lines[i]["loss"].is_null());
    CHECK(lines[i]["status"] == "non-finite");
    CHECK(lines[i]["step"] == 7);
  }
  CHECK(lines[3] == Json{{"step", 7}, {"loss", 1.5}});
  CHECK(log.csv() == "step,loss\n7,\"NaN\"\n7,\"Inf\"\n7,\"-Inf\"\n7,1.5\n");
}

TEST_CASE("Table: numbers come back bit for bit, from JSON and from CSV") {
  const std::vector<double> numbers{
      0.1,  1.0 / 3, 5e-324, 2.2250738585072014e-308, 1e23,  -0.0, 0.0, 1.7976931348623157e308,
      1e16, -1e15,   100,    123456789.12345678,      3e-05, 1e-7, -2.5};
  Table table({"x"});
  for (const double x : numbers) table.add({x});
  const std::vector<Json> lines = parse_lines(table.jsonl());
  std::istringstream csv(table.csv());
  std::string word;
  std::getline(csv, word);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(numbers[i]);
    CHECK(std::bit_cast<std::uint64_t>(lines[i]["x"].get<double>()) == bits);
    std::getline(csv, word);
    CHECK(std::bit_cast<std::uint64_t>(std::strtod(word.c_str(), nullptr)) == bits);
  }
}

TEST_CASE("Table: whole numbers and booleans to their ends") {
  Table table({"n", "yes"});
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  table.add({kMin, true});
  table.add({std::int64_t{1234567}, false});
  CHECK(table.csv() == "n,yes\n-9223372036854775808,true\n1234567,false\n");
  CHECK(parse_lines(table.jsonl())[0] == Json{{"n", kMin}, {"yes", true}});
}

TEST_CASE("Table: the same text under a locale with decimal commas") {
  const auto write = [] {
    Table table({"x", "n"});
    table.add({1234567.25, std::int64_t{1234567}});
    table.add({0.001, std::int64_t{-5}});
    return table.csv() + table.jsonl() + table.text();
  };
  const std::string plain = write();
  const GermanLocale guard;
  std::ostringstream probe;
  probe << 1234.5;
  REQUIRE(probe.str() == "1.234,5");
  CHECK(write() == plain);
  CHECK(test_support::contains(plain, "1234567.25,1234567\n0.001,-5\n"));
}

TEST_CASE("Table: CSV quotes what would break a line") {
  Table table({"plain", "a,b", "c\"d"});
  table.add({std::string("x"), std::string("two\nlines"), std::string("say \"hi\"")});
  table.add({std::string(), std::string("\r"), std::string(" spaces ")});
  CHECK(table.csv() ==
        "plain,\"a,b\",\"c\"\"d\"\n"
        "x,\"two\nlines\",\"say \"\"hi\"\"\"\n"
        "\"\",\"\r\", spaces \n");
}

TEST_CASE("Table: JSON text of any bytes") {
  const std::string controls = std::string("\0\x01\x1f\x7f\t\n\"\\/", 9);
  CHECK(Json::parse(to_json(Cell(controls))) == controls);
  const std::string languages =
      "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf";
  CHECK(Json::parse(to_json(Cell(languages))) == languages);
  // Stray and cut characters, overlong forms, surrogates, beyond U+10FFFF: each byte is replaced.
  const std::string mark = "\xef\xbf\xbd";
  for (const std::string bad : {"\x80", "\xc3", "\xe2\x82", "\xc0\xaf", "\xe0\x80\x80",
                                "\xf0\x80\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"}) {
    std::string want = "a";
    for (std::size_t i = 0; i < bad.size(); ++i) want += mark;
    CHECK(Json::parse(to_json(Cell("a" + bad + "z"))) == want + "z");
  }
}

TEST_CASE("Table: a column named status is the caller's own") {
  Table table({"loss", "status"});
  table.add({kNaN, std::string("diverged")});
  CHECK(table.jsonl() == "{\"loss\": null, \"status\": \"diverged\"}\n");
}

TEST_CASE("Table: JSON as one array") {
  Table table({"name", "loss"});
  CHECK(table.json() == "[]\n");
  table.add({std::string("two\nlines"), 0.5});
  CHECK(table.json() == "[\n{\"name\": \"two\\u000alines\", \"loss\": 0.5}\n]\n");
  table.add({std::string("},{"), kNaN});
  const Json all = Json::parse(table.json());
  REQUIRE(all.is_array());
  CHECK(all.get<std::vector<Json>>() == parse_lines(table.jsonl()));
  CHECK(all[1]["status"] == "non-finite");
}

TEST_CASE("Table: text lines up") {
  Table table({"name", "loss"});
  table.add({std::string("a"), 0.123456});
  table.add({std::string("longer"), 12.0});
  CHECK(table.text() ==
        "name      loss\n"
        "a       0.1235\n"
        "longer      12\n");
}

TEST_CASE("Table: refusals change nothing") {
  CHECK_THROWS_SAYING(ValueError, "Table", "got none", Table({}));
  CHECK_THROWS_SAYING(ValueError, "Table", "''", Table({"a", ""}));
  CHECK_THROWS_SAYING(ValueError, "Table", "'a'", Table({"a", "b", "a"}));
  Table table({"a", "b"});
  CHECK_THROWS_SAYING(ShapeError, "Table", "1 cells, 2 columns", table.add({1.0}));
  CHECK(table.rows().empty());
  CHECK(table.column("b") == 1);
  CHECK_THROWS_SAYING(ValueError, "Table", "'c'", table.column("c"));
  CHECK(table.csv() == "a,b\n");
  CHECK(table.jsonl() == "");
}
