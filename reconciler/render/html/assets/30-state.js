// What is shown, kept in the address's fragment so that a view can be passed on.
const DEFAULTS = { q: "", pool: "", status: "", concern: "", place: "", by: labels[0], colour: "status", view: "map", node: "" };
const state = { ...DEFAULTS };
const listeners = [];

function readFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const key of Object.keys(DEFAULTS)) state[key] = given.get(key) ?? DEFAULTS[key];
  if (!labels.includes(state.by)) state.by = DEFAULTS.by;
  if (!["status", "concern"].includes(state.colour)) state.colour = "status";
  if (!["map", "table"].includes(state.view)) state.view = "map";
}

function writeFragment() {
  const told = new URLSearchParams(Object.entries(state).filter(([key, value]) => value !== DEFAULTS[key]));
  const fragment = told.size ? `#${told}` : "";
  if (fragment !== location.hash) history.replaceState(null, "", fragment || location.pathname + location.search);
}

// Change what is shown; whoever shows it is told which keys have changed.
function change(wanted) {
  const changed = new Set(Object.keys(wanted).filter((key) => state[key] !== wanted[key]));
  if (!changed.size) return;
  Object.assign(state, wanted);
  if (changed.has("by") && !changed.has("place") && state.place) { state.place = ""; changed.add("place"); }
  writeFragment();
  for (const listener of listeners) listener(changed);
}
const has = (changed, ...keys) => keys.some((key) => changed.has(key));
