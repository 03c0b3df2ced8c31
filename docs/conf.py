"""The site: `make site`. Markdown pages by MyST, notebooks by myst-nb, the API from docstrings."""

import os
import pathlib
import re
import sys

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers.special import TextLexer

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))
os.environ["JAX_PLATFORMS"] = "cpu"
# Notebooks call `scorebed`, which need not be where the shell looks.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])

from scorebed import __version__  # noqa: E402

project = "scorebed"
author = "the authors of scorebed"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "site", "reproduction/records*"]
html_theme = "furo"
html_title = "scorebed"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_search_summary = False  # browsers read no other file from a page on the disk
html_theme_options = {"navigation_with_keys": True}

# Headings are named as on code hosts, so that links work in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_links_external_new_tab = False

nb_execution_mode = os.environ.get("SCOREBED_NOTEBOOKS", "cache")  # "off" shows code alone
nb_execution_cache_path = str(ROOT / "docs" / "_build" / "notebooks")
nb_execution_timeout = 1800  # of a cell, where others compute too
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # what libraries say about the terminal; an error ends the build

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_custom_sections = [("Methods", "params_style")]
napoleon_use_ivar = True
default_role = "code"
suppress_warnings = ["myst.header"]  # tables of the paper begin with a second heading
html_math_renderer = "mathml"  # nothing is loaded from elsewhere, formulas neither


def lines_as_they_are(app, what, name, obj, options, lines):
    """Docstrings are text: bars and underscores are themselves, and a block that is indented is
    shown as it stands.
    """
    del app, what, name, obj, options
    text, block, section = [], False, ""
    for line in lines:
        indented = line.startswith("    ")
        if line in SECTIONS:
            section = line
        elif line and not indented:
            section = ""
        if indented and not section and not block and text and not text[-1]:
            text += ["::", ""]
        block = not section and (indented or (block and not line))
        text.append(line if block or section == "Example:" else as_it_is(line))
    lines[:] = text


def as_it_is(line):
    """A line whose bars, and underscores at the end of a word, are themselves; code is anyway."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def for_the_site(app, docname, source):
    """Pages that stand at the root of the project, and lists of what a folder holds."""
    if docname in ROOT_PAGES:
        page = ROOT / ROOT_PAGES[docname]
        app.env.note_dependency(page)
        source[0] = page.read_text()
    text = source[0]
    if docname in ROOT_PAGES:
        text = re.sub(r"\]\(docs/", "](", text)
        text = re.sub(r"\]\((src|examples|benchmarks)/", r"](../\1/", text)
    for name, page in ROOT_PAGES.items():
        above = "../" * docname.count("/")
        text = re.sub(rf"\]\((\.\./)*{page}", f"]({above}{name}.md", text)
    text = re.sub(r"\]\(((?:\.\./)*decisions)/?\)", r"](\1/README.md)", text)
    if docname in LISTS:
        text += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{LISTS[docname]}\n```\n"
    source[0] = text


def short_types(app, what, name, obj, options, signature, returns):
    """Arrays by the names that the source gives them, in a signature."""
    del app, what, name, obj, options
    return tuple(text and by_their_names(text) for text in (signature, returns))


def short_types_of_fields(app, what, name, obj, options, lines):
    """The same in what napoleon says of attributes; those that subclasses give are wrapped."""
    del app, what, name, obj, options
    lines[:] = [ABSTRACT.sub(r"\1\2", by_their_names(line)) for line in lines]


def by_their_names(text):
    """A type in words, with the names that users import."""
    return ARRAY.sub("Array", KEY.sub("PRNGKeyArray", re.sub(r"~?jaxtyping\.", "", text)))


ABSTRACT = re.compile(
    r"~?equinox\._module\._better_abstract\.Abstract(?:Class)?Var\[(.*)\]([*`:]|$)"
)
ARRAY = re.compile(r"\bjaxlib\._jax\.Array\b")
KEY = re.compile(
    r"~?(?:jaxtyping\.)?Key\[jaxlib\._jax\.Array, ''\]"
    r"(?: \| ~?(?:jaxtyping\.)?UInt32\[jaxlib\._jax\.Array, '\d'\])+"
)
SECTIONS = ("Arguments:", "Attributes:", "Methods:", "Returns:", "Raises:", "Example:")
# Those to be read first come first.
TUTORIALS = "\n".join(("two-sources", "blood", "pendulum", "nuisance", "searching", "*"))
ROOT_PAGES = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
LISTS = {
    "decisions/README": "[0-9]*",
    "reproduction": "reproduction/*",
    "tutorials/README": TUTORIALS,
}


# A function's name, with its power if it has one, stands apart from what it is applied to, unless
# that is in brackets, and from what it multiplies.
NAME = r"<mi>(?:cos|exp|ln|log|sin|tanh)</mi>"
NAMED = re.compile(
    rf"(</(?:mi|mn|mover|msub|msup)>|&#x00029;</mo>|&#x02207;</mo>)?"
    rf"(<msup>{NAME}(?:(?!</msup>).)*</msup>|(?<!<msup>)(?<!<msub>){NAME})"
    r'(?=(<mo stretchy="false">&#x00028;|</)?)'
)


def apart(match):
    """A function's name with thin spaces around it."""
    before, name, after = match.groups()
    return (before + THIN if before else "") + name + ("" if after else THIN)


THIN = '<mspace width="0.17em"/>'


# A formula in the text, and the punctuation after it, which must not begin a line.
PUNCTUATED = re.compile(r"<math (?:(?!</math>).)*</math>[.,;:?!)]+", re.DOTALL)


def finished(app, pagename, templatename, context, doctree):
    """A page without the link by which an animation asks another site for the signs on its buttons
    (`site.css` has them), and with formulas that keep their punctuation.
    """
    del app, pagename, templatename, doctree
    body = re.sub(r"<link[^>]*font-awesome[^>]*>", "", context.get("body", ""))
    context["body"] = PUNCTUATED.sub(r'<span class="one-piece">\g<0></span>', body)


def formula(display):
    """What writes a formula as MathML, which browsers show by themselves."""

    def one(latex):
        text = NAMED.sub(apart, convert(latex, display=display))
        return text.replace("<mi>&#x0007E;</mi>", "<mo>∼</mo>")

    def visit(writer, node):
        # Formulas side by side stand below each other where there is no room.
        text = "".join(map(one, node.astext().split(r"\qquad")))
        writer.body.append(f'<div class="formula">{text}</div>' if display == "block" else text)
        raise nodes.SkipNode

    return visit, None


def setup(app):
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", formula("inline"), formula("block"))
    app.connect("autodoc-process-docstring", lines_as_they_are, priority=100)
    app.connect("autodoc-process-docstring", short_types_of_fields, priority=900)
    app.connect("autodoc-process-signature", short_types)
    app.connect("source-read", for_the_site)
    app.connect("html-page-context", finished)
    app.add_lexer("layers", TextLexer)
