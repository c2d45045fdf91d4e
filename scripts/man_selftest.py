# SPDX-License-Identifier: Apache-2.0
"""check-man --selftest: pages and symbols damaged in several ways; all have to be found."""


def selftest(check, pages, symbols, header, library):
    def damaged(page, old, new):
        assert old in pages[page], (page, old)
        return {**pages, page: pages[page].replace(old, new, 1)}

    cases = [({p: t for p, t in pages.items() if p != "halay_barrier.3"}, symbols),
             (pages, symbols | {"halay_new"}), (pages, symbols - {"halay_barrier"}),
             (damaged("halay_barrier.3", "halay_ibarrier - ", "halay_jbarrier - "), symbols),
             (damaged("halay_barrier.3", "int halay_barrier", "void halay_barrier"), symbols),
             (damaged("halay_barrier.3", "# RETURN VALUE", "# RETURNS"), symbols),
             (damaged("halay_barrier.3", "HALAY_EPEER", "HALAY_EPIER"), symbols),
             (damaged("halay_barrier.3", "halay_request_test(request", "halay_test("), symbols),
             (damaged("halay_barrier.3", "**halay**(7)", "**halay**(5)"), symbols),
             (damaged("halayrun.1", "--timeout", "--time"), symbols)]
    missed = [n for n, case in enumerate(cases) if not [*check(*case, header, library)]]
    print(f"check-man: {len(cases) - len(missed)} of {len(cases)} faults are found {missed or ''}")
    return bool(missed)
