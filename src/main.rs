//! The program; all of it is in [`toolgate::cli`].

use std::process::ExitCode;

/// A call allocates dozens of small, short-lived pieces on the thread that frees them: what this allocator is best at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolgate::cli::main()
}
