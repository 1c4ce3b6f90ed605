const choice = document.getElementById("file");
const input = document.getElementById("input");
const output = document.getElementById("output");
const link = document.getElementById("download");

const refuse = (reason) => new Response(reason, { status: 400 });

async function request() {
  const [file, ...others] = choice.files;
  input.hidden = output.hidden = link.hidden = true;
  if (!file || others.length) return refuse("choose one file");
  if (file.size > form.dataset.most) return refuse(`${file.name} is larger than ${form.dataset.most >> 20} MiB`);
  show(input, file);
  link.download = file.name.replace(/(?<=.)\.[^.]*$/, "") + form.dataset.ending;
  link.textContent = "Download " + link.download;
  return fetch("apply?" + new URLSearchParams(new FormData(form)), { method: "POST", body: file });
}

function showAnswer(result) {
  show(output, result);
  link.href = output.src;
  link.hidden = false;
}

addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault(); // the browser would open the file
  if (!event.dataTransfer.files.length) return;
  choice.files = event.dataTransfer.files;
  update();
});
