//! The universal scalability law, and its least-squares fit.

/// X(n) = λn / (1 + σ(n − 1) + κn(n − 1)): rate of n threads, each on a core of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Law {
    /// Rate of one thread.
    pub(super) lambda: f64,
    /// Share that must be done one after another.
    pub(super) sigma: f64,
    /// Cost of keeping each pair of threads coherent.
    pub(super) kappa: f64,
}

/// Coefficients of the law.
const UNKNOWNS: usize = 3;

/// With no more points than coefficients, any law passes through all of them and says nothing.
pub(super) const FEWEST_POINTS: usize = UNKNOWNS + 1;

impl Law {
    pub(super) fn rate(&self, threads: f64) -> f64 {
        let others = threads - 1.0;
        self.lambda * threads / (1.0 + self.sigma * others + self.kappa * threads * others)
    }

    /// Fits the law to (threads, rate), least squares of relative errors, with σ and κ not below
    /// zero. `None` unless there are at least [`FEWEST_POINTS`] different numbers of threads.
    pub(super) fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let mut threads: Vec<f64> = points.iter().map(|point| point.0).collect();
        threads.sort_by(f64::total_cmp);
        threads.dedup();
        let usable = |&(threads, rate): &(f64, f64)| threads >= 1.0 && rate > 0.0;
        if threads.len() < FEWEST_POINTS || !points.iter().all(usable) {
            return None;
        }
        // n / X = a + b(n − 1) + cn(n − 1) is linear in a = 1/λ, b = σ/λ, c = κ/λ. A coefficient
        // that would be negative is left out: of the fits with some of them, the best allowed one.
        [[true, true], [true, false], [false, true], [false, false]]
            .into_iter()
            .filter_map(|[sigma, kappa]| Self::fit_some(points, [true, sigma, kappa]))
            .min_by(|a, b| a.error(points).total_cmp(&b.error(points)))
    }

    fn fit_some(points: &[(f64, f64)], used: [bool; UNKNOWNS]) -> Option<Self> {
        let mut equations = [[0.0; UNKNOWNS + 1]; UNKNOWNS];
        for &(threads, rate) in points {
            // Divided by n / X, so that each point's relative error counts alike.
            let basis = [1.0, threads - 1.0, threads * (threads - 1.0)];
            let row = std::array::from_fn::<f64, UNKNOWNS, _>(|i| {
                if used[i] {
                    basis[i] * rate / threads
                } else {
                    0.0
                }
            });
            for (equation, left) in equations.iter_mut().zip(row) {
                for (sum, right) in equation.iter_mut().zip(row.into_iter().chain([1.0])) {
                    *sum += left * right;
                }
            }
        }
        for (i, used) in used.into_iter().enumerate() {
            if !used {
                equations[i][i] = 1.0;
            }
        }
        let [a, b, c] = solve(equations)?;
        let allowed = a > 0.0 && b >= 0.0 && c >= 0.0;
        allowed.then(|| Self {
            lambda: 1.0 / a,
            sigma: b / a,
            kappa: c / a,
        })
    }

    /// Root mean square of the errors of the rates, relative to the law's.
    pub(super) fn error(&self, points: &[(f64, f64)]) -> f64 {
        let squares: f64 = points
            .iter()
            .map(|&(threads, rate)| (rate / self.rate(threads) - 1.0).powi(2))
            .sum();
        (squares / points.len() as f64).sqrt()
    }
}

/// Gauss's elimination with the greatest pivot.
fn solve(mut equations: [[f64; UNKNOWNS + 1]; UNKNOWNS]) -> Option<[f64; UNKNOWNS]> {
    for column in 0..UNKNOWNS {
        let pivot = (column..UNKNOWNS).max_by(|&a, &b| {
            equations[a][column]
                .abs()
                .total_cmp(&equations[b][column].abs())
        })?;
        equations.swap(column, pivot);
        let scale = equations[column][column];
        if scale.abs() < 1e-12 {
            return None;
        }
        equations[column] = equations[column].map(|value| value / scale);
        let done = equations[column];
        for (index, equation) in equations.iter_mut().enumerate() {
            if index != column {
                let factor = equation[column];
                for (value, subtracted) in equation.iter_mut().zip(done) {
                    *value -= factor * subtracted;
                }
            }
        }
    }
    Some(equations.map(|equation| equation[UNKNOWNS]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: [f64; 6] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];

    fn points(law: Law) -> Vec<(f64, f64)> {
        THREADS.iter().map(|&n| (n, law.rate(n))).collect()
    }

    #[test]
    fn a_law_is_found_again_in_its_own_points() {
        for (sigma, kappa) in [
            (0.05, 0.001),
            (0.0, 0.0),
            (0.3, 0.0),
            (0.0, 0.02),
            (1.0, 0.5),
        ] {
            let law = Law {
                lambda: 12.5,
                sigma,
                kappa,
            };
            let fit = Law::fit(&points(law)).unwrap();
            assert!((fit.lambda / law.lambda - 1.0).abs() < 1e-6, "{fit:?}");
            assert!((fit.sigma - sigma).abs() < 1e-6, "{fit:?}");
            assert!((fit.kappa - kappa).abs() < 1e-6, "{fit:?}");
            assert!((fit.rate(64.0) / law.rate(64.0) - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn noise_of_two_percent_moves_a_prediction_little() {
        let law = Law {
            lambda: 20.0,
            sigma: 0.08,
            kappa: 0.002,
        };
        let mut noisy = points(law);
        for (index, point) in noisy.iter_mut().enumerate() {
            point.1 *= if index % 2 == 0 { 1.02 } else { 0.98 };
        }
        let fit = Law::fit(&noisy).unwrap();
        assert!(
            (fit.rate(64.0) / law.rate(64.0) - 1.0).abs() < 0.2,
            "{fit:?}"
        );
        assert!(fit.error(&noisy) < 0.025);
    }

    #[test]
    fn better_than_linear_is_taken_as_linear() {
        let faster: Vec<_> = THREADS.iter().map(|&n| (n, 3.0 * n.powf(1.1))).collect();
        let fit = Law::fit(&faster).unwrap();
        assert_eq!((fit.sigma, fit.kappa), (0.0, 0.0));
    }

    #[test]
    fn too_few_points_or_no_rates_give_no_law() {
        assert_eq!(Law::fit(&[(1.0, 5.0), (2.0, 9.0), (4.0, 15.0)]), None);
        let same = [(1.0, 5.0), (2.0, 9.0), (2.0, 9.1), (2.0, 9.2)];
        assert_eq!(Law::fit(&same), None);
        let idle = [(1.0, 5.0), (2.0, 9.0), (4.0, 0.0), (8.0, 9.0)];
        assert_eq!(Law::fit(&idle), None);
        let nothing = [(1.0, 5.0), (2.0, f64::NAN), (4.0, 1.0), (8.0, 9.0)];
        assert_eq!(Law::fit(&nothing), None);
    }
}
