// What runs now, and what needs a person: the first that is read at night.
const pad = (number) => String(number).padStart(2, "0");
const clockOf = (text) => { const at = new Date(text); return `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`; };
const dayOf = (text) => { const at = new Date(text); return `${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}`; };
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
let ahead = 0, scale = 1; // the fleet's clock, which in a lab runs ahead of ours

function ago(text) {
  if (!text) return "";
  return `${duration(text)} ago`;
}

function duration(text) {
  const seconds = Math.max(0, (Date.now() - started) / 1000 * scale + ahead - Date.parse(text) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${pad(Math.floor(seconds % 60))}s`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)}h${pad(Math.floor(seconds % 3600 / 60))}m` : `${Math.floor(seconds / 86400)}d`;
}
let started = Date.now();

const since = (text) => element("span", { class: "num", "data-since": text ?? "", title: text ? dayOf(text) : undefined }, ago(text));
const nodeLink = (name) => button(name, () => openNode(name), { class: "link" });
const statusMark = (status) => element("span", { class: "status" }, element("i", { class: `s-${status}`, "aria-hidden": "true" }), status.replace("_", " "));
const outside = (url, text) => url ? element("a", { href: url, rel: "noreferrer", target: "_blank" }, text) : text;
const alertOf = (text, grave = true) => element("p", { class: grave ? "alert grave" : "alert" }, text);

function cards(label, head, rows) {
  const made = table(label, head, rows);
  made.classList.add("cards");
  return made;
}

function showRun(run) {
  scale = run.time_scale;
  ahead = Date.parse(run.now) / 1000;
  started = Date.now();
  const work = run.at_work;
  byId("fleet-name").textContent = run.fleet || "not known yet";
  const waits = run.waiting ? `${run.waiting} wait${run.waiting === 1 ? "s" : ""}` : "";
  const said = work.length ? [`${plural(work.length, "node")} at work`, waits] : [run.role === "leader" ? "Nothing runs" : `This process is ${run.role}`, waits];
  byId("now-title").textContent = said.filter(Boolean).join(", ");
  document.title = `${work.length ? `${work.length} at work` : run.role === "leader" ? "idle" : run.role} · ${run.fleet || "reconciler"}`;
  byId("alerts").replaceChildren(...[
    run.stopped && alertOf(`Stopped: ${run.stopped}`),
    run.why_not_ready && alertOf(`Not ready: ${run.why_not_ready}`),
    run.spec_trouble && alertOf(`The newest commit ${run.spec_head.slice(0, 12)} is not in force: ${run.spec_trouble}`),
    run.role !== "leader" && alertOf(`This process does not lead. ${run.holders.map((one) => `${one.holder} does`).join("; ")}`, false),
  ].filter(Boolean));
  byId("resume").hidden = !(run.stopped && may("admin"));
  byId("facts").replaceChildren(...[
    ["run", run.run], ["commit", outside(run.spec_url, run.spec_commit.slice(0, 12))], ["drift mode", run.drift_mode],
    ["last pass", run.last_pass && since(run.last_pass)], ["time", scale !== 1 && `${scale} times as fast`],
  ].filter(([, value]) => value).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  byId("work").replaceChildren(...(work.length ? [cards("Nodes at work", ["node", "action", "progress", "since", "next"], work.map((one) => [
    nodeLink(one.node),
    one.action,
    [one.percent === null ? "" : element("progress", { max: 100, value: one.percent, "aria-label": `${one.node}: ${one.percent} %` }), element("span", { class: "soft" }, one.step || "begun")],
    since(one.since),
    element("span", { class: "soft" }, one.next_actions.length ? `then ${one.next_actions.slice(0, 3).join(", ")}${one.next_actions.length > 3 ? ` and ${one.next_actions.length - 3} more` : ""}` : "then nothing"),
  ]))] : []));
}

function showTrouble(fleet, incidents, holds) {
  const parts = [];
  for (const text of [fleet.stopped && `Stopped: ${fleet.stopped}`, fleet.braked && `Storm brake: ${fleet.braked}`, ...fleet.refused.map((why) => `The plan is refused: ${why}`), ...fleet.insecure.map((what) => `INSECURE: ${what}`), ...fleet.notes]) if (text) parts.push(alertOf(text));
  for (const one of fleet.clusters) if (one.trouble) parts.push(alertOf(`Cluster ${one.cluster} can't be read: ${one.trouble}`));
  for (const one of fleet.rollouts) if (one.halted) parts.push(alertOf(`The rollout of ${one.pool} is halted: ${one.halted}`));
  for (const one of incidents) parts.push(alertOf([element("strong", {}, `Incident: ${one.signal} in ${one.scope}, ${plural(one.nodes.length, "node")}. `), one.detail]));
  const rank = { blocked: 0, unknown: 1, held: 2 };
  const ill = [...fleet.trouble].sort((a, b) => (rank[a.status] ?? 3) - (rank[b.status] ?? 3));
  if (ill.length) parts.push(limited("Nodes that need a person", ["node", "pool", "status", "why"], ill, (one) => [nodeLink(one.node), one.pool, statusMark(one.status), one.why]));
  const set = holds.filter((one) => !one.subject.startsWith("fleet/"));
  if (set.length) parts.push(element("h3", {}, "Held"), limited("Holds", ["held", "owner", "since", "reason"], set, (one) => [
    one.subject.includes("/") ? one.subject : nodeLink(one.subject), one.owner, since(one.since),
    [one.reason, may(/^(fleet|isolation|decommissioned)\//.test(one.subject) ? "admin" : "operator") ? button("Release", () => ask(`Release ${one.subject}`, "Release", false, () => write("DELETE", `holds/${encodeURIComponent(one.subject)}`))) : ""]]));
  byId("attention").hidden = !parts.length;
  byId("trouble").replaceChildren(...parts);
}

// A long list shows its beginning, and the rest when it is asked for.
function limited(label, head, all, row, most = 12) {
  const made = element("div", {}, cards(label, head, all.slice(0, most).map(row)));
  if (all.length > most) made.append(button(`Show all ${all.length}`, () => made.replaceChildren(cards(label, head, all.map(row)))));
  return made;
}

function showRollouts(rollouts, past) {
  byId("rollouts").hidden = !rollouts.length;
  const known = new Map(past.map((one) => [`${one.pool} ${one.digest}`, one]));
  byId("waves").replaceChildren(...rollouts.map((one) => {
    const all = one.waves.reduce((sum, wave) => sum + wave.nodes.length, 0), done = one.waves.filter((wave) => wave.state === "done").reduce((sum, wave) => sum + wave.nodes.length, 0);
    const changes = Object.entries(one.changes).map(([path, values]) => `${path} ${values.map((value) => typeof value === "string" ? value : JSON.stringify(value)).join(" or ")}`).join(", ");
    const before = known.get(`${one.pool} ${one.digest}`), fits = before?.waves.length === one.waves.length; // of another plan, it may not
    const none = { waves: one.waves.map((wave) => ({ nodes: wave.nodes.length, converged: 0, first: null, last: null })) };
    return element("div", { class: "part" },
      element("h3", {}, `${one.pool}: ${one.rollback ? "rollback, " : ""}${done} of ${all} nodes done`),
      element("p", { class: "soft note" }, `${changes}${one.started_at ? `; began ${dayOf(one.started_at)}` : ""}`),
      one.halted ? alertOf(`Halted: ${one.halted}`) : "", rolloutChart(one, fits ? before : none));
  }));
}

// --- what takes the server a second to read: shown when it is asked for ---

function showMeasured(found) {
  const parts = found.figures.map((one) => element("div", { class: "part" }, element("h3", {}, one.title), element("p", { class: "soft note" }, `${one.peers}. ${one.said}`), spreadChart(one),
    one.outliers.length ? element("ul", { class: "lines", "aria-label": `Nodes that stand out in ${one.title}` }, one.outliers.map((node) => element("li", {}, nodeLink(node.node), ` ${node.value}: ${node.why}`)), one.left_out ? element("li", {}, `and ${one.left_out} more`) : "") : ""));
  byId("spreads").replaceChildren(...parts, element("p", { class: "soft" }, [parts.length ? "" : "No certificate in the ledger has a value that a bar of the spec judges", found.left_out].filter(Boolean).join("; ")));
}

function showAvailability(days) {
  byId("service").replaceChildren(availabilityChart(days));
}

function onceOpened(id, path, show) {
  byId(id).addEventListener("toggle", async () => {
    if (!byId(id).open) return;
    try { show(await api(path)); } catch (error) { byId(id).append(alertOf(error.message)); }
  });
}
onceOpened("measured", "measured", showMeasured);
onceOpened("availability", "availability?days=30", showAvailability);
