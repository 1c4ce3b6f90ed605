"""HTML pages from templates: every value is escaped, and a page runs only its script and style."""

import base64
import hashlib
from functools import cache
from pathlib import Path

import jinja2

from paragan.report.chart import View, table_rows
from paragan.report.scale import format_number

_HERE = Path(__file__).parent


def render_page(template: str, view: View, reloads: bool = False) -> str:
    """Return a page as HTML. reloads: it polls its own address for a newer version."""
    css, js = map(_asset, ("report.css", "report.js"))
    sources = "img-src data:; media-src data:" + ("; connect-src 'self'" if reloads else "")
    page = {"reloads": reloads, "css": css, "js": js, "csp": _content_policy(sources, css, js)}
    return _environment().get_template(template).render(view, **page)


def served_page(kind: str, view: View) -> tuple[str, str]:
    """Return a page of `paragan serve` as HTML, and its content security policy.

    kind: `sampler`, or of the files that the page takes: `image`, `audio`.
    """
    css = _asset("served.css")
    js = _asset("served.js") + _asset("sampler.js" if kind == "sampler" else "applied.js")
    html = _environment().get_template("served.html.j2").render(view, kind=kind, css=css, js=js)
    return html, _content_policy("img-src blob: data:; connect-src 'self'; media-src blob:", css, js)


def _content_policy(sources: str, css: str, js: str) -> str:
    """Return the content security policy of a page: this style and script, and the sources of other content."""
    styles = f"style-src '{_sha256_source(css)}'; script-src '{_sha256_source(js)}'"
    return f"default-src 'none'; {sources}; {styles}; base-uri 'none'; form-action 'none'"


def _sha256_source(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True,
        loader=jinja2.FileSystemLoader(_HERE),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": format_number, "table": table_rows}
    return environment
