//! Which instructions of a program lock a cache line, from `objdump -d`.

use std::collections::HashMap;
use std::process::Command;

/// Instructions that are counted by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// With a `lock` prefix, or an exchange with memory (which locks without one): an atomic
    /// read-modify-write, or a full fence made of one.
    Locked,
    /// A full fence that writes nothing.
    Fence,
    /// Reads the processor's own clock.
    Timestamp,
}

/// The instructions of one object that are of a [`Kind`], by address.
pub(super) type Marked = HashMap<u64, Kind>;

pub(super) fn disassemble(object: &str) -> Result<Marked, String> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", object])
        .output()
        .map_err(|error| format!("objdump: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("objdump {object}: {}", said.trim()));
    }
    let marked = parse(&String::from_utf8_lossy(&output.stdout));
    Ok(marked)
}

fn parse(text: &str) -> Marked {
    text.lines()
        .filter_map(|line| {
            let (address, instruction) = line.split_once(":\t")?;
            let address = u64::from_str_radix(address.trim(), 16).ok()?;
            Some((address, kind(instruction)?))
        })
        .collect()
}

fn kind(instruction: &str) -> Option<Kind> {
    let mut words = instruction.split_whitespace();
    let first = words.next()?;
    let mut all = std::iter::once(first).chain(words.clone());
    // Prefixes may stand before it: `xacquire lock`, `cs lock`.
    if all.any(|word| word == "lock") {
        return Some(Kind::Locked);
    }
    let operands = words.next().unwrap_or_default();
    match first {
        "xchg" | "xchgb" | "xchgw" | "xchgl" | "xchgq" if operands.contains('(') => {
            Some(Kind::Locked)
        }
        "mfence" => Some(Kind::Fence),
        "rdtsc" | "rdtscp" => Some(Kind::Timestamp),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locking_instructions_are_found() {
        let marked = parse(
            "
program:     file format elf64-x86-64

0000000000001000 <work>:
    1000:\tpush   %rbp
    1001:\tlock xadd %rax,(%rdi)
    1006:\txchg   %ax,%ax
    1008:\txchg   %eax,0x10(%rdi)
    100b:\txchg   %rax,%rbx
    100e:\tmfence
    1011:\tlock cmpxchg %rcx,0x8(%rbx,%rdx,8)
    1018:\trdtsc
    101a:\tcall   1000 <work_under_lock+0x3>
",
        );
        let mut found: Vec<_> = marked.into_iter().collect();
        found.sort_by_key(|(address, _)| *address);
        assert_eq!(
            found,
            [
                (0x1001, Kind::Locked),
                (0x1008, Kind::Locked),
                (0x100e, Kind::Fence),
                (0x1011, Kind::Locked),
                (0x1018, Kind::Timestamp),
            ]
        );
    }
}
