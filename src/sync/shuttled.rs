//! shuttle runs one thread at a time and switches where it is asked to. These are the ordinary
//! atomics with such a point before each access, and not shuttle's own, which are larger and cannot
//! be made by zeroing memory: so the slab and the index keep the layout that ships. Whatever the
//! ordering says, what runs is sequentially consistent.

use std::sync::atomic as real;

pub(crate) use std::sync::atomic::Ordering;

pub(crate) use super::checked::{Mutex, MutexGuard};

/// Lets another thread go first, if the schedule says so: what any access to an atomic of
/// shuttle's does.
fn switch() {
    shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
}

pub(crate) fn fence(ordering: Ordering) {
    switch();
    real::fence(ordering);
}

macro_rules! atomic {
    ($name:ident$(<$t:ident>)?, $value:ty) => {
        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct $name$(<$t>)?(real::$name$(<$t>)?);

        // No type needs all of them.
        #[allow(dead_code)]
        impl$(<$t>)? $name$(<$t>)? {
            pub(crate) const fn new(value: $value) -> Self {
                $name(real::$name::new(value))
            }

            pub(crate) fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                switch();
                self.0.load(ordering)
            }

            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                switch();
                self.0.store(value, ordering);
            }

            pub(crate) fn swap(&self, value: $value, ordering: Ordering) -> $value {
                switch();
                self.0.swap(value, ordering)
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                switch();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// Does not fail for no reason, which would be no choice of the schedule's.
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty) => {
        atomic!($name, $value);

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        #[allow(dead_code)]
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, ordering: Ordering) -> $value {
                switch();
                self.0.fetch_add(value, ordering)
            }

            pub(crate) fn fetch_sub(&self, value: $value, ordering: Ordering) -> $value {
                switch();
                self.0.fetch_sub(value, ordering)
            }

            pub(crate) fn fetch_or(&self, value: $value, ordering: Ordering) -> $value {
                switch();
                self.0.fetch_or(value, ordering)
            }

            pub(crate) fn fetch_max(&self, value: $value, ordering: Ordering) -> $value {
                switch();
                self.0.fetch_max(value, ordering)
            }

            pub(crate) fn fetch_min(&self, value: $value, ordering: Ordering) -> $value {
                switch();
                self.0.fetch_min(value, ordering)
            }
        }
    };
}

integer!(AtomicI64, i64);
integer!(AtomicU8, u8);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicUsize, usize);
atomic!(AtomicBool, bool);
atomic!(AtomicPtr<T>, *mut T);
