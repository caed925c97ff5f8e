// The closing chapters of the report: what to trust, what not to conclude, what was checked.
#include <fmt/format.h>

#include <algorithm>

#include "laws.hpp"
#include "report.hpp"

namespace starvation {

using softtape::Cell;
using softtape::HtmlPage;
using softtape::Table;

void add_caveats(HtmlPage& page) {
  page.section("Reading it honestly");
  page.heading("Which numbers measure starvation");
  Table metrics({"number", "what it is good for"});
  const auto add = [&](const char* name, const char* verdict) {
    metrics.add({Cell(std::string(name)), Cell(std::string(verdict))});
  };
  add("norm of dL/dWq, of dL/dWk; mean of dL/dq",
      "Nothing, here: equal or larger without the scale.");
  add("mean norm of the Jacobian or of dL/ds",
      "Honest only at large d_k: with many keys the mean is larger without the scale for a long "
      "while, and it falls no faster than 1/√d_k.");
  add("median norm of dL/dS per row", "Good: falls exponentially with √d_k.");
  add("median norm of dL/dq",
      "Good but late: it carries the scale too, and crosses over at a larger d_k.");
  add("share of dead keys",
      "The best single number, for every number of keys; say how the loss is summed.");
  add("loser's over winner's gradient", "Good for three keys and more; always 1 for two.");
  add("gradient at the right key", "The one that matters for learning.");
  add("gradient noise scale", "The one that matters for a batch of a given size.");
  add("how far Wq and Wk moved",
      "Ambiguous: unscaled runs move more at high rates, by instability, and less at low ones.");
  page.table(metrics, "What each number can and cannot tell.");
  page.heading("What not to conclude");
  page.list(
      {"**Not “the gradient of Wq vanishes”.** The raw norms of dL/dWq and dL/dWk are larger "
       "without the scale. What starves is most rows, most keys, the target among them, and the "
       "ratio of signal to noise.",
       "**Not “the scale as such”.** Running unscaled with Wq and Wk multiplied by d_{k}^{−1/4}, "
       "and their learning rate divided by √d_{k}, is the scaled run, step for step. The claim is "
       "about the scale together with a start of unit-variance queries and keys. With a start as "
       "small as 0.1 at d_{k} = 4, as in many demonstrations, nothing saturates either way. "
       "That equality is for plain gradient descent; Adam needs its rate on Wq and Wk times "
       "d_{k}^{−1/4} and its epsilon times d_{k}^{1/4}.",
       "**Not “always”.** It takes √d_{k} above √(2 ln T). At d_{k} = 4 and T = 16 the softmax is "
       "in its soft phase without the scale too, and unscaled is not worse; it only bears high "
       "rates less well. Elsewhere measured, not here: with 128 keys and d_{k} = 64 the mean "
       "Jacobian and the mean and median "
       "row gradients are as large or larger unscaled, although most keys are dead.",
       "**Not “at the same learning rate”.** At a small rate an unscaled run can learn faster, for "
       "it takes larger steps. On tasks whose keys share one matrix, instead of having a row each, "
       "it often does. A grid of rates that ends before the best one flatters the other side.",
       "**Not “Adam solves it”.** Adam removes the larger steps that hide starvation under plain "
       "gradient descent, and so makes it plainer.",
       "**Not “cannot learn”.** Stuck means stuck within these steps. Near ties keep leaking "
       "gradient; over thousands of steps (`--full`) unscaled runs creep on, and now and then "
       "a seed gets there.",
       "**Not “all of it is starvation”.** At high rates unscaled runs also overshoot and collapse "
       "to one key: instability, which a low rate avoids. Two correct programs agree to the last "
       "digits on a scaled run, while rounding alone drives unscaled runs at high rates apart "
       "within a few dozen steps. The numbers at the start and the runs at low rates tell the two "
       "apart.",
       "**Not “the smaller the scores the better”.** Dividing by d_{k} starts near uniform: small "
       "gradients, none starved, mended by a higher rate. And when all tokens are alike, attention "
       "is uniform and queries and keys get no gradient at all: the opposite failure.",
       "**Not “dead means lost” once training runs.** A weight near 1 on the right key also makes "
       "its gradient vanish. Dead keys and starved targets are read at the start; later they must "
       "be split by whether the top key is the right one.",
       "**Not “every mean is solid”.** Gradients of unscaled rows are heavy-tailed; means over "
       "fewer than a thousand rows move by tens of percent. Medians and shares do not. Seeds are "
       "few, and standard deviations are over seeds.",
       "**Not “any precision will do”.** In float32 a weight whose score lies about 87 below the "
       "best one is zero, and so is its gradient; tables at d_{k} of 1024 and more need float64.",
       "**Masks.** Adding −10^{9} or −∞ to hidden scores comes to the same, but for a row with "
       "everything hidden: uniform weights the one way, no numbers the other; and a finite "
       "number hides nothing from scores of its own size. In dL/dP hidden cells are not zero, in "
       "dL/dS they are. Entropy and effective keys count visible keys only.",
       "**Two keys are special.** Winner and loser get equal and opposite gradients. With few keys "
       "unscaled is slower, not stuck: failing takes many wrong keys."});
  page.paragraph(
      "A word on the name: “gradient starvation” is also used for features that a strongly "
      "predictive feature keeps from being learned (Pezeshki and others, 2021). Here it means keys "
      "that a saturated softmax keeps from getting a gradient; work on the stability of training "
      "calls the end of that road attention entropy collapse (Zhai and others, 2023). The boundary "
      "√(2 ln T) is that of the random energy model (Derrida, 1981).");
  page.paragraph(
      "Not looked at: whether what holds for one head on a lookup task holds for deep models. "
      "Training "
      "moves the weights, and with them how far scores spread; many large models normalise queries "
      "and keys for that reason. The mechanism is the same there, the numbers are not.");
}

void add_laws(HtmlPage& page, const Results& results) {
  page.section("What was checked");
  Table table({"id", "statement", "measured", "holds"});
  for (const Law& law : results.laws) {
    table.add({Cell(law.id), Cell(law.claim), Cell(law.measured), Cell(law.holds)});
  }
  if (!table.rows().empty()) {
    page.table(table, "Statements with the range accepted for each, and what this run gave.");
  }
  const std::string unchecked = unchecked_laws(results);
  if (!unchecked.empty()) {
    page.paragraph("Not checked, because this run did not hold the settings they are stated for: " +
                   unchecked + "." +
                   (unchecked.find("P12") == std::string::npos
                        ? ""
                        : " P12, the curves of an independent program, is held by the tests."));
  }
}

}  // namespace starvation
