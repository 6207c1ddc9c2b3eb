"""The style sheet of reports, for light and dark mode, without external resources."""

CSS = """
:root{color-scheme:light dark;--bg:#fff;--panel:#f6f7f9;--ink:#1b1f24;--soft:#5b6470;--line:#dfe3e8;
--c1:#2368c9;--c2:#c8600b;--c3:#12805c;--c4:#7b4fc9;--c5:#c9302c;--c6:#64707d;--c7:#a8791a;--c8:#0d7f8c;
--good:#12805c;--warn:#9a6700;--bad:#c9302c;--band:rgba(35,104,201,.05)}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--panel:#1d2127;--ink:#e6e9ed;--soft:#9aa4b0;--line:#333a43;
--c1:#6aa6ff;--c2:#f59a4c;--c3:#4cc38a;--c4:#b79bff;--c5:#ff7b72;--c6:#9aa4b0;--c7:#e3b341;--c8:#56c7d4;
--good:#4cc38a;--warn:#e3b341;--bad:#ff7b72;--band:rgba(106,166,255,.08)}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:26px;margin:0 0 4px;overflow-wrap:anywhere}h2{font-size:18px;margin:36px 0 10px}
.meta{display:grid;grid-template-columns:repeat(auto-fill,minmax(240px,1fr));gap:4px 20px;margin:12px 0 0}
.meta div{overflow-wrap:anywhere}.meta dt{color:var(--soft);font-size:12px}.meta dd{margin:0}
.verdict{display:inline-block;padding:3px 12px;border-radius:14px;font-weight:600;border:1px solid currentColor;margin:8px 0}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:10px;margin:14px 0}
.tile{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 12px}
.tile b{display:block;font-size:21px;font-variant-numeric:tabular-nums;white-space:nowrap}
.tile span,.note{color:var(--soft);font-size:12.5px}
.warning{border-left:3px solid var(--warn);background:var(--panel);padding:6px 12px;margin:6px 0;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(480px,100%),1fr));gap:16px}
figure{margin:0;background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 10px 4px}
figcaption{font-weight:600;font-size:14px}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:2px 0 4px;padding:0}
.legend{font-size:12.5px;color:var(--soft)}
.legend li{overflow-wrap:anywhere}
.legend i{display:inline-block;width:12px;height:3px;border-radius:2px;background:var(--c);margin-right:6px}
.legend i{vertical-align:middle}
svg{display:block;width:100%;height:auto}
.grid{stroke:var(--line);stroke-width:1}.over{paint-order:stroke;stroke:var(--panel);stroke-width:3px}
.tick,.unit{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
.band{fill:var(--band);stroke:var(--line);stroke-width:.5}
.line{fill:none;stroke:var(--c);stroke-width:1.6;stroke-linejoin:round}.area{fill:var(--c);opacity:.14}
.dot,.bar{fill:var(--c)}.mark{stroke:var(--c);stroke-width:1.4;stroke-dasharray:3 3}
.hover{fill:transparent}.hover:hover{fill:var(--band)}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{padding:5px 10px;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);overflow-wrap:break-word}
tbody tr:last-child td{border-bottom:0}th{color:var(--soft);font-weight:600;white-space:nowrap;background:var(--panel)}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
details summary{cursor:pointer;color:var(--soft)}
.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}
.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c8{--c:var(--c8)}
@media print{figure,.tile{break-inside:avoid}}
"""
