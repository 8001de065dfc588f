//! A seeded simulation: the pure state of an organization against a model that is too simple to be wrong, for 100,000
//! steps. Whoever waits is told the truth, callbacks find the runs they mean and no others, and the counts add up.

use std::collections::BTreeMap;
use std::sync::Arc;
use toolgate::domain::ids::{EndpointId, KeyId, OperationId, OrgId, RunId};
use toolgate::domain::json::JsonText;
use toolgate::domain::run::{CallContext, Run, RunIntent, RunOutcome, RunStatus};
use toolgate::domain::time::Timestamp;
use toolgate::domain::tool::{Dialect, ToolKind};
use toolgate::engine::org::{Effect, OpenCounts, OrgState, Waiter};
use uuid::Uuid;

const STEPS: u64 = 100_000;
/// Few enough that ids of providers meet again and again.
const ENDPOINTS: u128 = 3;
const CORRELATIONS: u64 = 40;
/// So many runs are open that most steps meet one.
const OPEN_AT_MOST: usize = 60;

/// SplitMix64: the same walk for the same seed, on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}

/// What the model knows of an open run.
struct Known {
    run: Arc<Run>,
    acknowledged: bool,
    correlation: Option<String>,
    waiters: Vec<Waiter>,
}

struct Simulation {
    dice: Dice,
    now: i64,
    state: OrgState,
    open: BTreeMap<RunId, Known>,
    /// Which run an endpoint's own id means: the first open one that was given it.
    by_correlation: BTreeMap<(EndpointId, String), RunId>,
    last_id: u128,
    told: u64,
}

fn endpoint(number: u128) -> EndpointId {
    EndpointId::from_uuid(Uuid::from_u128(1_000 + number))
}

