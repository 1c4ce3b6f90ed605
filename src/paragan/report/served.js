"use strict";
const form = document.getElementById("controls");
const status = document.getElementById("status");
let running = false;
let waiting = false;

function show(element, content) {
  const before = element.src;
  element.src = URL.createObjectURL(content);
  element.hidden = false;
  if (before) URL.revokeObjectURL(before);
}

async function update() {
  if (running) { waiting = true; return; }
  running = true;
  status.textContent = "generating";
  try {
    const answer = await request();
    if (answer.ok) showAnswer(await answer.blob());
    status.textContent = answer.ok ? "" : await answer.text();
  } catch {
    status.textContent = "no answer: start the command again";
  }
  running = false;
  if (waiting) { waiting = false; update(); }
}

form.addEventListener("input", update);
form.addEventListener("submit", (event) => event.preventDefault());
