//! Sizes of files and functions.

use gradient_tidy::{Faults, rust, tree};

/// Lines of a file, tests included, at which it has to be divided.
const FILE_LINES_MAX: usize = 600;
/// Lines at which somebody should look.
const FILE_LINES_LOOK: usize = 400;
/// Lines of a function at which it has to be divided.
const FUNCTION_LINES_MAX: usize = 100;
/// Lines that a function should not exceed.
const FUNCTION_LINES_LOOK: usize = 70;

/// Files over the limit, each with the length it may have. The list only shrinks.
const LONG_FILES: &[(&str, usize)] = &[];

#[test]
fn files_are_short() {
    let mut faults = Faults::default();
    let files = tree::rust_files();
    for file in &files {
        let lines = file.text.lines().count();
        let exception = LONG_FILES.iter().find(|(path, _)| *path == file.path);
        let limit = exception.map_or(FILE_LINES_MAX, |(_, limit)| *limit);
        faults.check(lines <= limit, || format!("{}: {lines} lines, at most {limit}", file.path));
        if lines > FILE_LINES_LOOK {
            println!("look at {}: {lines} lines", file.path);
        }
    }
    for (path, _) in LONG_FILES {
        let lines = files
            .iter()
            .find(|file| file.path == *path)
            .map_or(0, |file| file.text.lines().count());
        faults.check(lines > FILE_LINES_MAX, || format!("{path} needs no exception any more"));
    }
    faults.finish("files that are too long");
}

#[test]
fn functions_are_short() {
    let mut faults = Faults::default();
    for file in tree::rust_files() {
        for function in rust::functions(&rust::code_only(&file.text)) {
            let text = format!(
                "{}:{} {}: {} lines",
                file.path, function.line, function.name, function.lines
            );
            if function.lines > FUNCTION_LINES_LOOK {
                println!("look at {text}");
            }
            faults.check(function.lines <= FUNCTION_LINES_MAX, || text);
        }
    }
    faults.finish("functions over 100 lines");
}