fn run(id: RunId, endpoint_id: EndpointId, status: RunStatus, with_operation: bool, at: Timestamp) -> Run {
    let nil = Uuid::nil();
    Run {
        intent: RunIntent {
            id,
            org_id: OrgId::from_uuid(nil),
            agent_key: KeyId::from_uuid(nil),
            endpoint_id,
            endpoint_name: "tools".to_owned(),
            dialect: Dialect::Topology,
            tool: "ask".to_owned(),
            kind: ToolKind::Query,
            llm_format: false,
            tool_hash: String::new(),
            request_id: None,
            caller: None,
            keyed: false,
            confirmed: false,
            context: CallContext::default(),
            arguments_sent: JsonText::of(&serde_json::Value::Null),
            arguments_coerced: None,
            created_at: at,
            expires_at: None,
        },
        outcome: RunOutcome::bare(status, status == RunStatus::Pending),
        provider_correlation_id: None,
        withheld_result: None,
        operation_id: with_operation.then(|| OperationId::from_uuid(nil)),
        attempts: Vec::new(),
        updated_at: at,
        finished_at: None,
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed),
            now: 0,
            state: OrgState::default(),
            open: BTreeMap::new(),
            by_correlation: BTreeMap::new(),
            last_id: 0,
            told: 0,
        }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn some_open(&mut self) -> Option<RunId> {
        let at = self.dice.roll(self.open.len().max(1) as u64);
        self.open.keys().nth(usize::try_from(at).expect("small")).copied()
    }

    fn some_final(&mut self) -> RunStatus {
        const FINAL: [RunStatus; 6] = [
            RunStatus::Completed,
            RunStatus::Failed,
            RunStatus::Denied,
            RunStatus::Expired,
            RunStatus::Cancelled,
            RunStatus::Uncertain,
        ];
        FINAL[usize::try_from(self.dice.roll(6)).expect("small")]
    }

    /// Carries effects out as the actor does.
    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Wake(waiters, progress) => {
                    waiters.send_replace(progress);
                }
                Effect::Gauges(counts) => assert_eq!(counts, self.counts(), "the gauges show what is open"),
            }
        }
    }

    /// What is open, counted anew.
    fn counts(&self) -> OpenCounts {
        let with = |status| self.open.values().filter(move |known| known.run.outcome.status == status);
        OpenCounts {
            pending: with(RunStatus::Pending).count(),
            sent: with(RunStatus::Pending).filter(|known| known.run.operation_id.is_some()).count(),
            held: with(RunStatus::AwaitingApproval).count(),
            uncertain: with(RunStatus::Inspecting).count(),
        }
    }

    fn step(&mut self) {
        self.now += i64::try_from(self.dice.roll(1_000)).expect("small");
        match self.dice.roll(1_000) {
            0..300 if self.open.len() < OPEN_AT_MOST => self.admit(),
            0..450 => self.accept(),
            450..520 => self.release(),
            520..600 => self.begin_to_inspect(),
            600..830 => self.settle(),
            830..900 => self.watch(),
            900..995 => self.match_callback(),
            995..998 => self.restart(),
            _ => self.delete_organization(),
        }
        assert_eq!(self.state.summary().open, self.counts());
    }

    fn admit(&mut self) {
        self.last_id += 1;
        let id = RunId::from_uuid(Uuid::from_u128(self.last_id));
        let endpoint = endpoint(u128::from(self.dice.roll(ENDPOINTS as u64)));
        let held = self.dice.roll(4) == 0;
        let status = if held { RunStatus::AwaitingApproval } else { RunStatus::Pending };
        let run = Arc::new(run(id, endpoint, status, self.dice.roll(2) == 0, self.at()));
        let (waiter, effects) = self.state.admit(Arc::clone(&run));
        let waiters = if self.dice.roll(2) == 0 { vec![waiter] } else { Vec::new() };
        self.open.insert(id, Known { run, acknowledged: held, correlation: None, waiters });
        self.carry_out(effects);
    }

    /// The provider acknowledges, perhaps under an id that it has given before.
    fn accept(&mut self) {
        let correlation = format!("theirs-{}", self.dice.roll(CORRELATIONS));
        let Some(id) = self.some_open() else { return };
        let known = self.open.get_mut(&id).expect("open");
        if known.run.outcome.status != RunStatus::Pending || known.correlation.is_some() {
            return;
        }
        let mut run = Run::clone(&known.run);
        run.provider_correlation_id = Some(correlation.clone());
        known.run = Arc::new(run);
        known.acknowledged = true;
        known.correlation = Some(correlation.clone());
        let key = (known.run.intent.endpoint_id, correlation);
        self.by_correlation.entry(key).or_insert(id);
        let run = Arc::clone(&known.run);
        let effects = self.state.accepted(run);
        self.carry_out(effects);
        self.check_waiters(id);
    }

    fn release(&mut self) {
        let Some(id) = self.some_open() else { return };
        let known = self.open.get_mut(&id).expect("open");
        if known.run.outcome.status != RunStatus::AwaitingApproval {
            return;
        }
        let mut run = Run::clone(&known.run);
        run.outcome = RunOutcome::bare(RunStatus::Pending, false);
        known.run = Arc::new(run);
        known.acknowledged = false;
        let run = Arc::clone(&known.run);
        let effects = self.state.released(run);
        self.carry_out(effects);
        self.check_waiters(id);
    }

    fn begin_to_inspect(&mut self) {
        let Some(id) = self.some_open() else { return };
        let known = self.open.get_mut(&id).expect("open");
        if known.run.operation_id.is_none() || known.run.outcome.status == RunStatus::AwaitingApproval {
            return;
        }
        let mut run = Run::clone(&known.run);
        run.outcome = RunOutcome::ended(RunStatus::Inspecting, true, "timeout");
        known.run = Arc::new(run);
        known.acknowledged = true;
        if let Some(correlation) = &known.correlation {
            // Told again, it takes the place of one that has gone.
            let key = (known.run.intent.endpoint_id, correlation.clone());
            self.by_correlation.entry(key).or_insert(id);
        }
        let run = Arc::clone(&known.run);
        let effects = self.state.accepted(run);
        self.carry_out(effects);
        self.check_waiters(id);
    }

    fn settle(&mut self) {
        let status = self.some_final();
        // Now and then a run that is not open any more, as after a crash between the store and the actor.
        let id = match self.some_open() {
            Some(id) if self.dice.roll(10) > 0 => id,
            Some(_) | None => RunId::from_uuid(Uuid::from_u128(u128::MAX - 1)),
        };
        let Some(known) = self.open.remove(&id) else {
            let stranger = run(id, endpoint(0), status, false, self.at());
            assert!(self.state.settled(Arc::new(stranger)).is_empty(), "a stranger changes nothing");
            return;
        };
        let mut run = Run::clone(&known.run);
        run.outcome = RunOutcome::bare(status, run.outcome.started);
        run.finished_at = Some(self.at());
        self.forget_correlation(id, &known);
        let run = Arc::new(run);
        let effects = self.state.settled(Arc::clone(&run));
        self.carry_out(effects);
        self.told_the_end(known.waiters, &run);
    }

    fn forget_correlation(&mut self, id: RunId, known: &Known) {
        if let Some(correlation) = &known.correlation {
            let key = (known.run.intent.endpoint_id, correlation.clone());
            if self.by_correlation.get(&key) == Some(&id) {
                self.by_correlation.remove(&key);
            }
        }
    }

    fn told_the_end(&mut self, waiters: Vec<Waiter>, run: &Arc<Run>) {
        for waiter in waiters {
            let progress = waiter.borrow();
            assert_eq!(progress.run.outcome.status, run.outcome.status, "whoever waited is told how it ended");
            assert!(progress.acknowledged);
            self.told += 1;
        }
    }

    fn check_waiters(&self, id: RunId) {
        let known = &self.open[&id];
        for waiter in &known.waiters {
            let progress = waiter.borrow();
            assert_eq!(progress.run.outcome, known.run.outcome);
            assert_eq!(progress.acknowledged, known.acknowledged);
        }
    }

    fn watch(&mut self) {
        let Some(id) = self.some_open() else { return };
        let waiter = self.state.watch(id).expect("an open run can be waited for");
        assert_eq!(waiter.borrow().run.outcome, self.open[&id].run.outcome);
        self.open.get_mut(&id).expect("open").waiters.push(waiter);
        let stranger = RunId::from_uuid(Uuid::from_u128(u128::MAX));
        assert!(self.state.watch(stranger).is_none());
    }

    /// A callback with our id, the provider's, both or neither, to the right endpoint or another.
    fn match_callback(&mut self) {
        let to = endpoint(u128::from(self.dice.roll(ENDPOINTS as u64)));
        let ours = if self.dice.roll(2) == 0 { self.some_open() } else { None };
        let theirs = (self.dice.roll(2) == 0).then(|| format!("theirs-{}", self.dice.roll(CORRELATIONS)));
        let by_ours = ours.filter(|id| self.open[id].run.intent.endpoint_id == to);
        let by_theirs = theirs.clone().and_then(|theirs| self.by_correlation.get(&(to, theirs)).copied());
        let found = self.state.matching(to, ours, theirs.as_deref()).map(|run| run.intent.id);
        assert_eq!(found, by_ours.or(by_theirs));
    }

    /// The actor leaves and another starts from the store: open runs in the order they were made, nobody waits.
    fn restart(&mut self) {
        self.by_correlation.clear();
        for (id, known) in &mut self.open {
            known.waiters.clear();
            known.acknowledged = true;
            if let Some(correlation) = &known.correlation {
                let key = (known.run.intent.endpoint_id, correlation.clone());
                self.by_correlation.entry(key).or_insert(*id);
            }
        }
        self.state = OrgState::restore(self.open.values().map(|known| Run::clone(&known.run)).collect());
        assert_eq!(self.state.summary().waited_for, 0);
    }

    fn delete_organization(&mut self) {
        let effects = self.state.cancel_all(self.at());
        let open = std::mem::take(&mut self.open);
        self.by_correlation.clear();
        for effect in effects {
            if let Effect::Wake(waiters, progress) = effect {
                waiters.send_replace(progress);
            }
        }
        for known in open.into_values() {
            // What may have been carried out was not cancelled.
            let inspected = known.run.outcome.status == RunStatus::Inspecting;
            let end = if inspected { RunStatus::Uncertain } else { RunStatus::Cancelled };
            for waiter in known.waiters {
                assert_eq!(waiter.borrow().run.outcome.status, end);
                self.told += 1;
            }
        }
    }
}

#[test]
fn an_organization_behaves_as_its_model_for_100_000_steps() {
    for seed in [1, 20_261_130, u64::MAX] {
        let mut simulation = Simulation::new(seed);
        for _ in 0..STEPS {
            simulation.step();
        }
        assert!(simulation.told > STEPS / 50, "seed {seed}: only {} were told of an end", simulation.told);
    }
}
