//! Loads inside loads, and waiting that would never end.
//!
//! A loader may ask for other keys. If, by whatever detour over other threads' loads, it would wait
//! for a load that waits for it, nobody would ever wake it: [`Nested::wait`] finds that out before.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::sync::{Arc, Mutex, OnceLock, without_fork};

/// The address of a load, for as long as it is held on to.
type Name = usize;

#[cfg(not(ebbtide_loom))]
thread_local! {
    /// The loads whose loaders this thread is running, innermost last.
    static LEADING: RefCell<Vec<Name>> = const { RefCell::new(Vec::new()) };
}

#[cfg(ebbtide_loom)]
loom::thread_local! {
    static LEADING: RefCell<Vec<Name>> = RefCell::new(Vec::new());
}

/// What `f` makes of the loads whose loaders this thread is running. (Of a thread that is ending nothing is
/// known: `None`. It finds no endless wait, and takes part in finding none.)
fn leading<R>(f: impl FnOnce(&mut Vec<Name>) -> R) -> Option<R> {
    LEADING
        .try_with(|leading| f(&mut leading.borrow_mut()))
        .ok()
}

/// For each load whose loader waits: the loads that it waits for. Across all caches.
fn edges() -> &'static Mutex<HashMap<Name, Vec<Name>>> {
    static EDGES: OnceLock<Mutex<HashMap<Name, Vec<Name>>>> = OnceLock::new();
    EDGES.get_or_init(|| Mutex::new(HashMap::new()))
}

fn name<T>(flight: &Arc<T>) -> Name {
    Arc::as_ptr(flight) as usize
}

/// While it lives, this thread runs the loader of a load.
pub(crate) struct Inside(Name, std::marker::PhantomData<*const ()>);

impl Inside {
    pub(crate) fn enter<T>(flight: &Arc<T>) -> Self {
        leading(|leading| leading.push(name(flight)));
        Inside(name(flight), std::marker::PhantomData)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        leading(|leading| {
            if let Some(place) = leading.iter().rposition(|&one| one == self.0) {
                leading.remove(place);
            }
        });
    }
}

/// The wait of a loader for other loads, noted for as long as it lives.
pub(crate) struct Nested {
    waiting: Vec<Name>,
    target: Name,
}

impl Nested {
    /// Notes that the loaders that this thread runs will wait for `target`: `None` if that would
    /// never end. Nothing is noted (and no lock taken) outside of loaders.
    pub(crate) fn wait<T>(target: &Arc<T>) -> Option<Self> {
        let target = name(target);
        let waiting = leading(|leading| leading.clone()).unwrap_or_default();
        if waiting.is_empty() {
            return Some(Nested { waiting, target });
        }
        without_fork(|| Self::note(waiting, target))
    }

    fn note(waiting: Vec<Name>, target: Name) -> Option<Self> {
        let mut edges = edges().lock();
        let (mut reached, mut next) = (vec![target], 0);
        while let Some(one) = reached.get(next).copied() {
            if waiting.contains(&one) {
                return None;
            }
            for &further in edges.get(&one).into_iter().flatten() {
                if !reached.contains(&further) {
                    reached.push(further);
                }
            }
            next += 1;
        }
        for &one in &waiting {
            edges.entry(one).or_default().push(target);
        }
        Some(Nested { waiting, target })
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        without_fork(|| self.forget());
    }
}

impl Nested {
    fn forget(&self) {
        let mut edges = edges().lock();
        for one in &self.waiting {
            if let Some(targets) = edges.get_mut(one) {
                if let Some(place) = targets.iter().position(|&target| target == self.target) {
                    targets.swap_remove(place);
                }
                if targets.is_empty() {
                    edges.remove(one);
                }
            }
        }
    }
}
