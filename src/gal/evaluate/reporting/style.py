"""The style of a report: light and dark, on paper, and on a telephone; nothing is loaded from anywhere."""

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--soft:#f4f5f7;--edge:#d9dce1;--ink:#1b1f24;--dim:#5a626d;
--c0:#1f5fa8;--c1:#b2521a;--c2:#2c7a4b;--c3:#8a919c;--good:#1f7a45;--bad:#b3261e;--open:#8a6100}
@media screen and (prefers-color-scheme:dark){:root{--paper:#14171b;--soft:#1d2126;--edge:#363c45;
--ink:#e8eaed;--dim:#a3abb6;--c0:#7cb3f2;--c1:#f0a067;--c2:#7fcf9f;--c3:#868e9a;--good:#74cf98;--bad:#f2938c;--open:#e3b95a}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif;overflow-wrap:anywhere}
main{max-width:46rem;margin:0 auto;padding:2rem 1.25rem 4rem}
header p{color:var(--dim);margin:.25rem 0}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 .25rem}
h2{font-size:1.2rem;margin:2.6rem 0 .5rem;padding-top:.9rem;border-top:1px solid var(--edge)}
h3{font-size:1rem;margin:1.5rem 0 .25rem}
p{margin:.5rem 0;max-width:42rem}
.answer{font-size:1.15rem;line-height:1.5;border-left:5px solid var(--open);background:var(--soft);
padding:.9rem 1.1rem;margin:1.2rem 0}
.answer.helps{border-color:var(--good)}.answer.hurts{border-color:var(--bad)}
.dim{color:var(--dim);font-size:.92rem}
figure{margin:.75rem 0 1.25rem;max-width:37.5rem}
figure>svg{display:block;width:100%;height:auto}
figcaption{font-size:.85rem;color:var(--dim)}
svg text{font-size:11px;fill:var(--ink);font-family:inherit}
svg .tick,svg .axis{fill:var(--dim)}svg .name,svg .value{font-size:11.5px}svg .value{font-weight:600}
svg .name,svg .value{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.grid{stroke:var(--edge);stroke-width:1}
.zero{stroke:var(--dim);stroke-width:1;stroke-dasharray:2 3}
.reach{stroke:var(--c0);stroke-width:5;stroke-linecap:round;opacity:.35}
.dot{fill:var(--c0)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:6 4}
.line.c0,.range.c0{stroke:var(--c0)}.line.c1,.range.c1{stroke:var(--c1)}.line.c2,.range.c2{stroke:var(--c2)}
.line.c3{stroke:var(--c3)}
.mark.c0{fill:var(--c0)}.mark.c1{fill:var(--c1)}.mark.c2{fill:var(--c2)}
.range{stroke-width:5;stroke-linecap:round;opacity:.3}
.line.faint{stroke-width:1;opacity:.35}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.25rem;margin:.25rem 0;
padding:0;font-size:.88rem}
.legend svg{width:28px;height:10px;margin-right:.45rem;vertical-align:middle}
.scroll{overflow-x:auto;margin:.5rem 0}
table{border-collapse:collapse;font-size:.9rem;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.35rem .8rem .35rem 0;border-bottom:1px solid var(--edge);vertical-align:top;
overflow-wrap:normal}
td{overflow-wrap:break-word;min-width:4.5rem}
th{font-weight:600;color:var(--dim)}
tbody th{color:var(--ink);overflow-wrap:break-word;min-width:5rem}
.numbers td{white-space:nowrap}
details{margin:.35rem 0 0}
summary{cursor:pointer;color:var(--dim);font-size:.88rem}
summary:focus-visible{outline:2px solid var(--c0);outline-offset:2px}
.remarks{border:1px solid var(--open);border-left-width:5px;padding:.6rem 1.1rem;margin:1.2rem 0;
font-size:.95rem}
.remarks h2{font-size:1rem;margin:0;padding:0;border:0;color:var(--open)}
.remarks ul{padding-left:1.1rem;margin:.3rem 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1rem;font-size:.92rem}
dt{color:var(--dim)}dd{margin:0}
footer{margin-top:3rem;color:var(--dim);font-size:.85rem}
@media (max-width:31rem){main{padding:1.25rem .9rem 3rem}h1{font-size:1.4rem}
svg text,svg .name,svg .value{font-size:14.5px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.5rem}
table{font-size:.82rem}th,td{padding-right:.5rem}td{min-width:3.2rem}
tbody th{min-width:3.6rem}}
@media print{@page{margin:16mm}body{font-size:10.5pt}main{max-width:none;padding:0}
h2,h3,h2+p,h2+p+p,figcaption,.legend{break-after:avoid}svg,tr,.answer,dl,h2+p,h2+p+p{break-inside:avoid}figure{max-width:13cm}
figure>svg{break-after:avoid}.scroll{overflow:visible}
details>summary{display:none}details::details-content{content-visibility:visible;display:block;height:auto}}
"""
