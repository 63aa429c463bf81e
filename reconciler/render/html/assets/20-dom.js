// Elements with text in them. Nothing here, and nothing elsewhere, makes markup of a text.
const byId = (id) => document.getElementById(id);

function element(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (key === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== "" && child !== null && child !== undefined));
  return made;
}

function drawing(name, given, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const sample = (style) => element("span", { class: `sample ${style}`, "aria-hidden": "true" });
const button = (label, handler, given = {}) => element("button", { type: "button", class: "plain", on: { click: handler }, ...given }, label);

function table(label, head, rows) {
  return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, element("table", {},
    element("thead", {}, element("tr", {}, head.map((cell) => cell instanceof Node ? cell : element("th", { scope: "col" }, cell)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell) => element("td", {}, cell)))))));
}
