// The style sheet and the script of a report.
#pragma once

namespace lockstep::inline v0::apps::report {

/// Colors are those of the reader's system, light or dark.
inline constexpr const char* kStyleSheet = R"css(
:root{color-scheme:light dark;--page:#f6f6f4;--card:#fff;--ink:#16161a;--soft:#55545a;--faint:#85848b;
--grid:#e9e8e4;--axis:#c6c5c0;--edge:rgba(20,20,26,.1);--good:#0a7d38;--bad:#c42b2b;
--c0:#2a78d6;--c1:#e0672c;--c2:#17a076;--c3:#d69a00;--c4:#d9659a;--c5:#6a4fc9;--c6:#3b8a1e;--c7:#c93c3c;--c8:#a9a8a3}
@media(prefers-color-scheme:dark){:root{--page:#121214;--card:#1c1c1f;--ink:#f2f2f3;--soft:#b9b8be;--faint:#8d8c93;
--grid:#2c2c30;--axis:#48484e;--edge:rgba(255,255,255,.1);--good:#4cc27a;--bad:#ff7b72;
--c0:#4a95ee;--c1:#ef7f47;--c2:#27b88b;--c3:#dfa92b;--c4:#e27fae;--c5:#9a86ee;--c6:#5fae43;--c7:#e86464;--c8:#77767c}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1240px;margin:0 auto;padding:32px 24px 56px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;font-weight:650;letter-spacing:-.01em}
h2{font-size:18px;margin:40px 0 12px;font-weight:650}
h3{font-size:15px;margin:20px 0 8px;font-weight:600}
p{margin:0 0 12px;color:var(--soft);max-width:80ch}
a{color:var(--c0)}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr));gap:16px}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:16px 16px 12px;margin:0;min-width:0;position:relative}
figcaption{font-weight:600}
.unit{font-weight:400;color:var(--faint);margin-left:4px}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(176px,1fr));gap:12px;margin:20px 0}
.tile{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:12px 16px}
.tile b{display:block;font-size:22px;line-height:1.3;font-weight:600}
.tile>span{white-space:nowrap;color:var(--soft);font-size:13px}
.tile small{display:block;color:var(--faint);font-size:12.5px}
.verdict{max-width:none;border-left:4px solid var(--c0);background:var(--card);border-radius:0 10px 10px 0;padding:10px 16px;margin:12px 0;color:var(--ink)}
.note{margin-top:8px;color:var(--faint);font-size:13.5px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin-top:2px;font-size:13px;color:var(--soft)}
.key{display:inline-flex;align-items:center;gap:6px;font-weight:inherit;overflow-wrap:anywhere}
.patch{width:12px;height:12px;border-radius:3px;flex:none}
.patch.dashed{border-radius:6px;height:6px}
svg{display:block;width:100%;height:auto;overflow:visible}
svg svg{overflow:hidden}
.chart{margin-top:8px}
.chart text{fill:var(--faint);font-size:12px;font-variant-numeric:tabular-nums}
.grid line.grid,line.grid{stroke:var(--grid)}
line.axis{stroke:var(--axis)}
line.cursor{stroke:var(--faint);visibility:hidden}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.line.dashed{stroke-dasharray:6 4}
.band{opacity:.18}
.area{stroke:var(--card);stroke-width:.8}
.dot{stroke:var(--card);stroke-width:1.5}
.tip{position:absolute;z-index:2;pointer-events:none;background:var(--card);border:1px solid var(--axis);border-radius:8px;
padding:6px 10px;font-size:12.5px;line-height:1.5;box-shadow:0 4px 14px rgba(0,0,0,.14);white-space:nowrap;font-variant-numeric:tabular-nums}
.tip .patch{display:inline-block;width:9px;height:9px;margin-right:6px}
.tip div:first-child{color:var(--faint)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--edge);border-radius:10px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:7px 16px;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
tr:last-child>th,tr:last-child>td{border-bottom:0}
thead th{color:var(--soft);font-weight:600;font-size:13px;vertical-align:bottom}
tbody th{font-weight:500;color:var(--soft)}
td.number,th.number{text-align:right;white-space:nowrap}
td.best{font-weight:650}
td small{color:var(--faint)}
.settings td,.settings tbody th{font-size:13.5px;overflow-wrap:anywhere}
.settings tbody th{white-space:nowrap;width:15em}
.meter{display:flex;width:100%;min-width:160px;height:14px;margin-top:4px;border-radius:4px;overflow:hidden;gap:1px}
.meter i,.bar i{min-width:1px}
.bar{display:flex;height:22px;border-radius:6px;overflow:hidden;gap:2px;margin:12px 0 8px}
.parts th,.parts td{padding:4px 0;font-size:14px}
.parts th{color:var(--ink);font-weight:400}
.parts td{text-align:right;white-space:nowrap;padding-left:16px}
.good{color:var(--good)}.bad{color:var(--bad)}
details{margin-top:12px}
summary{cursor:pointer;color:var(--soft);padding:4px 0}
footer{margin-top:40px;color:var(--faint);font-size:13px}
.k0{background:var(--c0)}.k1{background:var(--c1)}.k2{background:var(--c2)}.k3{background:var(--c3)}.k4{background:var(--c4)}
.k5{background:var(--c5)}.k6{background:var(--c6)}.k7{background:var(--c7)}.k8{background:var(--c8)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}
.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}.f8{fill:var(--c8)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}
.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}.s8{stroke:var(--c8)}
@media print{body{background:#fff}.card,.tile,.scroll{break-inside:avoid}}
)css";

/// Shows the values of a chart at the pointer. The page is complete without it.
inline constexpr const char* kScript = R"js(
for (const svg of document.querySelectorAll('svg.chart')) {
  const card = svg.parentElement, cursor = svg.querySelector('.cursor');
  let data, tip;
  const hide = () => { if (tip) tip.remove(); tip = null; cursor.style.visibility = 'hidden'; };
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('pointermove', event => {
    data ??= JSON.parse(svg.dataset.values);
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    let nearest = null;
    const rows = data.curves.map(curve => {
      const point = curve.points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
      if (!nearest || Math.abs(point[0] - x) < Math.abs(nearest[0] - x)) nearest = point;
      return [curve, point];
    });
    cursor.setAttribute('x1', nearest[0]);
    cursor.setAttribute('x2', nearest[0]);
    cursor.style.visibility = 'visible';
    if (!tip) { tip = document.createElement('div'); tip.className = 'tip'; card.append(tip); }
    tip.replaceChildren();
    const add = (text, color) => {
      const row = document.createElement('div');
      if (color !== undefined) {
        const patch = document.createElement('i');
        patch.className = 'patch k' + color;
        row.append(patch);
      }
      row.append(text);
      tip.append(row);
    };
    add(data.x === 'step' ? 'step ' + nearest[2] : nearest[2] + ' ' + data.x);
    for (const [curve, point] of rows)
      add((data.curves.length > 1 ? curve.name + '  ' : '') + point[3], curve.color);
    const scale = box.width / svg.viewBox.baseVal.width;
    const at = box.left - card.getBoundingClientRect().left + nearest[0] * scale;
    const fits = at + 14 + tip.offsetWidth < card.clientWidth;
    tip.style.left = Math.max(4, fits ? at + 14 : at - 14 - tip.offsetWidth) + 'px';
    tip.style.top = (box.top - card.getBoundingClientRect().top + 12) + 'px';
  });
}
)js";

}  // namespace lockstep::inline v0::apps::report
