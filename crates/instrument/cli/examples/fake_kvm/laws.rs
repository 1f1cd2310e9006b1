//! The laws that are planted, and the noise.
//!
//! A line of the file is `seed NUMBER`, `base CALL NS`, or `CALL DIMENSION FORM END TO [NUMBER]`: from nothing the call takes
//! `END` nanoseconds more where there are `TO` of what grows. The number is the exponent of a power, or where a bend or a
//! step is. A call takes its base, and what each dimension adds.

use mayfly_record::Chance;

/// What there is when a call is made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Stage {
    pub(crate) mappings: u64,
    pub(crate) vms: u64,
    pub(crate) vcpus: u64,
    pub(crate) slots: u64,
    pub(crate) slot_pages: u64,
}

impl Stage {
    fn of(self, dimension: &str) -> u64 {
        match dimension {
            "mappings" => self.mappings,
            "vms" => self.vms,
            "vcpus" => self.vcpus,
            "slots" => self.slots,
            "slot-pages" => self.slot_pages,
            _ => 0,
        }
    }
}

struct Law {
    call: String,
    dimension: String,
    form: String,
    end: f64,
    to: f64,
    number: f64,
}

impl Law {
    /// What so many add to the call.
    fn adds(&self, n: u64) -> f64 {
        if n == 0 {
            return 0.0;
        }
        let (n, to, number) = (n as f64, self.to, self.number);
        self.end
            * match self.form.as_str() {
                "log" => n.ln() / to.ln(),
                "linear" => n / to,
                "nlogn" => n * n.ln() / (to * to.ln()),
                "power" => (n / to).powf(number),
                "bend" => (n - number).max(0.0) / (to - number),
                "step" => f64::from(u8::from(n > number)),
                _ => 0.0,
            }
    }
}

/// All that are planted.
#[derive(Default)]
pub(crate) struct Laws {
    pub(crate) seed: u64,
    bases: Vec<(String, f64)>,
    all: Vec<Law>,
}

/// Most calls differ by so much, in per mille; and one in so many takes several times as long.
const WIDTH: u64 = 250;
const OUTLIERS: u128 = 20;

impl Laws {
    pub(crate) fn parse(text: &str) -> Self {
        let mut read = Self::default();
        for line in text.lines() {
            let number = |text: &str| text.parse::<f64>().unwrap_or(0.0);
            match *line.split_whitespace().collect::<Vec<_>>() {
                ["seed", seed] => read.seed = seed.parse().unwrap_or(0),
                ["base", call, base] => read.bases.push((call.to_owned(), number(base))),
                [call, dimension, form, end, to, ref rest @ ..] => read.all.push(Law {
                    call: call.to_owned(),
                    dimension: dimension.to_owned(),
                    form: form.to_owned(),
                    end: number(end),
                    to: number(to),
                    number: rest.first().map_or(0.0, |text| number(text)),
                }),
                _ => {}
            }
        }
        read
    }

    /// How long a call takes, in nanoseconds: most calls within some per cent of each other, some several times as long.
    #[expect(clippy::cast_sign_loss, reason = "no time is below 0")]
    pub(crate) fn time(&self, call: &str, stage: Stage, chance: &mut Chance) -> u64 {
        let base = self.bases.iter().find(|(of, _)| of == call).map_or(0.0, |(_, base)| *base);
        let laws = self.all.iter().filter(|law| law.call == call);
        let time = base + laws.map(|law| law.adds(stage.of(&law.dimension))).sum::<f64>();
        let sum: u64 = (0..4).map(|_| chance.below(u128::from(WIDTH) + 1)).sum();
        let usual = 1.0 + (sum as f64 / 2.0 - WIDTH as f64) / 1000.0;
        let outlier = if chance.below(OUTLIERS) == 0 { 2 + chance.below(8) } else { 1 };
        (time * usual * outlier as f64) as u64
    }
}
