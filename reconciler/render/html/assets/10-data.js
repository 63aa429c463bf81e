"use strict";
// What the page knows. Nodes are columns; a text, and a row that nodes share, is meant by its place in a table.
const data = JSON.parse(document.getElementById("data").textContent);
const nodes = data.nodes;
const total = nodes.name ? nodes.name.length : 0;
const text = (place) => data.texts[place];
const everyNode = [...Array(total).keys()];

const SERVICE = ["out of service", "in service", "not known whether in service"];
const READ_FROM = ["Redfish", "Redfish inventory", "SSH", "Kubernetes", "the ledger", ""];
// Kinds of drift that are somebody's business; the others are told in a node's own view alone.
const MATTERS = new Set(["drifted", "pending", "conflict", "renewal", "in_progress", "unknown"]);
// What is told first of a node with many troubles: whether it works, then what it is, then what it runs.
const GRAVEST = ["health", "trust", "identity", "hardware", "firmware", "bios", "boot", "image", "gpu", "cluster", "host", "gate"];

// Rows of the tables, as objects.
const driftOf = ([concern, path, kind, wanted, found, applied, detail]) => ({
  concern: data.concerns[concern], path: text(path), kind: text(kind), wanted: text(wanted), found: text(found),
  applied: text(applied), detail: text(detail),
});
const drifts = data.nodes.name ? data.drifts.map(driftOf) : [];

// Concerns of each node, gravest first, and what the text filter looks into.
const statusOf = (node) => data.statuses[nodes.status[node]];
const concerns = everyNode.map((node) => {
  const found = new Set(nodes.drift[node].map(([place]) => drifts[place]).filter((d) => MATTERS.has(d.kind)).map((d) => d.concern));
  return GRAVEST.filter((concern) => found.has(concern));
});
const placeOf = (node, label) => label === "pool" ? text(nodes.pool[node]) : text(nodes.domains[node][label]) ?? "";
const labels = [...new Set(everyNode.flatMap((node) => Object.keys(nodes.domains[node])))];
labels.sort((a, b) => (b === "rack") - (a === "rack") || (a < b ? -1 : 1));
labels.push("pool");
const words = everyNode.map((node) => [
  nodes.name[node], ...labels.map((label) => placeOf(node, label)), text(nodes.persona[node]),
  ...nodes.drift[node].map(([place]) => drifts[place].path),
].join("\n").toLowerCase());

const natural = new Intl.Collator("en", { numeric: true });
// Nodes by name, found once: comparing names takes longer than all else that a new order takes.
const rank = new Uint32Array(total);
[...everyNode].sort((a, b) => natural.compare(nodes.name[a], nodes.name[b])).forEach((node, at) => { rank[node] = at; });
const said = (word) => word.replaceAll("_", " ");
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

function duration(seconds) {
  const whole = Math.round(Math.abs(seconds)), two = (number) => String(number).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m` + (whole % 60 ? `${two(whole % 60)}s` : "");
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole % 3600 / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor(whole % 86400 / 3600))}h`;
}

// Instants are seconds from when the page was made.
const instant = (seconds) => new Date((data.made + seconds) * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
const ago = (seconds) => seconds > 0 ? `in ${duration(seconds)}` : `${duration(seconds)} earlier`;
