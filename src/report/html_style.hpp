// The look of an HtmlPage: fonts of the reader's system, colours of figures (draw.hpp).
#pragma once

namespace softtape::detail {

inline constexpr const char* html_style = R"(
:root{--ink:#1f2430;--soft:#596072;--paper:#fff;--tint:#f4f5f8;--line:#dfe2e9;--link:#0b5d95;
--good:#0072b2;--bad:#b84a00;--good-tint:#eaf4fa;--bad-tint:#fdf0e8}
@media screen and (prefers-color-scheme:dark){:root{--ink:#e7e9f0;--soft:#a6adbd;--paper:#15181f;
--tint:#1e222c;--line:#363b49;--link:#7cc4f5;--good:#4aa8e8;--bad:#ff8a3c;--good-tint:#17283a;
--bad-tint:#35231a}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;color:var(--ink);background:var(--paper);
font:1.0625rem/1.62 Charter,"Bitstream Charter","Sitka Text",Cambria,Georgia,serif}
header,nav,main{padding:0 1.25rem;margin:0 auto;max-width:66rem}
main>*,header>*,nav>*{max-width:44rem;margin-left:auto;margin-right:auto}
header{padding-top:3.5rem}
h1,h2,h3,table,nav,figcaption,summary,.cards,.note{
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:2.3rem;line-height:1.15;letter-spacing:-.02em;margin-top:0;margin-bottom:.6rem;
text-wrap:balance}
header p:not(.note){font-size:1.2rem;line-height:1.5;color:var(--soft);margin-top:0}
h2{font-size:1.5rem;line-height:1.25;letter-spacing:-.01em;margin-top:3.5rem;margin-bottom:.6rem;
padding-top:1.1rem;border-top:1px solid var(--line)}
h3{font-size:1.1rem;margin-top:2rem;margin-bottom:.4rem}
p{margin-top:.7rem;margin-bottom:.7rem}
li{margin:.45rem 0}
a{color:var(--link)}
nav{font-size:.95rem;margin-top:1.6rem}
nav ol{columns:2;column-gap:2.5rem;padding:1rem 1rem 1rem 2.4rem;background:var(--tint);
border-radius:.6rem}
nav li{margin:.2rem 0;break-inside:avoid}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
code{font:.88em ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
:not(pre)>code{background:var(--tint);padding:.1em .3em;border-radius:.25em;
overflow-wrap:anywhere}
pre{background:var(--tint);padding:.9rem 1.1rem;border-radius:.5rem;overflow-x:auto;line-height:1.45}
sub,sup{font-size:.72em;line-height:0}
.note{background:var(--tint);border-left:.25rem solid var(--good);border-radius:0 .4rem .4rem 0;
padding:.7rem 1rem;font-size:.95rem;line-height:1.5}
.scroll{overflow-x:auto;max-width:100%}
main>.scroll,main>figure{max-width:min(62rem,100%)}
main>.scroll,main>details{margin-top:1.2rem;margin-bottom:1.2rem}
main>.scroll{width:fit-content;min-width:min(44rem,100%)}
main>details{max-width:min(44rem,100%)}
table{border-collapse:collapse;font-size:.88rem;line-height:1.4;min-width:100%}
caption{text-align:left;color:var(--soft);padding:.3rem .1rem .5rem;max-width:min(44rem,calc(100vw - 2.5rem))}
th,td{padding:.32rem .5rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{font-weight:600;max-width:8.5rem;line-height:1.25;border-bottom:2px solid var(--line);vertical-align:bottom}
td:first-child,th:first-child{padding-left:.1rem}
td{max-width:32rem}
.n{text-align:right;font-variant-numeric:tabular-nums}
td.n{white-space:nowrap}
tbody tr:hover{background:var(--tint)}
figure{margin-top:1.8rem;margin-bottom:1.8rem}
figure svg{display:block;max-width:max(100%,46rem);height:auto;margin:0 auto}
figure .softtape-figure .paper{fill:none}
figcaption{font-size:.92rem;line-height:1.5;color:var(--soft);max-width:44rem;margin:.5rem auto}
figcaption p{margin:.2rem 0}
figcaption p b,figcaption table{color:var(--ink)}
summary{font-size:.88rem;color:var(--link);cursor:pointer;padding:.3rem 0}
details .scroll{max-height:26rem;overflow-y:auto;border:1px solid var(--line);border-radius:.4rem;
padding:0 .6rem;margin:.4rem 0 .8rem}
.cards{list-style:none;padding:0;display:grid;gap:.9rem;margin-top:1.4rem;margin-bottom:1.4rem}
.cards li{margin:0;padding:1rem 1.1rem;border:1px solid var(--line);border-radius:.6rem;
border-top:.28rem solid var(--soft);background:var(--tint);min-width:0}
.cards b,.cards strong,.cards span{display:block}
.cards b{font-weight:600;font-size:.9rem}
.cards strong{font-size:1.45rem;line-height:1.2;margin:.3rem 0}
.cards span{font-size:.9rem;line-height:1.4;color:var(--soft)}
.cards .good{border-top-color:var(--good);background:var(--good-tint)}
.cards .good strong{color:var(--good)}
.cards .bad{border-top-color:var(--bad);background:var(--bad-tint)}
.cards .bad strong{color:var(--bad)}
main{padding-bottom:5rem}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
@media (max-width:40rem){
body{font-size:1rem}
header{padding-top:2rem}
h1{font-size:1.75rem}
h2{font-size:1.3rem;margin-top:2.6rem}
nav ol{columns:1}
.cards{gap:.6rem}
.cards li{padding:.7rem .75rem}
.cards strong{font-size:1.15rem}}
@media print{
body{font-size:10.5pt}
nav,details:not([open]){display:none}
header,main{max-width:none;padding:0}
main>*,main>figure,main>.scroll{max-width:none}
h2{break-after:avoid;margin-top:1.6rem}
h3{break-after:avoid}
figure,.cards,tr,.note{break-inside:avoid}
figure svg{max-width:100%}
.scroll{overflow:visible}
a{color:inherit;text-decoration:none}}
)";

}  // namespace softtape::detail
