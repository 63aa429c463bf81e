// Charts by Observable Plot, which is read when the first of them is shown. Below each stand its figures as a table.
let plotRead = null;
const charted = new Set();

function plotting() {
  return plotRead ??= new Promise((done, failed) => {
    document.head.append(element("script", { src: "/charts.js", on: { load: done, error: () => failed(new Error("the charts could not be read: reload the page")) } }));
  });
}

// `draw` takes a width and returns a drawing. `said`: the chart in one sentence, for who does not see it.
function chart(title, said, draw, head, rows) {
  const holder = element("div", { class: "drawing" });
  const made = { holder, draw: () => {
    const drawn = draw(Math.max(holder.clientWidth, 260));
    for (const part of drawn.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label"); // of a mark: no role takes it
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", `${title}: ${said}; the table below has the same figures`);
    holder.replaceChildren(drawn);
  } };
  charted.add(made);
  plotting().then(() => requestAnimationFrame(made.draw)).catch((error) => holder.replaceChildren(alertOf(error.message)));
  const figures = head ? element("details", { class: "small" }, element("summary", {}, "As a table"), table(title, head, rows)) : "";
  return element("figure", { class: "chart" }, holder, figures);
}

// Widths change, and "now" moves.
function redraw() {
  for (const one of charted) {
    if (!one.holder.isConnected) charted.delete(one);
    else if (window.Plot && one.holder.clientWidth) one.draw();
  }
}
addEventListener("resize", () => requestAnimationFrame(redraw));
setInterval(redraw, 60000);

const nowOfFleet = () => new Date((Date.now() - started) * scale + ahead * 1000);
const at = (text) => new Date(text);
const nowMark = () => [
  Plot.ruleX([nowOfFleet()], { className: "now" }),
  Plot.text([nowOfFleet()], { x: (when) => when, text: () => "now", frameAnchor: "top", dy: -9, fill: "currentColor" }),
];
const untilNow = (times) => [new Date(Math.min(...times, nowOfFleet())), new Date(Math.max(...times, nowOfFleet()))];

// What is done is drawn from the first node to the last that was converged, and what is to come as it is expected.
function rolloutChart(one, past) {
  const named = (index) => `wave ${index + 1}`;
  const done = past.waves.map((wave, index) => ({ ...wave, wave: named(index), x1: wave.first && at(wave.first), x2: wave.last && at(wave.last) })).filter((wave) => wave.x1);
  const coming = one.waves.map((wave, index) => ({ ...wave, wave: named(index), x1: wave.start ? at(wave.start) : nowOfFleet(), x2: wave.end && at(wave.end) })).filter((wave) => wave.x2 && wave.state !== "done");
  const converged = past.waves.reduce((sum, wave) => sum + wave.converged, 0), all = past.waves.reduce((sum, wave) => sum + wave.nodes, 0);
  const rows = one.waves.map((wave, index) => [named(index), plural(wave.nodes.length, "node"), wave.state, past.waves[index].converged, past.waves[index].first ? `${dayOf(past.waves[index].first)} to ${dayOf(past.waves[index].last)}` : "", wave.start || wave.end ? `${wave.start ? dayOf(wave.start) : "now"} to ${wave.end ? dayOf(wave.end) : "not known"}` : "", wave.detail]);
  const bar = (kind, rows, titleOf) => Plot.barX(rows, { x1: "x1", x2: "x2", y: "wave", className: `b-${kind}`, insetTop: 3, insetBottom: 3, insetLeft: -1.5, insetRight: -1.5, title: titleOf });
  return chart(`Waves of ${one.pool}`, `${converged} of ${plural(all, "node")} converged, in ${plural(one.waves.length, "wave")}`, (width) => Plot.plot({
    width, height: 46 + 30 * one.waves.length, marginLeft: 58, marginRight: 24, marginTop: 20,
    x: { type: "time", label: null, domain: untilNow([...done, ...coming].flatMap((wave) => [wave.x1, wave.x2])), nice: true, grid: true },
    y: { label: null, domain: one.waves.map((_, index) => named(index)) },
    marks: [
      bar("done", done, (wave) => `${wave.converged} of ${plural(wave.nodes, "node")} converged until ${dayOf(wave.last)}`),
      ["open", "baking", "waiting", "halted"].flatMap((kind) => bar(kind, coming.filter((wave) => wave.state === kind), (wave) => `${plural(wave.nodes.length, "node")}: ${wave.state}${wave.detail ? `, ${wave.detail}` : ""}`)),
      nowMark(),
    ],
  }), ["wave", "nodes", "state", "converged", "was", "is expected", "detail"], rows);
}

// The values of one metric of many nodes, refused ones below the others, with today's bars as lines.
function spreadChart(one) {
  const inner = one.bins.find((bin) => bin.low !== null && bin.high !== null), step = inner ? inner.high - inner.low : 1;
  const bins = one.bins.map((bin) => ({ ...bin, x1: bin.low ?? bin.high - step, x2: bin.high ?? bin.low + step }));
  const least = bins[0].x1, most = bins.at(-1).x2, bars = one.bars.filter((bar) => bar.at >= least && bar.at <= most);
  return chart(one.title, one.said, (width) => Plot.plot({
    width, height: 190, marginTop: 24, marginRight: 24,
    x: { label: one.unit || null, ticks: Math.max(3, Math.floor(width / 90)) }, y: { label: "nodes", grid: true, tickFormat: "d", ticks: 4 },
    marks: [
      Plot.rectY(bins.filter((bin) => bin.refused), { x1: "x1", x2: "x2", y1: 0, y2: "refused", className: "b-refused", title: (bin) => `${bin.label}: ${bin.refused} refused` }),
      Plot.rectY(bins.filter((bin) => bin.passes), { x1: "x1", x2: "x2", y1: "refused", y2: (bin) => bin.refused + bin.passes, className: "b-passes", title: (bin) => `${bin.label}: ${plural(bin.passes, "node")}` }),
      Plot.text(bins.filter((bin) => bin.low === null || bin.high === null), { x: (bin) => (bin.x1 + bin.x2) / 2, y: (bin) => bin.refused + bin.passes, text: (bin) => `${bin.label}: ${bin.refused + bin.passes}`, dy: -8, fill: "currentColor" }),
      Plot.ruleY([0]),
      Plot.ruleX(bars, { x: "at", className: "limit" }),
      Plot.text(bars, { x: "at", text: (bar) => `bar ${bar.words}`, frameAnchor: "top", dy: -12, fill: "currentColor" }),
    ],
  }), ["values", "nodes", "of these refused"], one.bins.filter((bin) => bin.passes + bin.refused).map((bin) => [bin.label, bin.passes + bin.refused, bin.refused]));
}

const inPercent = (share) => share === null ? "not known" : `${(100 * share).toFixed(share > 0.999 && share < 1 ? 3 : 1)} %`;

function availabilityChart(days) {
  const points = days.map((day) => ({ ...day, x: at(day.start), y: day.availability === null ? NaN : 100 * day.availability, unseen: day.hours.unobserved > 0.01 * (day.hours.in_service + day.hours.out + day.hours.unobserved) }));
  const known = points.filter((day) => !Number.isNaN(day.y)), hours = (name) => days.reduce((sum, day) => sum + day.hours[name], 0);
  const seen = hours("in_service") + hours("out"), mean = seen ? inPercent(hours("in_service") / seen) : "not known";
  return chart("Availability", `${mean} of ${Math.round(seen)} node-hours seen were in service, in ${plural(days.length, "day")}`, (width) => Plot.plot({
    width, height: 190, marginRight: 24, marginTop: 24,
    x: { type: "utc", label: null }, y: { label: "% in service", domain: [Math.max(0, Math.floor(Math.min(99, ...known.map((day) => day.y - 1)))), 100], grid: true, ticks: 4 },
    marks: [
      Plot.lineY(points, { x: "x", y: "y", className: "line" }),
      Plot.dot(known, { x: "x", y: "y", r: 4, className: "b-open", title: (day) => `${day.start.slice(0, 10)}: ${inPercent(day.availability)}` }),
      Plot.dot(known.filter((day) => day.unseen), { x: "x", y: "y", r: 7, className: "ring", title: (day) => `${day.start.slice(0, 10)}: ${Math.round(day.hours.unobserved)} node-hours were not observed` }),
    ],
  }), ["day (UTC)", "in service", "node-hours in service", "out of service", "set aside", "not observed"], [...days].reverse().map((day) => [day.start.slice(0, 10), inPercent(day.availability), ...["in_service", "out", "aside", "unobserved"].map((name) => day.hours[name].toFixed(1))]));
}

// The past of a node as marks on a line for each kind; the list below says the same in words.
const KINDS = [["drift", "introduced"], ["begun", "work"], ["done", "done"], ["failed", "halted"], ["hold", "baking"], ["other", "open"]];
function kindOf(entry) {
  if (entry.event === "outcome") return entry.evidence.outcome === "done" ? "done" : "failed";
  return { drift: "drift", intent: "begun", hold: "hold", release: "hold" }[entry.event] ?? "other";
}

function strip(history) {
  if (!history.length) return element("p", { class: "none" }, "The journal has nothing about it.");
  const entries = history.map((entry) => ({ ...entry, kind: kindOf(entry), x: at(entry.at) })), kinds = KINDS.filter(([name]) => entries.some((entry) => entry.kind === name));
  const made = chart("History", `${history.length === 1 ? "1 entry" : `${history.length} entries`} since ${dayOf(history[0].at)}`, (width) => Plot.plot({
    width, height: 50 + 22 * kinds.length, marginLeft: 52, marginRight: 24, marginTop: 20,
    x: { type: "time", label: null, domain: untilNow(entries.map((entry) => entry.x)), nice: true }, y: { label: null, domain: kinds.map(([name]) => name), grid: true },
    marks: [kinds.map(([name, style]) => Plot.dot(entries.filter((entry) => entry.kind === name), { x: "x", y: "kind", r: 5, className: `b-${style}`, title: (entry) => `${dayOf(entry.at)} ${entry.event} ${entry.action} ${entry.detail}` })), nowMark()],
  }));
  made.classList.add("strip");
  return made;
}
