//! ebbtide
