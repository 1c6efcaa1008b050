from cdd_agent.generation.layout import Layout
from cdd_agent.tickets.graph import Definition
from tests.fakes.graphs import composite, leaf, make_graph


def layout(*paths: str, file: str = "graph", **metadata: str) -> Layout:
    return Layout.of(make_graph(*(leaf(f"f{at}", path) for at, path in enumerate(paths)), **metadata), file)


def place(*paths: str, file: str = "graph", **metadata: str) -> list[str]:
    chosen = layout(*paths, file=file, **metadata)
    return [chosen.map_path(path) for path in paths]


def test_directory_creation() -> None:
    """The seed's `src/data/` from `src/data/module.py`: the only folder is the package."""
    assert place("src/data/module.py") == ["src/data/module.py"]


def test_all_files_are_below_one_package() -> None:
    assert place("src/stats/a.py", "src/net/b.py", package="lab") == ["src/lab/stats/a.py", "src/lab/net/b.py"]
    assert place("stats/a.py", "src/stats/b/c.py", "./stats//d.py") == [
        "src/stats/a.py",
        "src/stats/b/c.py",
        "src/stats/d.py",
    ]


def test_the_package_is_named_by_the_graph_its_title_or_its_file() -> None:
    def name(file: str = "graph", **metadata: str) -> str:
        return layout("a.py", file=file, **metadata).package

    assert name(package="lab", name="Other") == "lab"
    assert name(name="ML library!") == "ml_library"
    assert name("3d-plots") == "lib_3d_plots"
    assert name("class") == "class_lib"
    assert name("statistics") == "statistics_lib"  # else the package would hide the standard library's
    assert name("tests") == "tests_lib"
    assert name("???") == "library"
    assert name("Größe") == "grosse" or name("Größe") == "groe"
    assert name(package="not a name") == "graph"


def test_one_module_that_is_the_package_stays_a_module() -> None:
    chosen = layout("src/solo.py", package="solo")
    assert (chosen.rows, chosen.module_of("src/solo.py")) == ((("src/solo.py", "src/solo.py"),), "solo")
    assert chosen.test_path("src/solo.py") == "tests/test_solo.py"
    assert place("solo.py", package="lab") == ["src/lab/solo.py"]


def test_there_is_no_init_beside_the_package() -> None:
    assert place("src/__init__.py", "src/data/a.py") == ["src/data/__init__.py", "src/data/a.py"]
    assert place("src/__init__.py", "a.py") == ["src/graph/__init__.py", "src/graph/a.py"]


def test_a_module_beside_a_package_of_its_name_is_the_init_of_the_package() -> None:
    assert place("app/io.py", "app/io/files.py") == ["src/app/io/__init__.py", "src/app/io/files.py"]


def test_a_folder_is_its_init() -> None:
    graph = make_graph(leaf("f", "src/app/io/files.py"), composite("io", "src/app/io"))
    assert Layout.of(graph, "g").module_of("src/app/io") == "app.io"


def test_tests_of_modules_with_equal_names_have_folders() -> None:
    paths = ("app/io.py", "app/net/io.py", "app/net/http.py", "app/integration/IO.py", "app/__init__.py")
    chosen = layout(*paths)
    assert [chosen.test_path(path) for path in paths] == [
        "tests/test_io.py",
        "tests/net/test_io.py",
        "tests/test_http.py",
        "tests/app/integration/test_IO.py",  # tests/integration is for the tests of subgraphs
        "tests/test_app.py",
    ]


def test_a_title_is_module_and_name_and_unique() -> None:
    nodes = (
        leaf("mean", "src/stats/descriptive.py"),
        leaf("load", "src/stats/__init__.py"),
        leaf("io.read", "src/stats/__init__.py", id="a"),
        leaf("read", "src/stats/io.py", id="b"),
        composite("descriptive", "src/stats/descriptive.py"),
    )
    chosen = Layout.of(make_graph(*nodes), "g")
    assert [chosen.title_of(node) for node in nodes] == [
        "descriptive.mean",
        "load",
        "io.read (a)",
        "io.read (b)",
        "descriptive",
    ]


def test_the_import_paths_of_a_node_are_those_of_all_its_definitions() -> None:
    node = leaf("A.f", "app/m.py")
    also = Definition(name="g", file_path="app/n.py", docstring="")
    graph = make_graph(type(node)(**{name: getattr(node, name) for name in node.__slots__} | {"also": (also,)}))
    assert Layout.of(graph, "g").name_definitions(graph.nodes[0]) == ("app.m.A.f", "app.n.g")


def test_rows_show_each_path_as_the_graph_has_it() -> None:
    assert layout("src/b/m.py", "a/n.py", package="p").rows == (
        ("a/n.py", "src/p/a/n.py"),
        ("src/b/m.py", "src/p/b/m.py"),
    )
