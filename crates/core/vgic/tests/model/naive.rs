//! Interrupts as the architecture has them (Arm IHI 0069, 4.1): no list registers, no words, no inboxes.

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the manual has as many bits")]
pub(crate) struct Interrupt {
    pub(crate) enabled: bool,
    pub(crate) group1: bool,
    pub(crate) edge: bool,
    pub(crate) latch: bool,
    pub(crate) line: bool,
    pub(crate) linked: bool,
    pub(crate) priority: u8,
    /// Where it goes; `None` is nobody.
    pub(crate) target: Option<usize>,
    /// Who has acknowledged it.
    pub(crate) active: Option<usize>,
}

impl Interrupt {
    pub(crate) fn is_pending(&self) -> bool {
        self.latch || self.line && (!self.edge || self.linked)
    }

    pub(crate) fn set_line(&mut self, high: bool) {
        if self.linked {
            return;
        }
        self.latch |= high && !self.line && self.edge;
        self.line = high;
    }
}

pub(crate) const VCPUS: usize = 3;
pub(crate) const SPIS: usize = 40;
pub(crate) const LINKED: u32 = 27;

/// All of a VM's, and what of the distributor gates them.
pub(crate) struct Gic {
    private: Vec<Interrupt>,
    spis: Vec<Interrupt>,
    pub(crate) groups: u32,
    pub(crate) asleep: [bool; VCPUS],
}

impl Gic {
    pub(crate) fn new() -> Self {
        let private = (0..VCPUS * 32)
            .map(|index| Interrupt {
                edge: index % 32 < 16,
                linked: index % 32 == LINKED as usize,
                target: Some(index / 32),
                ..Interrupt::default()
            })
            .collect();
        let spi = Interrupt { target: Some(0), ..Interrupt::default() };
        Self { private, spis: vec![spi; SPIS], groups: 0, asleep: [false; VCPUS] }
    }

    pub(crate) fn get(&mut self, vcpu: usize, intid: u32) -> Option<&mut Interrupt> {
        match intid {
            0..32 => self.private.get_mut(vcpu * 32 + intid as usize),
            _ => self.spis.get_mut(intid as usize - 32),
        }
    }

    /// What vCPU `vcpu` could be given, if its own interface let it.
    pub(crate) fn deliverable(&mut self, vcpu: usize) -> Vec<(u32, Interrupt)> {
        let groups = self.groups;
        (0..32 + SPIS as u32)
            .filter_map(|intid| Some((intid, self.get(vcpu, intid)?.clone())))
            .filter(|(_, interrupt)| {
                interrupt.enabled
                    && interrupt.is_pending()
                    && interrupt.active.is_none()
                    && interrupt.target == Some(vcpu)
                    && groups >> u32::from(interrupt.group1) & 1 != 0
            })
            .collect()
    }

    pub(crate) fn acknowledge(&mut self, vcpu: usize, intid: u32) {
        let interrupt = self.get(vcpu, intid).expect("an interrupt that there is");
        interrupt.latch = false;
        // The physical interrupt is active from here on, until its end.
        interrupt.line &= !interrupt.linked;
        interrupt.active = Some(vcpu);
    }
}
