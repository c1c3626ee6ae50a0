// What a search puts first. Sphinx's own numbers, but properties and options come after pages and words: many have one name.
var Scorer = {
  score: ([docname, title, anchor, description, score]) =>
    /^(Python property|Python attribute|command line option)/.test(description) ? score - 20 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
