// What the tests of figures and pages share: a folder, another PATH, a look at tags.
#pragma once

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "support/folder.hpp"

namespace report_test {

/// Its name is one that shells and gnuplot trip over.
class OddFolder : public test_support::Folder {
 public:
  OddFolder() : Folder("softtape it's") {}
};

/// PATH as given, for as long as this lives.
class OtherPath {
 public:
  explicit OtherPath(const std::string& path) {
    if (const char* now = std::getenv("PATH")) before_ = now;
    ::setenv("PATH", path.c_str(), 1);
  }
  ~OtherPath() { ::setenv("PATH", before_.c_str(), 1); }
  OtherPath(const OtherPath&) = delete;
  OtherPath& operator=(const OtherPath&) = delete;

 private:
  std::string before_;
};

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

/// What is wrong with the tags of a page or drawing: the first that does not close the last one
/// opened, a quote without its other half, an id that is there twice; empty when nothing is.
inline std::string tag_problem(const std::string& text) {
  static const std::set<std::string> alone{"meta", "link", "br", "hr", "img"};
  std::vector<std::string> open;
  std::set<std::string> ids;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    if (text.compare(at, 2, "<!") == 0) {
      at = text.find('>', at);
      continue;
    }
    const bool closes = text[at + 1] == '/';
    std::size_t end = at + 1 + (closes ? 1 : 0);
    const std::size_t name_begin = end;
    while (end < text.size() && std::string(" \t\n/>").find(text[end]) == std::string::npos) ++end;
    const std::string name = text.substr(name_begin, end - name_begin);
    if (name.empty()) return "a bare < near: " + text.substr(at, 40);
    // Attributes, up to the > outside of quotes.
    char quote = 0;
    std::string attributes;
    for (; end < text.size() && (quote || text[end] != '>'); ++end) {
      const char c = text[end];
      if (quote ? c == quote : c == '"' || c == '\'') quote = quote ? '\0' : c;
      if (c == '<') return "a < inside the tag " + name;
      attributes += c;
    }
    if (end == text.size()) return "never ends: " + name;
    for (const char* before : {" id=\"", " id='"}) {
      const std::size_t id = attributes.find(before);
      if (id == std::string::npos) continue;
      const std::string value =
          attributes.substr(id + 5, attributes.find(before[4], id + 5) - id - 5);
      if (!ids.insert(value).second) return "an id twice: " + value;
    }
    if (closes) {
      if (open.empty() || open.back() != name) {
        return "closes " + name + " inside " + (open.empty() ? "nothing" : open.back());
      }
      open.pop_back();
    } else if (attributes.empty() || attributes.back() != '/') {
      if (!alone.count(name)) open.push_back(name);
    }
    at = end;
    if (name == "style" && !closes) at = text.find("</style", at);
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

}  // namespace report_test
