// SPDX-License-Identifier: Apache-2.0
// How the search orders what it finds. A page that has all words in its own title comes first;
// decisions and older runs come behind pages that say what holds now. The other numbers are
// Sphinx's own.
var Scorer = {
    score: ([page, title, anchor, , score]) => {
        const query = new URLSearchParams(window.location.search).get("q") || "";
        const words = query.toLowerCase().split(/\W+/).filter((word) => word);
        const entitled = !anchor && words.every((word) => title.toLowerCase().includes(word));
        const old = /^docs\/(decisions|history)\//.test(page);
        return score + (entitled ? 30 : 0) - (old ? 60 : 0);
    },
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
