const image = document.getElementById("images");

function query() {
  const values = new FormData(form);
  const cut = Number(values.get("truncation"));
  document.getElementById("cut").textContent = cut > 1 ? "none" : cut.toFixed(2);
  document.getElementById("way").textContent = values.get("walk");
  if (cut > 1) values.delete("truncation");
  for (const [name, value] of [...values]) if (value === "") values.delete(name);
  return new URLSearchParams(values).toString();
}

const request = () => fetch("images?" + query());
const showAnswer = (sheet) => show(image, sheet);

document.getElementById("next").addEventListener("click", () => {
  form.elements.seed.value = Number(form.elements.seed.value) + 1;
  update();
});
update();
