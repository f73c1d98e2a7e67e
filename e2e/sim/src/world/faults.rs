//! What goes wrong.

use gradient_domain::BuildId;
use gradient_events::{Command, Input};

use super::World;
use crate::scheduler::Scheduler;

impl World {
    /// Now and then something goes wrong.
    pub(super) fn fault(&mut self) {
        if self.rng.chance(12) {
            let number = self.pick_worker();
            let worker = &mut self.workers[number];
            if worker.alive {
                let unsent = worker.work(self.now_ms);
                worker.kill();
                worker.keep(unsent);
                self.tally.add("worker killed");
                self.say(|| format!("worker {number} is killed"));
            }
        }
        if self.rng.chance(6) {
            let number = self.pick_worker();
            if self.workers[number].alive {
                let said = self.workers[number].stop();
                self.say(|| format!("worker {number} stops"));
                self.send(number, said);
            }
        }
        if self.rng.chance(15) {
            let log = self.log.clone();
            let number =
                usize::try_from(self.rng.below(self.schedulers.len() as u64)).expect("small");
            self.schedulers[number] = Scheduler::start(&log);
            self.tally.add("scheduler restarted");
            self.say(|| format!("scheduler {number} restarts"));
        }
        if self.rng.chance(5) && self.schedulers.len() < 2 {
            self.schedulers.push(Scheduler::start(&self.log));
            self.say(|| "a second scheduler starts".into());
        }
        if self.rng.chance(5) {
            self.skew_ms = self.rng.below(600_000);
        }
        if self.rng.chance(10) {
            let number = self.pick_worker();
            if self.workers[number].alive {
                let hello = self.workers[number].hello();
                self.say(|| format!("worker {number} reconnects"));
                self.send(number, vec![hello]);
            }
        }
        if self.rng.chance(4) && self.submitted > 0 {
            let number = usize::try_from(self.rng.below(self.submitted as u64)).expect("small");
            let evaluation = self.evaluations[number].0;
            self.canceled.push(evaluation);
            self.commands
                .push(Input::Command { command: Command::CancelEvaluation { evaluation } });
            self.say(|| format!("evaluation {number} is canceled"));
        }
        let builds = self.watch.state().graph().len() as u64;
        if self.rng.chance(3) && builds > 0 {
            let build = BuildId(u32::try_from(self.rng.below(builds)).expect("small"));
            self.canceled_builds.insert(build);
            self.commands.push(Input::Command { command: Command::CancelBuild { build } });
            self.tally.add("build canceled");
            self.say(|| format!("{build} is canceled"));
        }
    }

    fn pick_worker(&mut self) -> usize {
        usize::try_from(self.rng.below(self.workers.len() as u64)).expect("small")
    }
}
