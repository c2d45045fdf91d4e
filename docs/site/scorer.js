// SPDX-License-Identifier: Apache-2.0
// How the search orders what it finds: decisions and older runs come behind pages that say what
// holds now. The other numbers are Sphinx's own.
var Scorer = {
    score: (result) => result[4] - (/^docs\/(decisions|history)\//.test(result[0]) ? 20 : 0),
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 15, 1: 5, 2: -5 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
