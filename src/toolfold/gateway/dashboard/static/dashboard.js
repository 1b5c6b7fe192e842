// What the pages do beyond links and forms: show what happens now, draw the chart, "/" to search.
"use strict";
(() => {
  const KEPT = 64000;
  let source = null, due = null, broken = false;
  const names = new Set();

  const fire = (changed) => {
    changed.forEach((name) => names.add(name));
    due = due || setTimeout(() => {
      due = null;
      const now = [...names];
      names.clear();
      now.forEach((name) => htmx.trigger(document.body, name));
    }, 500);
  };

  const print = (pre, text) => {
    const atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
    const whole = pre.textContent + text;
    pre.textContent = whole.length > KEPT ? "…" + whole.slice(-KEPT) : whole;
    pre.hidden = false;
    if (atEnd) pre.scrollTop = pre.scrollHeight;
  };

  const listen = () => {
    if (source || document.hidden || !document.querySelector("header nav")) return;
    source = new EventSource("/dashboard/events");
    source.addEventListener("open", () => {
      document.getElementById("offline").hidden = true;
      if (broken) fire(["runs", "questions"]);
      broken = false;
    });
    source.addEventListener("error", () => {
      broken = true;
      document.getElementById("offline").hidden = false;
    });
    source.addEventListener("output", (event) => {
      const { run, text } = JSON.parse(event.data);
      document.querySelectorAll("pre[data-run]").forEach((pre) => pre.dataset.run === run && print(pre, text));
    });
    source.addEventListener("changed", (event) => fire(JSON.parse(event.data)));
    source.addEventListener("questions", (event) => {
      const count = JSON.parse(event.data), badge = document.getElementById("waiting");
      if (badge.textContent !== String(count)) fire(["questions"]);
      badge.textContent = count;
      badge.hidden = !count;
      document.title = document.title.replace(/^(\(\d+\) )?/, count ? `(${count}) ` : "");
    });
  };

  // A browser opens few connections to one host: only the page that is looked at listens.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { broken = true; listen(); }
    else if (source) { source.close(); source = null; }
  });

  document.addEventListener("keydown", (event) => {
    const field = document.querySelector("input[type=search]");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !field) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    event.preventDefault();
    field.focus();
    field.select();
  });

  const short = (value) => value >= 1e6 ? `${+(value / 1e6).toPrecision(3)} M` : value >= 1e3 ? `${+(value / 1e3).toPrecision(3)} k` : String(Math.round(value));

  const draw = (box) => {
    const [days, direct, sent] = JSON.parse(box.dataset.chart);
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const bars = (align) => uPlot.paths.bars({ size: [0.42, 20], align, radius: 0.15 });
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
      font: "12px system-ui, sans-serif" };
    const size = () => ({ width: box.clientWidth, height: Math.max(180, Math.min(260, box.clientWidth * 0.4)) });
    const day = (value) => new Date(value * 1000).toLocaleDateString("en", { day: "numeric", month: "short", timeZone: "UTC" });
    const series = (label, name, align) => ({ label, stroke: colour(name), fill: colour(name), width: 0,
      paths: bars(align), points: { show: false }, value: (plot, value) => value == null ? "–" : short(value) });
    box.replaceChildren();
    const plot = new uPlot({
      ...size(), tzDate: (value) => new Date(value * 1000), cursor: { points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: true, range: () => [days[0] - 86400 * 0.7, days[days.length - 1] + 86400 * 0.7] }, y: { range: (plot, least, most) => [0, Math.max(10, most * 1.08)] } },
      axes: [{ ...axis, values: (plot, ticks) => ticks.map(day), grid: { show: false }, incrs: [1, 2, 4, 7, 14, 28].map((n) => n * 86400), space: 64, size: 32 },
        { ...axis, values: (plot, ticks) => ticks.map(short), size: 58 }],
      series: [{ label: "Day", value: (plot, value) => value == null ? "–" : day(value) },
        series("Direct calls", "--chart-direct", -1), series("With Toolfold", "--accent", 1)],
    }, [days, direct, sent], box);
    const last = () => plot.setLegend({ idx: days.length - 1 });
    box.onmouseleave = last;
    setTimeout(last);
    return () => plot.setSize(size());
  };

  // The page itself, and each part of it that was fetched again.
  document.addEventListener("htmx:load", (event) => event.detail.elt.querySelectorAll("pre.live").forEach((pre) => { pre.scrollTop = pre.scrollHeight; }));

  const start = () => {
    listen();
    const box = document.querySelector("[data-chart]");
    if (!box || !window.uPlot) return;
    let resize = draw(box);
    new ResizeObserver(() => resize()).observe(box.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { resize = draw(box); });
  };
  document.addEventListener("DOMContentLoaded", start);
})();
