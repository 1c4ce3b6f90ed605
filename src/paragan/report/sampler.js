"use strict";
const form = document.getElementById("controls");
const image = document.getElementById("images");
const status = document.getElementById("status");
let running = false;
let waiting = false;

function query() {
  const values = new FormData(form);
  const cut = Number(values.get("truncation"));
  document.getElementById("cut").textContent = cut > 1 ? "none" : cut.toFixed(2);
  document.getElementById("way").textContent = values.get("walk");
  if (cut > 1) values.delete("truncation");
  for (const [name, value] of [...values]) if (value === "") values.delete(name);
  return new URLSearchParams(values).toString();
}

async function update() {
  if (running) { waiting = true; return; }
  running = true;
  status.textContent = "generating";
  try {
    const answer = await fetch("images?" + query());
    if (answer.ok) {
      const before = image.src;
      image.src = URL.createObjectURL(await answer.blob());
      if (before) URL.revokeObjectURL(before);
      status.textContent = "";
    } else {
      status.textContent = await answer.text();
    }
  } catch {
    status.textContent = "no answer: start the command again";
  }
  running = false;
  if (waiting) { waiting = false; update(); }
}

form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("next").addEventListener("click", () => {
  form.elements.seed.value = Number(form.elements.seed.value) + 1;
  update();
});
update();
